//! The seam between a route and what it sends to.

use std::future::Future;

use crate::route::{cx::Cx, error::Error, exchange::Exchange, plan::Link, step::Outcome};

/// Where an exchange is sent, by `to`, `tap` and `enrich`.
///
/// Cancel safety: as [`Step`](super::super::Step).
pub trait Destination<B>: Send + Sync + 'static {
    /// What it answers with; where there is nothing to say, the body that it was sent, so that steps after it can go on.
    type Reply: Send + 'static;

    /// Sends it.
    fn send<'a>(
        &'a self,
        exchange: Exchange<B>,
        cx: Cx<'a>,
    ) -> impl Future<Output = Outcome<Self::Reply>> + Send + 'a;

    /// Checks the options, for `build` to tell.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// The route of the same context that it is, where it is one.
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "only destinations of this crate have something to say here")]
    fn link(&self) -> Option<Link> {
        None
    }
}
