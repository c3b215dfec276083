//! How often exchanges start.
//!
//! Owns the options of `throttle` and the step that spends its starts. The rate and the line before it are a gate's.

use std::{fmt, sync::Arc, time::Duration};

use flowgate_core::{Limits, LimitsBuilder, OptionError, Period};

use super::stack::Wrap;
use crate::route::{
    cx::Cx,
    error::{BoxError, Error},
    event::Scope,
    exchange::Exchange,
    limiter::{GateSpec, KeyFn, Kind, Limiter},
    step::{Outcome, Step},
};

/// The options of `throttle`: how many exchanges may start per period.
///
/// ```
/// use flowgate::route::Throttle;
///
/// let polite: Throttle<String> = Throttle::rate(10, "1s").burst(2);
/// let strict: Throttle<String> = Throttle::rate(600, "1m").reject();
/// ```
#[must_use = "options do nothing until a route has them"]
pub struct Throttle<B> {
    limits: LimitsBuilder,
    key: Option<KeyFn<B>>,
    max_keys: Option<u32>,
    label: Option<String>,
}

impl<B> Throttle<B> {
    /// Allows at most `rate` starts (per key) per period, counted from the period's first start. An exchange that
    /// comes too early waits. The period is text like `"1m"`, a number of milliseconds, or a [`Duration`].
    pub fn rate<P>(rate: u32, per: P) -> Self
    where
        P: TryInto<Period>,
        OptionError: From<P::Error>,
    {
        Throttle { limits: Limits::builder().rate(rate, per), key: None, max_keys: None, label: None }
    }

    /// Makes the rate a token bucket: it refills steadily, and at most `burst` may start at once.
    pub fn burst(mut self, burst: u32) -> Self {
        self.limits = self.limits.burst(burst);
        self
    }

    /// Fails with RC5013 instead of waiting if an exchange comes too early.
    pub fn reject(mut self) -> Self {
        self.limits = self.limits.reject();
        self
    }

    /// Limits how many exchanges may wait (per key). Default: any number.
    pub fn max_queue(mut self, max_queue: u32) -> Self {
        self.limits = self.limits.queue(max_queue);
        self
    }

    /// Limits how long an exchange may wait. Default: as long as it takes.
    pub fn queue_timeout(mut self, queue_timeout: Duration) -> Self {
        self.limits = self.limits.timeout(queue_timeout);
        self
    }

    /// Gives each key a rate of its own. The function is called once per exchange.
    pub fn key<K: Into<String>>(self, key: impl Fn(&Exchange<B>) -> K + Send + Sync + 'static) -> Self {
        self.try_key(move |exchange| Ok::<_, BoxError>(key(exchange)))
    }

    /// Like [`key`](Self::key), with a function that may fail. Then the exchange fails with RC5003, and no start is
    /// used.
    pub fn try_key<K: Into<String>, E: Into<BoxError>>(
        mut self,
        key: impl Fn(&Exchange<B>) -> Result<K, E> + Send + Sync + 'static,
    ) -> Self {
        self.key = Some(Arc::new(move |exchange| key(exchange).map(Into::into).map_err(Into::into)));
        self
    }

    /// Limits how many keys are remembered at once: 1 to 1,000,000, default 10,000.
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
        let Throttle { limits, key, max_keys, label } = self;
        (GateSpec { kind: Kind::Throttle, scope, label, limits, is_keyed: key.is_some(), max_keys }, key)
    }
}

impl<B> fmt::Debug for Throttle<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// A step of which only so many start per period. Several rates are asked one after the other.
#[derive(Debug)]
pub struct Throttled<B, S = ()> {
    pub(crate) limiters: Vec<Limiter<B>>,
    pub(crate) inner: S,
}

impl<B: Send + 'static, S: Step<B>> Step<B> for Throttled<B, S> {
    type Out = S::Out;

    async fn run<'a>(&'a self, mut exchange: Exchange<B>, cx: Cx<'a>) -> Outcome<S::Out> {
        for limiter in &self.limiters {
            let key = limiter.key_of(&mut exchange, cx)?;
            // The start is spent with the pass; there is no slot to hold.
            drop(limiter.enter(key.as_ref(), cx).await.map_err(Error::from)?);
        }
        self.inner.run(exchange, cx).await
    }
}

impl<B: Send + 'static, T> Wrap<B, T> for Throttled<B> {
    type Around<S: Step<B, Out = T>> = Throttled<B, S>;

    fn around<S: Step<B, Out = T>>(self, inner: S) -> Throttled<B, S> {
        Throttled { limiters: self.limiters, inner }
    }
}
