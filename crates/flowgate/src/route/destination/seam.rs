//! The seam between a route and what it sends to.

use std::future::Future;

use crate::route::{cx::Cx, error::Error, exchange::Exchange, plan::Link, step::Outcome};

/// Where `to`, `tap` and `enrich` send an exchange.
///
/// Cancel safety: as [`Step`](super::super::Step).
pub trait Destination<B>: Send + Sync + 'static {
    /// The body of the answer; if there is nothing to say, the body that was sent, so that later steps can go on with
    /// it.
    type Reply: Send + 'static;

    /// Sends it.
    fn send<'a>(
        &'a self,
        exchange: Exchange<B>,
        cx: Cx<'a>,
    ) -> impl Future<Output = Outcome<Self::Reply>> + Send + 'a;

    /// Checks the options; `build` reports the error.
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
