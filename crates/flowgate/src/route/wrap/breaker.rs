//! Not asking what keeps failing.
//!
//! Owns the options of `circuit_breaker` and the step around which it stands. Load that our own limits shed, and what is wrong
//! with the exchange itself, say nothing about the other side: neither opens it unless asked to.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use flowgate_core::{Code, OptionError};

use super::{
    circuit::{Circuit, Let, Terms, Turn},
    stack::Wrap,
};
use crate::route::{
    cx::Cx,
    error::{BoxError, Error},
    event::{Scope, What},
    exchange::Exchange,
    step::{Halt, Outcome, Step},
};

const MOST: u32 = 10_000;

/// The options of `circuit_breaker`: when to stop trying, and for how long. `T` is the body that a fallback returns.
///
/// ```
/// use flowgate::route::CircuitBreaker;
/// use std::time::Duration;
///
/// let breaker: CircuitBreaker<u32> = CircuitBreaker::new()
///     .failure_threshold(5)
///     .window(Duration::from_secs(60))
///     .cooldown(Duration::from_secs(30))
///     .fallback(|_| Ok::<_, flowgate::route::Error>(0));
/// ```
#[must_use = "options do nothing until a route has them"]
pub struct CircuitBreaker<T> {
    terms: Terms,
    failure_on: FailureOn,
    fallback: Option<Fallback<T>>,
}

type FailureOn = Arc<dyn Fn(&Error) -> bool + Send + Sync>;
type Fallback<T> = Arc<dyn Fn(Error) -> Result<T, Error> + Send + Sync>;

/// Whether an error tells of the other side, rather than of this exchange, this route or its limits.
fn is_failure(error: &Error) -> bool {
    !error.is_shed() && !matches!(error.code(), Code::Invalid | Code::Unreadable | Code::Misconfigured)
}

impl<T> Default for CircuitBreaker<T> {
    fn default() -> Self {
        CircuitBreaker::new()
    }
}

impl<T> CircuitBreaker<T> {
    /// Opens after 5 failures within a minute, and stays open for 30 seconds; then one trial decides.
    pub fn new() -> Self {
        let terms = Terms {
            failure_threshold: 5,
            window: Duration::from_secs(60),
            cooldown: Duration::from_secs(30),
            half_open_max: 1,
        };
        CircuitBreaker { terms, failure_on: Arc::new(is_failure), fallback: None }
    }

    /// Sets how many failures within the window open it: 1 to 10,000, default 5.
    pub fn failure_threshold(mut self, failures: u32) -> Self {
        self.terms.failure_threshold = failures;
        self
    }

    /// Sets how long a failure counts. Default: 60 s.
    pub fn window(mut self, window: Duration) -> Self {
        self.terms.window = window;
        self
    }

    /// Sets how long it stays open before a trial. Default: 30 s.
    pub fn cooldown(mut self, cooldown: Duration) -> Self {
        self.terms.cooldown = cooldown;
        self
    }

    /// Sets how many trials may be under way at once: 1 to 10,000, default 1. The first to end decides.
    pub fn half_open_max(mut self, trials: u32) -> Self {
        self.terms.half_open_max = trials;
        self
    }

    /// Sets which errors are failures; any other does not count. Default: all but those that say nothing about the
    /// other side, which are refusals by the route's own limits (RC5026, RC5013), bodies that are invalid or cannot be
    /// read (RC5002, RC5016), and mistakes in the route, such as a key function that fails (RC5003).
    pub fn failure_on(mut self, failure_on: impl Fn(&Error) -> bool + Send + Sync + 'static) -> Self {
        self.failure_on = Arc::new(failure_on);
        self
    }

    /// Counts refusals by the route's own limits (RC5026, RC5013) as failures too, beside what counts already.
    pub fn count_shed(self) -> Self {
        let before = Arc::clone(&self.failure_on);
        self.failure_on(move |error| error.is_shed() || before(error))
    }

    /// Sets what to return while it is open, instead of RC5025.
    pub fn fallback<E: Into<BoxError>>(
        mut self,
        fallback: impl Fn(Error) -> Result<T, E> + Send + Sync + 'static,
    ) -> Self {
        self.fallback = Some(Arc::new(move |error| fallback(error).map_err(Error::of)));
        self
    }

    pub(crate) fn check(&self) -> Result<(), OptionError> {
        for (option, value) in
            [("failure_threshold", self.terms.failure_threshold), ("half_open_max", self.terms.half_open_max)]
        {
            if !(1..=MOST).contains(&value) {
                return Err(OptionError::new(option, value, "an integer from 1 to 10000"));
            }
        }
        for (option, value) in [("window", self.terms.window), ("cooldown", self.terms.cooldown)] {
            if value.is_zero() {
                return Err(OptionError::new(option, format_args!("{value:?}"), "a time above zero"));
            }
        }
        Ok(())
    }

    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }

    /// The wrapper, with its state at this place among the breakers of the site.
    pub(crate) fn wrapper(self, index: usize, scope: Scope) -> Broken<T> {
        let CircuitBreaker { failure_on, fallback, .. } = self;
        Broken { index, scope, failure_on, fallback, inner: () }
    }
}

impl<T> fmt::Debug for CircuitBreaker<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CircuitBreaker").field("terms", &self.terms).finish_non_exhaustive()
    }
}

/// A step behind a circuit breaker.
pub struct Broken<T, S = ()> {
    index: usize,
    scope: Scope,
    failure_on: FailureOn,
    fallback: Option<Fallback<T>>,
    inner: S,
}

impl<T, S> Broken<T, S> {
    /// The same around a step.
    pub(crate) fn with<N>(self, inner: N) -> Broken<T, N> {
        let Broken { index, scope, failure_on, fallback, .. } = self;
        Broken { index, scope, failure_on, fallback, inner }
    }

    fn reject<B>(&self, exchange: Exchange<B>, wait: Duration, cx: Cx<'_>) -> Outcome<T> {
        let (scope, has_fallback) = (self.scope, self.fallback.is_some());
        cx.tell(|| What::BreakerRejected { scope, has_fallback });
        let message = match wait {
            Duration::ZERO => format!(
                "a circuit breaker of route `{}` is half open with all its trials under way",
                cx.route()
            ),
            wait => format!("a circuit breaker of route `{}` is open for another {wait:?}", cx.route()),
        };
        let error = Error::new(Code::BreakerOpen, message);
        match &self.fallback {
            Some(fallback) => Ok(exchange.take().1.with(fallback(error)?)),
            None => Err(error.into()),
        }
    }
}

impl<B: Send + 'static, T: Send + 'static, S: Step<B, Out = T>> Step<B> for Broken<T, S> {
    type Out = T;

    async fn run<'a>(&'a self, exchange: Exchange<B>, cx: Cx<'a>) -> Outcome<T> {
        let circuit = &cx.site.circuits[self.index];
        let scope = self.scope;
        let era = match circuit.enter(cx.now()) {
            Let::Nobody { wait } => return self.reject(exchange, wait, cx),
            Let::Through { era, is_first } => {
                if is_first {
                    cx.tell(|| What::BreakerHalfOpened { scope });
                }
                era
            }
        };
        let mut under_way = UnderWay { circuit, cx, era, scope, is_inside: true, is_settled: false };
        // Dropped before anything is counted: what it holds has come back then.
        let outcome = {
            let mut work = pin!(self.inner.run(exchange, cx));
            poll_fn(|task| under_way.inside(|| work.as_mut().poll(task))).await
        };
        match &outcome {
            Err(Halt::Failed(error)) if !(self.failure_on)(error) => {}
            Err(Halt::Failed(_)) => under_way.settle(true),
            Ok(_) | Err(Halt::Dropped) => under_way.settle(false),
        }
        outcome
    }
}

/// One that was let through. If it says nothing before it is dropped, its place is another's; if it panicked, it failed.
struct UnderWay<'a> {
    circuit: &'a Circuit,
    cx: Cx<'a>,
    era: u64,
    scope: Scope,
    /// Whether what it asked is at work on this thread: a panic is of that then, and else of one beside it.
    is_inside: bool,
    is_settled: bool,
}

impl UnderWay<'_> {
    /// Does something of what it asked.
    fn inside<R>(&mut self, work: impl FnOnce() -> R) -> R {
        self.is_inside = true;
        let done = work();
        self.is_inside = false;
        done
    }

    fn settle(&mut self, has_failed: bool) {
        self.is_settled = true;
        let scope = self.scope;
        match self.circuit.settle(self.era, has_failed, self.cx.now()) {
            Turn::Stays => {}
            Turn::Opened => self.cx.tell(|| What::BreakerOpened { scope }),
            Turn::Closed => self.cx.tell(|| What::BreakerClosed { scope }),
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        match self.is_settled {
            true => {}
            false if self.is_inside && std::thread::panicking() => self.settle(true),
            false => self.circuit.forget(self.era),
        }
    }
}

impl<B: Send + 'static, T: Send + 'static> Wrap<B, T> for Broken<T> {
    type Around<S: Step<B, Out = T>> = Broken<T, S>;

    fn around<S: Step<B, Out = T>>(self, inner: S) -> Broken<T, S> {
        self.with(inner)
    }
}

impl<T, S> fmt::Debug for Broken<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broken").field("index", &self.index).finish_non_exhaustive()
    }
}
