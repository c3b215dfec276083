//! The layer and its options.
//!
//! Owns the gate: cloning the layer, or mounting it twice, makes no second budget.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use flowgate_core::{Key, Limits, OptionError, Period, Reason, Refusal};
use http::{Response, StatusCode, request::Parts};
use tower_layer::Layer;

use super::service::Rated;
use crate::{
    gate::{Gate, GateBuilder, KeyedGate, Look},
    http::{
        answer::Answer,
        figures::Figures,
        front::{Front, FrontBuilder, front_options, gate_options},
        scope::{Scope, key_of, no_keys},
    },
};

/// Limits how many requests start per period, as a plain [`Layer`]. Nobody waits: a request that comes too early gets
/// 429 and is told when to come back.
///
/// ```
/// use flowgate::http::{Identity, RateLimit, Scope};
///
/// # fn example() -> Result<(), flowgate::OptionError> {
/// let limit =
///     RateLimit::builder().rate(1_000, "1m").scope(Scope::Client).identity(Identity::peer()).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RateLimit {
    shared: Arc<Shared>,
}

/// What all services of one layer share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) front: Front,
    gate: KeyedGate,
}

/// Collects the options of a [`RateLimit`].
#[derive(Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct RateLimitBuilder {
    front: FrontBuilder,
    gate: GateBuilder,
    max_keys: Option<u32>,
}

impl RateLimit {
    /// Starts building a layer: one budget for all, 429. `rate` has to be set.
    pub fn builder() -> RateLimitBuilder {
        let answer = Answer::default().status(StatusCode::TOO_MANY_REQUESTS).unwrap_or_default();
        RateLimitBuilder {
            front: FrontBuilder::new(Scope::Global, answer),
            gate: Gate::builder().name("http-rate").reject(),
            max_keys: None,
        }
    }

    /// Returns the state of the layer's gate.
    pub fn look(&self) -> Look {
        self.shared.gate.look()
    }

    /// Changes the rate at once. An error if the limits have no rate, for then nothing would be limited.
    pub fn set_limits(&self, limits: Limits) -> Result<(), OptionError> {
        has_rate(&limits)?;
        self.shared.gate.set_limits(limits)
    }

    /// Gives one key a rate of its own. `false` if there is no room for another lane.
    pub fn pin(&self, key: &str, limits: Limits) -> Result<bool, OptionError> {
        has_rate(&limits)?;
        self.shared.gate.pin(key_of(key).as_str(), limits)
    }

    /// Removes a key's own rate, so that the layer's applies again. Returns `false` if it had none.
    pub fn unpin(&self, key: &str) -> bool {
        self.shared.gate.unpin(key_of(key).as_str())
    }
}

/// The layer counts starts, and does nothing else.
fn has_rate(limits: &Limits) -> Result<(), OptionError> {
    if limits.rate().is_none() {
        let accepted = "limits with a `rate`, because this layer counts only starts";
        return Err(OptionError::new("rate", "not set", accepted));
    }
    Ok(())
}

impl RateLimitBuilder {
    front_options!();
    gate_options!();

    /// Allows at most `rate` requests (per key) per period, counted from the period's first.
    pub fn rate<P>(mut self, rate: u32, period: P) -> Self
    where
        P: TryInto<Period>,
        OptionError: From<P::Error>,
    {
        self.gate = self.gate.rate(rate, period);
        self
    }

    /// Makes the rate a token bucket: it refills steadily, and at most `burst` may start at once.
    pub fn burst(mut self, burst: u32) -> Self {
        self.gate = self.gate.burst(burst);
        self
    }

    /// Limits how many keys are remembered at once: 1 to 1,000,000, default 10,000. Not for the scope `global`, which
    /// has no keys.
    pub fn max_keys(mut self, max_keys: u32) -> Self {
        self.max_keys = Some(max_keys);
        self
    }

    /// Builds the layer, or returns the first option that is wrong.
    pub fn build(self) -> Result<RateLimit, OptionError> {
        let front = self.front.build()?;
        let gate = self.gate.scope(front.scope.word()).keyed();
        let gate = match (&front.scope, self.max_keys) {
            (_, None) => gate.build(),
            (Scope::Global, Some(max_keys)) => return Err(no_keys(max_keys)),
            (_, Some(max_keys)) => gate.max_keys(max_keys).build(),
        };
        // The gate would take a `max` instead, and says so; the layer has none.
        let gate = gate.map_err(|error| match error.option() {
            "max" => OptionError::new(
                "rate",
                error.value(),
                "a number of requests and a period, like `1000, \"1m\"`",
            ),
            _ => error,
        })?;
        Ok(RateLimit { shared: Arc::new(Shared { front, gate }) })
    }
}

impl<S> Layer<S> for RateLimit {
    type Service = Rated<S>;

    fn layer(&self, inner: S) -> Rated<S> {
        Rated::new(inner, Arc::clone(&self.shared))
    }
}

impl Shared {
    /// Spends one start; what is left, for the response's headers.
    pub(super) fn spend(&self, key: &Key) -> Result<Option<Figures>, Refusal> {
        self.gate.check_key(key.as_str())?;
        if !self.front.has_figures {
            return Ok(None);
        }
        let figures = match self.gate.look_key(key.as_str()) {
            Some(lane) => lane.limits.rate().zip(lane.rate).map(|(rate, left)| Figures::of_rate(rate, left)),
            None => self.gate.limits().rate().map(Figures::of_rested_rate),
        };
        Ok(figures)
    }

    /// The answer to a request that was refused, with what is known of the rate.
    pub(super) fn refuse(&self, key: &Key, refusal: &Refusal, request: &Parts) -> Response<Bytes> {
        let mut response = self.front.refuse(key, refusal, request);
        if self.front.has_figures && refusal.reason == Reason::Rate {
            let lane = self.gate.look_key(key.as_str());
            let limits = lane.map_or_else(|| self.gate.limits(), |lane| lane.limits);
            let resets_in = refusal.retry_after.unwrap_or(Duration::ZERO);
            if let Some(rate) = limits.rate() {
                Figures::of_spent_rate(rate, resets_in).write(response.headers_mut());
            }
        }
        response
    }
}
