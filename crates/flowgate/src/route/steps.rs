//! A route after its source: step by step.
//!
//! Owns the methods that add steps, and those that put wrappers around the next one. The type of the body is followed through
//! all of them.

use std::{fmt, future::Future, marker::PhantomData, time::Duration};

use flowgate_core::Spot;

use super::{
    destination::Destination,
    error::BoxError,
    event::Scope,
    exchange::Exchange,
    op::{Cases, Choice, Enrich, Fan, Filter, Multicast, Split, Tap, To, Transform, Validate},
    plan::Plan,
    step::{Start, Step, Then},
    wrap::{
        self, Bare, Bounded, Broken, Cache, Cached, Caught, CircuitBreaker, Complete, Concurrency, Delayed,
        Failure, Handler, Retried, Retry, Stacked, Throttle, Throttled, Timed, Wrap,
    },
};

/// The steps of a route so far. `H` is what stands before them, `B` the body that they leave, `C` the chain of steps,
/// and `W` the wrappers that are waiting for the next step.
#[must_use = "steps do nothing until their route is built and added to a context"]
pub struct Steps<H, B, C, W = Bare> {
    pub(crate) head: H,
    pub(crate) plan: Plan,
    pub(crate) chain: C,
    pub(crate) wrap: W,
    body: PhantomData<fn() -> B>,
}

/// The same steps and one more, `S`, which leaves a `T`.
pub type Next<H, B, C, W, S, T> = Steps<H, T, Then<C, <W as Wrap<B, T>>::Around<S>>>;

/// Marks the steps of a branch, which have no source of their own.
#[derive(Clone, Copy, Debug)]
pub struct Branch;

impl<H, B> Steps<H, B, Start> {
    pub(crate) fn new(head: H, plan: Plan) -> Self {
        Steps { head, plan, chain: Start, wrap: Bare, body: PhantomData }
    }
}

/// What is done with the exchange.
impl<H, B: Send + 'static, C, W> Steps<H, B, C, W> {
    /// Sends the exchange to a destination, and goes on with its answer as the body.
    #[track_caller]
    pub fn to<D: Destination<B>>(mut self, destination: D) -> Next<H, B, C, W, To<D>, D::Reply>
    where
        W: Wrap<B, D::Reply>,
    {
        self.plan.destination(&destination);
        self.step(To { destination, spot: Spot::here() })
    }

    /// Replaces the body by what `change` makes of it.
    pub fn transform<T, F>(self, change: F) -> Next<H, B, C, W, Transform<F>, T>
    where
        T: Send + 'static,
        F: Fn(B) -> T + Send + Sync + 'static,
        W: Wrap<B, T>,
    {
        self.step(Transform { change })
    }

    /// Drops exchanges for which `passes` returns `false`. That is not an error.
    pub fn filter<F>(self, passes: F) -> Next<H, B, C, W, Filter<F>, B>
    where
        F: Fn(&Exchange<B>) -> bool + Send + Sync + 'static,
        W: Wrap<B, B>,
    {
        self.step(Filter { passes })
    }

    /// Fails with RC5002 if `check` returns an error for the body.
    pub fn validate<F, E>(self, check: F) -> Next<H, B, C, W, Validate<F>, B>
    where
        F: Fn(&B) -> Result<(), E> + Send + Sync + 'static,
        E: Into<BoxError> + 'static,
        W: Wrap<B, B>,
    {
        self.step(Validate { check })
    }

    /// Takes one of several ways, all of which leave the same type of body.
    pub fn choice<T, F>(mut self, cases: F) -> Next<H, B, C, W, Choice<B, T>, T>
    where
        T: Send + 'static,
        F: FnOnce(Cases<B, T>) -> Choice<B, T>,
        W: Wrap<B, T>,
    {
        let mut choice = cases(Cases::new(std::mem::take(&mut self.plan)));
        self.plan = choice.take_plan();
        self.step(choice)
    }

    /// Splits the body into parts and takes each through steps of its own, one after the other. The new body is the
    /// list of results, in the order of the parts; dropped parts are left out. The first part that fails fails the
    /// step. See [`Steps::aggregate`].
    pub fn split<P, T, F, S, Q>(self, parts: F, steps: S) -> Next<H, B, C, W, Split<F, Q>, Vec<T>>
    where
        P: Send + 'static,
        T: Send + 'static,
        F: Fn(B) -> Vec<P> + Send + Sync + 'static,
        S: FnOnce(Steps<Branch, P, Start>) -> Steps<Branch, T, Q>,
        Q: Step<P, Out = T>,
        W: Wrap<B, Vec<T>>,
    {
        self.split_at_once(1, parts, steps)
    }

    /// Like [`Steps::split`], with up to `at_once` parts under way at the same time: 1 to 1,000.
    pub fn split_at_once<P, T, F, S, Q>(
        mut self,
        at_once: usize,
        parts: F,
        steps: S,
    ) -> Next<H, B, C, W, Split<F, Q>, Vec<T>>
    where
        P: Send + 'static,
        T: Send + 'static,
        F: Fn(B) -> Vec<P> + Send + Sync + 'static,
        S: FnOnce(Steps<Branch, P, Start>) -> Steps<Branch, T, Q>,
        Q: Step<P, Out = T>,
        W: Wrap<B, Vec<T>>,
    {
        let branch = steps(Steps::new(Branch, std::mem::take(&mut self.plan)));
        self.plan = branch.plan;
        self.plan.note(Split::<F, Q>::check(at_once));
        self.step(Split { parts, at_once, steps: branch.chain })
    }

    /// Takes copies of the exchange through several branches at the same time. The new body is the list of results,
    /// in the order of the branches; branches that drop their copy are left out. The first branch that fails fails
    /// the step. See [`Steps::aggregate`].
    pub fn multicast<T, F>(mut self, branches: F) -> Next<H, B, C, W, Multicast<B, T>, Vec<T>>
    where
        B: Clone,
        T: Send + 'static,
        F: FnOnce(Fan<B, T>) -> Fan<B, T>,
        W: Wrap<B, Vec<T>>,
    {
        let (multicast, plan) = branches(Fan::new(std::mem::take(&mut self.plan))).finish();
        self.plan = plan;
        self.step(multicast)
    }

    /// Sends a copy to a destination, waits until that is done, and goes on with the body unchanged. A failure is
    /// only told as an event. A tap is inside of every limit around it.
    #[track_caller]
    pub fn tap<D: Destination<B>>(mut self, destination: D) -> Next<H, B, C, W, Tap<D>, B>
    where
        B: Clone,
        W: Wrap<B, B>,
    {
        self.plan.destination(&destination);
        self.step(Tap { destination, spot: Spot::here() })
    }

    /// Sends a copy to a destination, and merges the answer into the body.
    #[track_caller]
    pub fn enrich<D, T, F>(mut self, destination: D, merge: F) -> Next<H, B, C, W, Enrich<D, F>, T>
    where
        B: Clone,
        D: Destination<B>,
        T: Send + 'static,
        F: Fn(B, D::Reply) -> T + Send + Sync + 'static,
        W: Wrap<B, T>,
    {
        self.plan.destination(&destination);
        self.step(Enrich { destination, merge, spot: Spot::here() })
    }

    /// Adds a step of your own.
    pub fn step<S: Step<B>>(self, step: S) -> Next<H, B, C, W, S, S::Out>
    where
        W: Wrap<B, S::Out>,
    {
        let Steps { head, plan, chain, wrap, .. } = self;
        let chain = Then { first: chain, second: wrap.around(step) };
        Steps { head, plan, chain, wrap: Bare, body: PhantomData }
    }
}

impl<H, P: Send + 'static, C, W> Steps<H, Vec<P>, C, W> {
    /// Merges the list that [`Steps::split`] or [`Steps::multicast`] left into one body.
    pub fn aggregate<T, F>(self, merge: F) -> Next<H, Vec<P>, C, W, Transform<F>, T>
    where
        T: Send + 'static,
        F: Fn(Vec<P>) -> T + Send + Sync + 'static,
        W: Wrap<Vec<P>, T>,
    {
        self.transform(merge)
    }
}

/// What stands around the next step, and around that alone. Several nest: the first declared is the outermost.
impl<H, B: Send + 'static, C, W> Steps<H, B, C, W> {
    /// Handles errors of the next step: the handler returns another body, or an error after all.
    pub fn error<T, F, E>(
        self,
        handler: impl Fn(Failure) -> F + Send + Sync + 'static,
    ) -> Steps<H, B, C, Stacked<W, Caught<T>>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        self.wrapped(Caught { handler: Handler::new(handler), scope: Scope::Step, inner: () })
    }

    /// Waits for `span` before the next step.
    pub fn delay(self, span: Duration) -> Steps<H, B, C, Stacked<W, Delayed>> {
        self.wrapped(Delayed { span, scope: Scope::Step, inner: () })
    }

    /// Limits how often the next step may start.
    pub fn throttle(mut self, throttle: Throttle<B>) -> Steps<H, B, C, Stacked<W, Throttled<B>>> {
        let limiters = vec![self.plan.gate(throttle.split(Scope::Step))];
        self.wrapped(Throttled { limiters, inner: () })
    }

    /// Fails with RC5025, without trying the next step, while that keeps failing.
    pub fn circuit_breaker<T>(mut self, breaker: CircuitBreaker<T>) -> Steps<H, B, C, Stacked<W, Broken<T>>> {
        let index = self.plan.circuit(&breaker);
        self.wrapped(breaker.wrapper(index, Scope::Step))
    }

    /// Tries the next step again after an error.
    pub fn retry(mut self, retry: Retry) -> Steps<H, B, C, Stacked<W, Retried<B>>>
    where
        B: Clone,
    {
        self.plan.note(retry.check());
        self.wrapped(Retried { retry, scope: Scope::Step, copy: Clone::clone, inner: () })
    }

    /// Limits how long the next step may take, including all wrappers between this one and the step.
    pub fn timeout(mut self, after: Duration) -> Steps<H, B, C, Stacked<W, Timed>> {
        self.plan.note(wrap::check_timeout(after));
        self.wrapped(Timed { after, scope: Scope::Step, inner: () })
    }

    /// Limits how many exchanges may be in the next step at once.
    pub fn concurrency(mut self, concurrency: Concurrency<B>) -> Steps<H, B, C, Stacked<W, Bounded<B>>> {
        let limiters = vec![self.plan.gate(concurrency.split(Scope::Step))];
        self.wrapped(Bounded { limiters, inner: () })
    }

    /// Remembers the outcomes of the next step.
    pub fn cache<T>(mut self, cache: Cache<B>) -> Steps<H, B, C, Stacked<W, Cached<B, T>>>
    where
        T: Clone + Send + Sync + 'static,
    {
        let index = self.plan.cache::<B, T>(&cache);
        self.wrapped(cache.wrapper(index, Scope::Step))
    }

    fn wrapped<N>(self, inner: N) -> Steps<H, B, C, Stacked<W, N>> {
        let Steps { head, plan, chain, wrap, body } = self;
        Steps { head, plan, chain, wrap: Stacked { outer: wrap, inner }, body }
    }
}

impl<H, B, C, W: Complete> fmt::Debug for Steps<H, B, C, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steps").field("route", &self.plan.id).finish_non_exhaustive()
    }
}
