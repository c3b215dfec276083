//! The seam between a route and what feeds it.

use std::{fmt, future::Future};

use crate::route::{error::Error, intake::Intake, step::BoxFuture};

/// Where the exchanges of a route come from. `O` is what the route answers with.
///
/// A source that has to be claimed from (a durable queue) implements this from outside: its feed waits for a place
/// ([`Intake::place`]), claims, and launches the exchange as [`admitted`](super::super::Exchange::admitted), with the claim
/// settled by what came of it. Then the pass at the route *is* the claim's own slot, and no second line stands in memory;
/// [`Intake::limits`] says how many the route wants at once.
pub trait Source<O>: Send + Sync + 'static {
    /// What it gives.
    type Body: Send + 'static;

    /// Checks the options, for `build` to tell.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Begins. Set up here what is ready at once, such as an address to call; the feed is the part that goes
    /// on.
    fn open(&self, intake: Intake<Self::Body, O>) -> Result<Feed, Error>;
}

/// What a source does for as long as its context runs. It is dropped at any await when intake stops.
#[must_use = "a feed does nothing until a context runs it"]
pub struct Feed(pub(crate) Option<BoxFuture<'static, Result<(), Error>>>);

impl Feed {
    /// Goes on until the source is spent.
    pub fn new(feed: impl Future<Output = Result<(), Error>> + Send + 'static) -> Self {
        Feed(Some(Box::pin(feed)))
    }

    /// Nothing goes on: exchanges come when somebody calls.
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
