//! How a shared gate is built.
//!
//! Owns the options that are not limits, with the words of gates in the process where they are the same; the
//! others go to [`LimitsBuilder`]. `start` tells the first mistake, before anything is asked of the store.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use flowgate_core::{Discipline, Ident, Limits, LimitsBuilder, OptionError, Period, Tick};

use super::{
    book::Shared,
    document::Declared,
    handle::Gate,
    service::Service,
    store::{self, StoreError},
};
use crate::gate::{Keyed, Single};

const DEFAULT_MAX_KEYS: u32 = 10_000;
const MOST_KEYS: u32 = 1_000_000;
const DEFAULT_LEASE: Duration = Duration::from_secs(15);
/// Below this a busy process would lose its lease; above it the slots of a dead one would be gone for too long.
const LEASES: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);

/// What happens to entries while the store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnOutage {
    /// They are refused (`unreachable`), so that the bound holds whatever happens.
    #[default]
    Refuse,
    /// They are let in and not counted: work goes on, and nothing bounds it.
    /// [`Look::uncounted`](super::Look::uncounted) says how many.
    Admit,
}

/// Why a shared gate could not be started, or its limits not be set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An option is wrong.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Collects the options of a shared [`Gate`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `start`"]
pub struct GateBuilder<K = Single> {
    url: String,
    limits: LimitsBuilder,
    ident: Ident,
    lease: Duration,
    max_keys: u32,
    on_outage: OnOutage,
    kind: PhantomData<K>,
}

/// Without the address: it may have a password.
impl<K> fmt::Debug for GateBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateBuilder")
            .field("limits", &self.limits)
            .field("ident", &self.ident)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

impl GateBuilder {
    pub(crate) fn new(url: &str) -> Self {
        GateBuilder {
            url: url.to_owned(),
            limits: Limits::builder(),
            ident: Ident { gate: "gate".to_owned(), ..Ident::default() },
            lease: DEFAULT_LEASE,
            max_keys: DEFAULT_MAX_KEYS,
            on_outage: OnOutage::Refuse,
            kind: PhantomData,
        }
    }

    /// Gives each key a lane of its own, with these limits.
    pub fn keyed(self) -> GateBuilder<Keyed> {
        let GateBuilder { url, limits, ident, lease, max_keys, on_outage, .. } = self;
        GateBuilder { url, limits, ident, lease, max_keys, on_outage, kind: PhantomData }
    }
}

impl GateBuilder<Keyed> {
    /// Limits how many keys this process keeps in mind at once: 1 to 1,000,000, default 10,000. If all are in use, a
    /// new key is refused (`keys-full`).
    pub fn max_keys(mut self, max_keys: u32) -> Self {
        self.max_keys = max_keys;
        self
    }
}

impl<K> GateBuilder<K> {
    /// Allows at most `max` in flight at once (per key) in the whole fleet: 1 to 1,000,000,000.
    pub fn max(mut self, max: u32) -> Self {
        self.limits = self.limits.max(max);
        self
    }

    /// Allows at most `rate` starts (per key) per period in the whole fleet, counted from the period's first start.
    /// The period is text like `"1m"`, a number of milliseconds, or a [`Duration`].
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

    /// Spreads the rate evenly. `burst` overrides it.
    pub fn smooth(mut self) -> Self {
        self.limits = self.limits.smooth();
        self
    }

    /// Limits how many of the whole fleet may wait (per key). Default: any number; each wait can be cancelled.
    pub fn queue(mut self, max_queue: u32) -> Self {
        self.limits = self.limits.queue(max_queue);
        self
    }

    /// Limits how long each may wait. Default: as long as it takes.
    pub fn timeout(mut self, queue_timeout: Duration) -> Self {
        self.limits = self.limits.timeout(queue_timeout);
        self
    }

    /// Refuses whoever cannot start at once, instead of letting them wait.
    pub fn reject(mut self) -> Self {
        self.limits = self.limits.reject();
        self
    }

    /// Names the gate, for refusals and in the store: all gates of one name on one store are the same gate. Default:
    /// `gate`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.ident.gate = name.into();
        self
    }

    /// Sets how long a process keeps its slots without renewing its lease: 100 ms to an hour, default 15 s. It renews
    /// three times as often. The slots of a killed process are free after this time.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets what happens to entries while the store does not answer. Default: they are refused.
    pub fn on_outage(mut self, on_outage: OnOutage) -> Self {
        self.on_outage = on_outage;
        self
    }

    /// Joins the fleet. From then on a task of the current tokio runtime talks to the store, until the gate is
    /// closed, or all its handles and passes are gone.
    ///
    /// If the fleet has other limits, these replace them: the limits that were set last apply to all.
    ///
    /// Cancel safety: dropped, the process has not joined, or its lease runs out.
    pub async fn start(self) -> Result<Gate<K>, StartError> {
        let limits = checked(self.limits.build()?)?;
        if !(1..=MOST_KEYS).contains(&self.max_keys) {
            let accepted = format!("an integer from 1 to {MOST_KEYS}");
            return Err(OptionError::new("max_keys", self.max_keys, accepted).into());
        }
        if !LEASES.contains(&self.lease) {
            let accepted = "a duration from 100 ms to an hour";
            return Err(OptionError::new("lease", format_args!("{:?}", self.lease), accepted).into());
        }
        if self.ident.gate.is_empty() || self.ident.gate.len() > 200 || self.ident.gate.contains('\0') {
            let accepted = "text of 1 to 200 bytes without `\\0`";
            return Err(OptionError::new("name", format_args!("{:?}", self.ident.gate), accepted).into());
        }
        let store = store::open(&self.url, &self.ident.gate)?;
        let declared = Declared { at: Tick::ZERO, limits, opens: Tick::ZERO };
        let shared = Shared::new(self.ident, self.on_outage, self.max_keys as usize, declared);
        let service = Service::start(Arc::new(shared), store, self.lease).await?;
        Ok(Gate::new(service))
    }
}

/// Limits that a fleet can have.
pub(crate) fn checked(limits: Limits) -> Result<Limits, OptionError> {
    if let Some(rule) = limits.adaptive() {
        return Err(OptionError::new(
            "adaptive",
            rule,
            "none for a fleet, because each process sees only its own part",
        ));
    }
    match limits.discipline() {
        // What nobody could read again would shut the gate for all.
        Discipline::Fifo if Declared::keeps(limits) => Ok(limits),
        Discipline::Fifo => {
            Err(OptionError::new("limits", limits, "limits that a store gives back unchanged"))
        }
        codel => Err(OptionError::new("codel", codel, "none for a fleet, whose line is first in, first out")),
    }
}

#[cfg(test)]
mod tests {
    use crate::shared::Gate;

    #[test]
    fn s2_a_builder_does_not_tell_where_its_store_is_nor_its_password() {
        // Seen to fail: with the address among the fields, its password was told.
        let builder = Gate::builder("redis://app:secret@cache:6379/0").name("jobs").max(1);
        for told in [format!("{builder:?}"), format!("{:?}", builder.keyed())] {
            assert!(told.contains("jobs") && !told.contains("secret") && !told.contains("cache"), "{told}");
        }
    }
}
