//! Where an exchange is.
//!
//! Owns what a step may know and do beside its exchange: wait, tell, and find the state of its route.

use std::time::Duration;

use flowgate_core::{Spot, Tick};

use super::{event::What, exchange::ExchangeId, site::Site, timer::Sleep};

/// Where an exchange is: in which route of which context, and where it came from.
#[derive(Clone, Copy)]
pub struct Cx<'a> {
    pub(crate) site: &'a Site,
    pub(crate) exchange: ExchangeId,
    /// The place that sent the exchange into this route.
    pub(crate) sent_at: Spot,
}

impl<'a> Cx<'a> {
    /// Returns the route's id.
    pub fn route(&self) -> &'a str {
        &self.site.route
    }

    /// Returns the time, by the context's clock.
    pub fn now(&self) -> Tick {
        self.site.timers.now()
    }

    /// Waits for `span`, by the context's clock.
    ///
    /// Cancel safety: dropped, nothing is left.
    pub fn sleep(&self, span: Duration) -> impl Future<Output = ()> + Send + use<> {
        self.sleep_for(span)
    }

    pub(crate) fn sleep_for(&self, span: Duration) -> Sleep {
        self.site.timers.sleep(span)
    }

    /// Tells whoever listens.
    #[inline]
    pub(crate) fn tell(&self, what: impl FnOnce() -> What) {
        self.site.tell(Some(self.exchange), what);
    }
}
