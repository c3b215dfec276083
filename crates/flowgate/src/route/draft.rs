//! A route before its source is known.
//!
//! Owns what is declared before `.from()`: the id, and the wrappers around the whole route, which stand in one fixed order
//! whatever the order of the calls.

use std::{fmt, future::Future, time::Duration};

use flowgate_core::{Code, Spot};

use super::{
    cx::Cx,
    definition::{Head, Route},
    error::{BoxError, Error},
    event::Scope,
    exchange::Exchange,
    limiter::Limiter,
    plan::Plan,
    source::{Opener, Source},
    step::{Erased, Outcome, Start, Step},
    steps::Steps,
    wrap::{
        self, Bare, Bounded, Broken, Cache, Caught, CircuitBreaker, Concurrency, Delayed, Failure, Handler,
        Retried, Retry, Throttle, Throttled, Timed, Wrap,
    },
};

impl Route<(), ()> {
    /// Starts a route with this id, by which its context knows it. Wrappers declared before `.from()` cover the whole
    /// route.
    #[expect(clippy::new_ret_no_self, reason = "a route is built in stages, and this is the first")]
    pub fn new<I: Send + 'static, O: Send + 'static>(id: &str) -> Draft<I, I, O> {
        Draft {
            plan: Plan::new(id),
            around: Around::default(),
            has_input: false,
            read: Box::new(|inner| inner),
        }
    }
}

/// A route before its source is known. `R` is the body that the source gives, `I` the one that the first step takes,
/// `O` the one that the last step leaves.
#[must_use = "a route does nothing until it is built and added to a context"]
pub struct Draft<R, I, O> {
    plan: Plan,
    around: Around<I, O>,
    has_input: bool,
    read: Read<R, I, O>,
}

/// Steps that begin with an `I` put behind something that begins with an `R`.
type Read<R, I, O> = Box<dyn FnOnce(Erased<I, O>) -> Erased<R, O> + Send>;

/// What stands around the whole route.
struct Around<I, O> {
    handler: Option<Handler<O>>,
    delay: Option<Duration>,
    throttles: Vec<Limiter<I>>,
    breaker: Option<Broken<O>>,
    retry: Option<Retried<I>>,
    timeout: Option<Duration>,
    limiters: Vec<Limiter<I>>,
    cache: Option<Read<I, I, O>>,
}

impl<R: Send + 'static, I: Send + 'static, O: Send + 'static> Draft<R, I, O> {
    /// Handles errors of the route: the handler returns another body, or an error after all. It stands outside of all
    /// other wrappers.
    pub fn error<F, E>(mut self, handler: impl Fn(Failure) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<O, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        self.plan.once("error", self.around.handler.is_some());
        self.around.handler = Some(Handler::new(handler));
        self
    }

    /// Waits for `span` before each exchange. It stands outside of `throttle`, so it holds nothing and does not count
    /// against a timeout.
    pub fn delay(mut self, span: Duration) -> Self {
        self.plan.once("delay", self.around.delay.is_some());
        self.around.delay = Some(span);
        self
    }

    /// Limits how many exchanges start per period. It stands outside of `retry`, so each exchange uses one start.
    /// Several can be declared.
    pub fn throttle(mut self, throttle: Throttle<I>) -> Self {
        let limiter = self.plan.gate(throttle.split(Scope::Route));
        self.around.throttles.push(limiter);
        self
    }

    /// Fails with RC5025, without trying, while the route keeps failing. It stands outside of `retry`: an exchange
    /// counts once, however often it is tried.
    pub fn circuit_breaker(mut self, breaker: CircuitBreaker<O>) -> Self {
        self.plan.once("circuit_breaker", self.around.breaker.is_some());
        let index = self.plan.circuit(&breaker);
        self.around.breaker = Some(breaker.wrapper(index, Scope::Route));
        self
    }

    /// Tries the whole pipeline again after an error. Each attempt has its own timeout and its own slot; the pause
    /// between two holds neither.
    pub fn retry(mut self, retry: Retry) -> Self
    where
        I: Clone,
    {
        self.plan.once("retry", self.around.retry.is_some());
        self.plan.note(retry.check());
        self.around.retry = Some(Retried { retry, scope: Scope::Route, copy: Clone::clone, inner: () });
        self
    }

    /// Limits how long each attempt may take, including the wait for a slot.
    pub fn timeout(mut self, after: Duration) -> Self {
        self.plan.once("timeout", self.around.timeout.is_some());
        self.plan.note(wrap::check_timeout(after));
        self.around.timeout = Some(after);
        self
    }

    /// Limits how many exchanges run at once. It stands inside of `retry` and `timeout`: each attempt takes a slot of
    /// its own. Several nest, the first declared outermost.
    pub fn concurrency(mut self, concurrency: Concurrency<I>) -> Self {
        let limiter = self.plan.gate(concurrency.split(Scope::Route));
        self.around.limiters.push(limiter);
        self
    }

    /// Remembers the outcomes of exchanges. It is the innermost wrapper: a known outcome is returned without running
    /// the steps.
    pub fn cache(mut self, cache: Cache<I>) -> Self
    where
        O: Clone + Sync,
    {
        self.plan.once("cache", self.around.cache.is_some());
        let index = self.plan.cache::<I, O>(&cache);
        let cached = cache.wrapper::<O>(index, Scope::Route);
        self.around.cache = Some(Box::new(move |steps| Erased::new(cached.with(steps))));
        self
    }

    /// Sets where exchanges come from. What follows are the steps.
    #[track_caller]
    pub fn from<S>(self, source: S) -> Steps<Head<R, I, O>, I, Start, Bare>
    where
        S: Source<O, Body = R>,
    {
        let Draft { mut plan, around, read, .. } = self;
        plan.note(source.check());
        let (spot, opener) = (Spot::here(), Opener::new(source));
        let limits = around.limiters.first().map(|limiter| limiter.index);
        let wrap = Wrapping { around, read };
        Steps::new(Head { wrap, opener, spot, outermost: limits }, plan)
    }
}

impl<I: Send + 'static, O: Send + 'static> Draft<I, I, O> {
    /// Parses what the source gives into what the first step takes, or fails with RC5016. It stands outside of
    /// `throttle`: input that cannot be parsed uses no start.
    pub fn input<R: Send + 'static, E: Into<BoxError> + 'static>(
        self,
        parse: impl Fn(R) -> Result<I, E> + Send + Sync + 'static,
    ) -> Draft<R, I, O> {
        let Draft { mut plan, around, has_input, .. } = self;
        plan.once("input", has_input);
        let read = Box::new(move |inner| Erased::new(Parsed { parse, inner }));
        Draft { plan, around, has_input: true, read }
    }
}

/// The wrappers of a route, waiting for its steps.
pub(crate) struct Wrapping<R, I, O> {
    around: Around<I, O>,
    read: Read<R, I, O>,
}

impl<R: Send + 'static, I: Send + 'static, O: Send + 'static> Wrapping<R, I, O> {
    /// The fixed order, from the inside out:
    /// error > input > delay > throttle > circuit breaker > retry > timeout > concurrency > cache > steps.
    pub(crate) fn around(self, steps: impl Step<I, Out = O>) -> Erased<R, O> {
        let Around { handler, delay, throttles, breaker, retry, timeout, limiters, cache } = self.around;
        let scope = Scope::Route;
        let mut inner = match cache {
            Some(cache) => bounded(limiters, cache(Erased::new(steps))),
            None => bounded(limiters, steps),
        };
        if let Some(after) = timeout {
            inner = Erased::new(Timed { after, scope, inner });
        }
        if let Some(retry) = retry {
            inner = Erased::new(retry.around(inner));
        }
        if let Some(breaker) = breaker {
            inner = Erased::new(breaker.with(inner));
        }
        if !throttles.is_empty() {
            inner = Erased::new(Throttled { limiters: throttles, inner });
        }
        if let Some(span) = delay {
            inner = Erased::new(Delayed { span, scope, inner });
        }
        let outer = (self.read)(inner);
        match handler {
            Some(handler) => Erased::new(Caught { handler, scope, inner: outer }),
            None => outer,
        }
    }
}

/// One pointer for the steps and their slots: a limit at route scope costs no allocation.
fn bounded<I, O>(limiters: Vec<Limiter<I>>, inner: impl Step<I, Out = O>) -> Erased<I, O>
where
    I: Send + 'static,
    O: Send + 'static,
{
    if limiters.is_empty() {
        return Erased::new(inner);
    }
    Erased::new(Bounded { limiters, inner })
}

/// Steps that begin with something else than the source gives.
struct Parsed<F, S> {
    parse: F,
    inner: S,
}

impl<R, I, E, F, S> Step<R> for Parsed<F, S>
where
    R: Send + 'static,
    I: Send + 'static,
    E: Into<BoxError> + 'static,
    F: Fn(R) -> Result<I, E> + Send + Sync + 'static,
    S: Step<I>,
{
    type Out = S::Out;

    async fn run<'a>(&'a self, exchange: Exchange<R>, cx: Cx<'a>) -> Outcome<S::Out> {
        let (raw, rest) = exchange.take();
        let body = (self.parse)(raw).map_err(|error| Error::coded(Code::Unreadable, error.into()))?;
        self.inner.run(rest.with(body), cx).await
    }
}

impl<I, O> Default for Around<I, O> {
    fn default() -> Self {
        Around {
            handler: None,
            delay: None,
            throttles: Vec::new(),
            breaker: None,
            retry: None,
            timeout: None,
            limiters: Vec::new(),
            cache: None,
        }
    }
}

impl<R, I, O> fmt::Debug for Draft<R, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft").field("id", &self.plan.id).finish_non_exhaustive()
    }
}
