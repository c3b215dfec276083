//! A route in a context: its state, shared by all its exchanges.
//!
//! Owns the gates, breakers and caches of one route in one context. The route's definition has none: registered into two
//! contexts it gets two sites, which never take each other's slots.

use std::{
    any::Any,
    cell::Cell,
    fmt,
    sync::{Arc, Weak},
};

use flowgate_core::What as GateWhat;

use super::{
    bus::Bus,
    context::Shared,
    event::{AtGate, Event, What},
    exchange::ExchangeId,
    flight::Flights,
    limiter::{Door, GateSpec, Kind},
    timer::Timers,
    wrap::Circuit,
};
use crate::{chance::Random, gate};

/// The state of one route in one context.
pub(crate) struct Site {
    pub(crate) route: Arc<str>,
    pub(crate) timers: &'static Timers,
    pub(crate) bus: Arc<Bus>,
    pub(crate) random: Random,
    pub(crate) doors: Box<[(GateSpec, Door)]>,
    pub(crate) circuits: Box<[Circuit]>,
    pub(crate) caches: Box<[Box<dyn Any + Send + Sync>]>,
    pub(crate) context: Weak<Shared>,
    pub(crate) flights: Flights,
}

impl Site {
    #[inline]
    pub(crate) fn tell(&self, exchange: Option<ExchangeId>, what: impl FnOnce() -> What) {
        if self.bus.is_on() {
            self.bus.tell(&Event { route: Arc::clone(&self.route), exchange, what: what() });
        }
    }

    /// From now on what happens at the gates is told on the context's bus.
    pub(crate) fn relay_gates(&self) {
        for (spec, door) in &self.doors {
            door.relay(Box::new(Relay {
                route: Arc::clone(&self.route),
                bus: Arc::clone(&self.bus),
                label: spec.label.as_deref().map(Arc::from),
                kind: spec.kind,
                scope: spec.scope,
            }));
        }
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").field("route", &self.route).finish_non_exhaustive()
    }
}

/// Makes route events of a gate's.
struct Relay {
    route: Arc<str>,
    bus: Arc<Bus>,
    label: Option<Arc<str>>,
    kind: Kind,
    scope: super::event::Scope,
}

impl gate::Listener for Relay {
    fn on_event(&self, event: &gate::Event<'_>) {
        let (scope, label) = (self.scope, self.label.clone());
        let at = AtGate { scope, label, key: event.key.cloned(), what: event.what };
        let what = match self.kind {
            Kind::Concurrency => What::Concurrency(at),
            // A start is spent for good: that its pass came back at once says nothing.
            Kind::Throttle if matches!(event.what, GateWhat::Released { .. }) => return,
            Kind::Throttle => What::Throttle(at),
        };
        self.bus.tell(&Event { route: Arc::clone(&self.route), exchange: current(), what });
    }
}

thread_local! {
    static CURRENT: Cell<Option<ExchangeId>> = const { Cell::new(None) };
}

/// The exchange that is being polled on this thread: gates know no exchanges, and tell where they are told.
fn current() -> Option<ExchangeId> {
    CURRENT.with(Cell::get)
}

/// Does something for an exchange.
pub(crate) fn as_current<R>(exchange: ExchangeId, work: impl FnOnce() -> R) -> R {
    struct Restore(Option<ExchangeId>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.with(|current| current.set(self.0));
        }
    }
    let _restore = Restore(CURRENT.with(|current| current.replace(Some(exchange))));
    work()
}
