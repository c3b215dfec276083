//! The seam between a route and what feeds it.

use std::{fmt, future::Future};

use crate::route::{error::Error, intake::Intake, step::BoxFuture};

/// Where the exchanges of a route come from. `O` is the body that the route answers with.
///
/// A durable queue can implement this outside of the crate: its feed waits for a place ([`Intake::place`]), claims a
/// task, and launches the exchange, whose outcome settles the claim. [`Intake::limits`] says how many the route runs at
/// once: with no more claims than that, each finds a slot free, and there is no second line in memory.
pub trait Source<O>: Send + Sync + 'static {
    /// The body that it gives.
    type Body: Send + 'static;

    /// Checks the options; `build` reports the error.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Opens the source. Set up here what is ready at once, such as an address to call, and leave everything that
    /// goes on to the feed: it begins when all routes are there.
    fn open(&self, intake: Intake<Self::Body, O>) -> Result<Feed, Error>;
}

/// The part of a source that goes on for as long as its context runs. It is dropped, at any await, when intake stops.
#[must_use = "a feed does nothing until a context runs it"]
pub struct Feed(pub(crate) Option<BoxFuture<'static, Result<(), Error>>>);

impl Feed {
    /// Creates a feed that runs until the source has ended.
    pub fn new(feed: impl Future<Output = Result<(), Error>> + Send + 'static) -> Self {
        Feed(Some(Box::pin(feed)))
    }

    /// For a source that does nothing by itself: exchanges come when somebody calls.
    pub fn none() -> Self {
        Feed(None)
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Feed").field(&self.0.is_some()).finish()
    }
}

/// A source behind a pointer.
pub(crate) struct Opener<B, O>(OpenFn<B, O>);

type OpenFn<B, O> = Box<dyn Fn(Intake<B, O>) -> Result<Feed, Error> + Send + Sync>;

impl<B: Send + 'static, O> Opener<B, O> {
    pub(crate) fn new(source: impl Source<O, Body = B>) -> Self {
        Opener(Box::new(move |intake| source.open(intake)))
    }

    pub(crate) fn open(&self, intake: Intake<B, O>) -> Result<Feed, Error> {
        (self.0)(intake)
    }
}
