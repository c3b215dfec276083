//! How many exchanges run at once.
//!
//! Owns the options of `concurrency` and the step that takes its passes. The slots and the line are a gate's.

use std::{fmt, future::Future, time::Duration};

use flowgate_core::{Limits, LimitsBuilder};

use super::{bound::Bound, stack::Wrap};
use crate::route::{
    cx::Cx,
    error::BoxError,
    event::Scope,
    exchange::Exchange,
    limiter::{GateSpec, KeyFn, Kind, Limiter},
    step::{Outcome, Step},
};

/// The options of `concurrency`: how many exchanges may run at once.
///
/// ```
/// use flowgate::route::{Concurrency, Exchange};
///
/// struct Order { tenant: String }
///
/// let each: Concurrency<Order> = Concurrency::max(2)
///     .max_queue(50)
///     .key(|exchange: &Exchange<Order>| exchange.body.tenant.clone())
///     .label("per tenant");
/// ```
#[must_use = "options do nothing until a route has them"]
pub struct Concurrency<B> {
    limits: LimitsBuilder,
    key: Option<KeyFn<B>>,
    max_keys: Option<u32>,
    label: Option<String>,
}

impl<B> Concurrency<B> {
    /// Allows at most `max` at once (per key): 1 to 1,000,000,000. Any number of others may wait in line, first in,
    /// first out.
    pub fn max(max: u32) -> Self {
        Concurrency { limits: Limits::builder().max(max), key: None, max_keys: None, label: None }
    }

    /// Fails with RC5026 (`busy`) instead of waiting if no slot is free.
    pub fn reject(mut self) -> Self {
        self.limits = self.limits.reject();
        self
    }

    /// Limits how many exchanges may wait (per key): 1 to 1,000,000,000. The next one fails with RC5026
    /// (`queue-full`). Default: any number.
    pub fn max_queue(mut self, max_queue: u32) -> Self {
        self.limits = self.limits.queue(max_queue);
        self
    }

    /// Limits how long an exchange may wait: RC5026 (`queue-timeout`). Default: as long as it takes.
    pub fn queue_timeout(mut self, queue_timeout: Duration) -> Self {
        self.limits = self.limits.timeout(queue_timeout);
        self
    }

    /// Gives each key a pool of its own. The function is called once per exchange.
    pub fn key<K: Into<String>>(self, key: impl Fn(&Exchange<B>) -> K + Send + Sync + 'static) -> Self {
        self.try_key(move |exchange| Ok::<_, BoxError>(key(exchange)))
    }

    /// Like [`key`](Self::key), with a function that may fail. Then the exchange fails with RC5003, and no slot is
    /// touched.
    pub fn try_key<K: Into<String>, E: Into<BoxError>>(
        mut self,
        key: impl Fn(&Exchange<B>) -> Result<K, E> + Send + Sync + 'static,
    ) -> Self {
        self.key =
            Some(std::sync::Arc::new(move |exchange| key(exchange).map(Into::into).map_err(Into::into)));
        self
    }

    /// Limits how many keys may be in use at once: 1 to 1,000,000, default 10,000. One more fails with RC5026
    /// (`keys-full`).
    pub fn max_keys(mut self, max_keys: u32) -> Self {
        self.max_keys = Some(max_keys);
        self
    }

    /// Sets a label that tells this limit from others, in events and errors.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// The gate that is wanted, and the way to its key.
    pub(crate) fn split(self, scope: Scope) -> (GateSpec, Option<KeyFn<B>>) {
        let Concurrency { limits, key, max_keys, label } = self;
        (GateSpec { kind: Kind::Concurrency, scope, label, limits, is_keyed: key.is_some(), max_keys }, key)
    }
}

impl<B> fmt::Debug for Concurrency<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Concurrency").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// A step of which only so many run at once. Several gates nest: the first is the outermost.
#[derive(Debug)]
pub struct Bounded<B, S = ()> {
    pub(crate) limiters: Vec<Limiter<B>>,
    pub(crate) inner: S,
}

impl<B: Send + 'static, S: Step<B>> Step<B> for Bounded<B, S> {
    type Out = S::Out;

    #[inline]
    fn run<'a>(
        &'a self,
        exchange: Exchange<B>,
        cx: Cx<'a>,
    ) -> impl Future<Output = Outcome<S::Out>> + Send + 'a {
        let run = |exchange, cx| self.inner.run(exchange, cx);
        // One gate with a slot free and nobody listening: all that a limit costs is to take it.
        if let [limiter] = &self.limiters[..]
            && let Some(slot) = limiter.express(cx)
        {
            return Bound::inside(slot, cx, exchange, &run);
        }
        Bound::entering(&self.limiters, cx, exchange, run)
    }
}

impl<B: Send + 'static, T> Wrap<B, T> for Bounded<B> {
    type Around<S: Step<B, Out = T>> = Bounded<B, S>;

    fn around<S: Step<B, Out = T>>(self, inner: S) -> Bounded<B, S> {
        Bounded { limiters: self.limiters, inner }
    }
}
