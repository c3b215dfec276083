//! A step of a route, and how steps become a chain.
//!
//! Owns the trait that operations and wrappers implement. Chains are plain types, so that a step costs a call and no
//! allocation; only where the number of wrappers is known at run time alone are they put behind a pointer ([`Erased`]).

use std::{
    fmt,
    future::{Future, ready},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use flowgate_core::Code;
use pin_project_lite::pin_project;

use super::{cx::Cx, error::Error, exchange::Exchange};

/// The outcome of a step: the exchange with its next body, or the end of its way.
pub type Outcome<T> = Result<Exchange<T>, Halt>;

/// Why an exchange goes no further.
#[derive(Debug)]
pub enum Halt {
    /// A filter dropped it. It has ended, and nothing is wrong.
    Dropped,
    /// It failed.
    Failed(Error),
}

impl Halt {
    /// Returns the error, unless it was dropped.
    pub fn error(&self) -> Option<&Error> {
        match self {
            Halt::Dropped => None,
            Halt::Failed(error) => Some(error),
        }
    }

    /// Returns the error's code, unless it was dropped.
    pub fn code(&self) -> Option<Code> {
        self.error().map(Error::code)
    }
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Halt::Dropped => f.write_str("dropped by a filter"),
            Halt::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Halt {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error().and_then(std::error::Error::source)
    }
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Halt::Failed(error)
    }
}

/// Something that is done with an exchange. Implement it for an operation of your own, and use it with
/// [`Steps::step`](super::Steps::step).
///
/// Cancel safety: the future is dropped at any await when the exchange is cancelled or its time is over; what it holds has to
/// come back by being dropped.
pub trait Step<I>: Send + Sync + 'static {
    /// The body that it leaves.
    type Out: Send + 'static;

    /// Does it.
    fn run<'a>(
        &'a self,
        exchange: Exchange<I>,
        cx: Cx<'a>,
    ) -> impl Future<Output = Outcome<Self::Out>> + Send + 'a;

    /// What it leaves, if that is known without a future; else the exchange back.
    #[doc(hidden)]
    #[inline]
    fn at_once(&self, exchange: Exchange<I>) -> Result<Exchange<Self::Out>, Exchange<I>> {
        Err(exchange)
    }
}

/// The start of a chain, where nothing has been done yet.
#[derive(Clone, Copy, Debug)]
pub struct Start;

impl<I: Send + 'static> Step<I> for Start {
    type Out = I;

    #[inline]
    fn run<'a>(&'a self, exchange: Exchange<I>, _: Cx<'a>) -> impl Future<Output = Outcome<I>> + Send + 'a {
        ready(Ok(exchange))
    }

    #[inline]
    fn at_once(&self, exchange: Exchange<I>) -> Result<Exchange<I>, Exchange<I>> {
        Ok(exchange)
    }
}

/// One step after another.
#[derive(Clone, Copy, Debug)]
pub struct Then<A, B> {
    pub(crate) first: A,
    pub(crate) second: B,
}

impl<I, A, B> Step<I> for Then<A, B>
where
    I: Send + 'static,
    A: Step<I>,
    B: Step<A::Out>,
{
    type Out = B::Out;

    #[inline]
    fn run<'a>(
        &'a self,
        exchange: Exchange<I>,
        cx: Cx<'a>,
    ) -> impl Future<Output = Outcome<B::Out>> + Send + 'a {
        let next = move |exchange| self.second.run(exchange, cx);
        match self.first.at_once(exchange) {
            Ok(exchange) => InTurn::Second { second: next(exchange) },
            Err(exchange) => InTurn::First { first: self.first.run(exchange, cx), next },
        }
    }
}

pin_project! {
    /// Written out by hand: an `async fn` keeps its arguments twice, and a step stands in memory for as long as it waits.
    #[project = Turn]
    enum InTurn<A, N, B> {
        First { #[pin] first: A, next: N },
        Second { #[pin] second: B },
        Done,
    }
}

impl<A, N, B, T, U> Future for InTurn<A, N, B>
where
    A: Future<Output = Outcome<T>>,
    N: Fn(Exchange<T>) -> B + Copy,
    B: Future<Output = Outcome<U>>,
{
    type Output = Outcome<U>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<U>> {
        loop {
            match self.as_mut().project() {
                Turn::First { first, next } => match std::task::ready!(first.poll(cx)) {
                    Ok(exchange) => {
                        let next = *next;
                        // All that the first step held has come back before the next one begins.
                        self.set(InTurn::Done);
                        let second = next(exchange);
                        self.set(InTurn::Second { second });
                    }
                    Err(halt) => {
                        self.set(InTurn::Done);
                        return Poll::Ready(Err(halt));
                    }
                },
                Turn::Second { second } => return second.poll(cx),
                Turn::Done => panic!("a step was polled after it was done"),
            }
        }
    }
}

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A step behind a pointer. Running it takes one allocation.
pub(crate) struct Erased<I, O>(Arc<dyn DynStep<I, O>>);

impl<I, O> Clone for Erased<I, O> {
    fn clone(&self) -> Self {
        Erased(Arc::clone(&self.0))
    }
}

trait DynStep<I, O>: Send + Sync {
    fn run_boxed<'a>(&'a self, exchange: Exchange<I>, cx: Cx<'a>) -> BoxFuture<'a, Outcome<O>>;
}

impl<I: Send + 'static, S: Step<I>> DynStep<I, S::Out> for S {
    fn run_boxed<'a>(&'a self, exchange: Exchange<I>, cx: Cx<'a>) -> BoxFuture<'a, Outcome<S::Out>> {
        // The place first, and then what comes there: it is large, and is made where it stays.
        let work = Box::write(Box::new_uninit(), self.run(exchange, cx));
        Box::into_pin(work)
    }
}

impl<I: Send + 'static, O: Send + 'static> Erased<I, O> {
    pub(crate) fn new(step: impl Step<I, Out = O>) -> Self {
        Erased(Arc::new(step))
    }

    pub(crate) fn boxed<'a>(&'a self, exchange: Exchange<I>, cx: Cx<'a>) -> BoxFuture<'a, Outcome<O>> {
        self.0.run_boxed(exchange, cx)
    }
}

impl<I: Send + 'static, O: Send + 'static> Step<I> for Erased<I, O> {
    type Out = O;

    fn run<'a>(&'a self, exchange: Exchange<I>, cx: Cx<'a>) -> impl Future<Output = Outcome<O>> + Send + 'a {
        self.boxed(exchange, cx)
    }
}
