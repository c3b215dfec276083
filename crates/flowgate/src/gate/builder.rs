//! How a gate is built.
//!
//! Owns the options of a gate that are not limits, and hands the others to [`LimitsBuilder`]. `build` tells
//! the first mistake, before anything exists.

use std::{marker::PhantomData, sync::Arc, thread, time::Duration};

use flowgate_core::{Adaptive, Ident, Limits, LimitsBuilder, OptionError, Period};

use super::{
    bus::{Bus, Listener},
    engine::Engine,
    handle::{Gate, Keyed, Single},
    meta::Meta,
    quota::Quota,
};
use crate::clock::{Clock, Time};

const DEFAULT_MAX_KEYS: u32 = 10_000;
const MOST_KEYS: u32 = 1_000_000;
const MOST_DESKS: u32 = 64;
/// A desk for fewer keys than this is not worth its memory; in a model, two keys make two desks.
const KEYS_PER_DESK: u32 = if cfg!(loom) { 1 } else { 128 };

/// Collects the options of a [`Gate`].
#[must_use = "a builder does nothing until `build`"]
pub struct GateBuilder<K = Single> {
    limits: LimitsBuilder,
    max_keys: u32,
    ident: Ident,
    listeners: Vec<Box<dyn Listener>>,
    time: Option<Arc<dyn Clock>>,
    kind: PhantomData<K>,
}

impl GateBuilder {
    pub(crate) fn new() -> Self {
        GateBuilder {
            limits: Limits::builder(),
            max_keys: DEFAULT_MAX_KEYS,
            ident: Ident { gate: "gate".to_owned(), ..Ident::default() },
            listeners: Vec::new(),
            time: None,
            kind: PhantomData,
        }
    }

    /// Gives each key a lane of its own, with these limits.
    pub fn keyed(self) -> GateBuilder<Keyed> {
        let GateBuilder { limits, max_keys, ident, listeners, time, .. } = self;
        GateBuilder { limits, max_keys, ident, listeners, time, kind: PhantomData }
    }

    /// Builds the gate, or returns the first option that is wrong.
    pub fn build(self) -> Result<Gate, OptionError> {
        let (meta, limits) = self.meta(1)?;
        Ok(Gate::new(Engine::new(meta, limits, None)))
    }
}

impl GateBuilder<Keyed> {
    /// Limits how many lanes there may be (keys in use, and idle keys whose rate is not yet full again): 1 to
    /// 1,000,000, default 10,000. When there are as many, the least recently used idle lane makes room; if all are in
    /// use, a new key is refused (`keys-full`).
    pub fn max_keys(mut self, max_keys: u32) -> Self {
        self.max_keys = max_keys;
        self
    }

    /// Builds the gate, or returns the first option that is wrong.
    pub fn build(self) -> Result<Gate<Keyed>, OptionError> {
        if !(1..=MOST_KEYS).contains(&self.max_keys) {
            return Err(OptionError::new(
                "max_keys",
                self.max_keys,
                format!("an integer from 1 to {MOST_KEYS}"),
            ));
        }
        let desks = desks_for(self.max_keys);
        let (meta, limits) = self.meta(desks)?;
        check_keyed(&limits)?;
        Ok(Gate::new(Engine::new(meta, limits, Some(desks))))
    }
}

impl<K> GateBuilder<K> {
    /// Allows at most `max` in flight at once (per key): 1 to 1,000,000,000.
    pub fn max(mut self, max: u32) -> Self {
        self.limits = self.limits.max(max);
        self
    }

    /// Lets a rule adjust `max` between its floor and the `max` set here, by how long work takes and how it ends. Off
    /// by default, and not available with keys, because an idle lane remembers nothing.
    pub fn adaptive(mut self, rule: Adaptive) -> Self {
        self.limits = self.limits.adaptive(rule);
        self
    }

    /// Allows at most `rate` starts (per key) per period, counted from the period's first start. The period is text
    /// like `"1m"`, a number of milliseconds, or a [`Duration`].
    pub fn rate<P>(mut self, rate: u32, period: P) -> Self
    where
        P: TryInto<Period>,
        OptionError: From<P::Error>,
    {
        self.limits = self.limits.rate(rate, period);
        self
    }

    /// Makes the rate a token bucket: it refills steadily, and at most `burst` may start at once.
    pub fn burst(mut self, burst: u32) -> Self {
        self.limits = self.limits.burst(burst);
        self
    }

    /// Spreads the rate evenly: in any stretch of a period's length at most `rate` start (up to 100 a second; above
    /// that, plus as many as fit into 10 ms). `burst` overrides it.
    pub fn smooth(mut self) -> Self {
        self.limits = self.limits.smooth();
        self
    }

    /// Limits how many may wait (per key): 1 to 1,000,000,000. Default: any number; each wait can be cancelled.
    pub fn queue(mut self, max_queue: u32) -> Self {
        self.limits = self.limits.queue(max_queue);
        self
    }

    /// Limits how long each may wait. Default: as long as it takes.
    pub fn timeout(mut self, queue_timeout: Duration) -> Self {
        self.limits = self.limits.timeout(queue_timeout);
        self
    }

    /// Serves the line (per key) by CoDel, newest first under overload. Default: always first in, first out.
    ///
    /// Once the line has not been empty for a whole `interval`, a freed slot goes to the newest, and whoever has
    /// waited for `target` is refused (`queue-timeout`), until the line has been empty again. Before that the line is
    /// first in, first out, and nobody waits longer than `interval`. Time during a pause, or while the rate holds the
    /// line back, does not count. `target` has to be above zero and `interval` from `target` to 366 days; `max` is
    /// required, and `reject` excluded.
    pub fn codel(mut self, target: Duration, interval: Duration) -> Self {
        self.limits = self.limits.codel(target, interval);
        self
    }

    /// Refuses whoever cannot start at once, instead of letting them wait.
    pub fn reject(mut self) -> Self {
        self.limits = self.limits.reject();
        self
    }

    /// Names the gate, for refusals and events. Default: `gate`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.ident.gate = name.into();
        self
    }

    /// Sets a label that tells this gate from others of the same name, in refusals and events.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.ident.label = Some(label.into());
        self
    }

    /// Sets what the gate covers, for events; a route, for example, says `route` or `step`.
    pub fn scope(mut self, scope: impl Into<String>) -> Self {
        self.ident.scope = Some(scope.into());
        self
    }

    /// Adds a listener, which is called for every event of the gate on the thread where it happens. Several may be
    /// added.
    pub fn listener(mut self, listener: impl Listener) -> Self {
        self.listeners.push(Box::new(listener));
        self
    }

    /// Replaces the system's clock, so that tests can move time by hand.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.time = Some(clock);
        self
    }

    /// All limits at once, in place of those set so far.
    #[cfg(feature = "route")]
    pub(crate) fn limits(mut self, limits: LimitsBuilder) -> Self {
        self.limits = limits;
        self
    }

    fn meta(self, desks: u32) -> Result<(Meta, Limits), OptionError> {
        let limits = self.limits.build()?;
        let time = self.time.map_or_else(Time::system, Time::Given);
        let meta = Meta::new(self.ident, time, Bus::new(self.listeners), Quota::new(self.max_keys, desks));
        Ok((meta, limits))
    }
}

/// A rule that learns needs something to remember by, and idle lanes keep no state.
pub(crate) fn check_keyed(limits: &Limits) -> Result<(), OptionError> {
    match limits.adaptive() {
        Some(rule) => {
            Err(OptionError::new("adaptive", rule, "only without keys, because an idle lane keeps no state"))
        }
        None => Ok(()),
    }
}

/// A power of two: sixteen for each processor, so that two threads rarely want the same, as far as there are keys for them.
fn desks_for(max_keys: u32) -> u32 {
    let processors =
        thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(MOST_DESKS));
    let wanted = (processors.saturating_mul(16)).min(max_keys / KEYS_PER_DESK).clamp(1, MOST_DESKS);
    if wanted.is_power_of_two() { wanted } else { wanted.next_power_of_two() / 2 }
}

impl<K> std::fmt::Debug for GateBuilder<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GateBuilder")
            .field("ident", &self.ident)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
