//! The layer and its options.
//!
//! Owns the gate: cloning the layer, or mounting it twice, makes no second budget.

use std::{
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use bytes::Bytes;
use flowgate_core::{
    Adaptive, Key, Limits, MAX_MAX, MAX_QUEUE, OptionError, Overflow, Reason, Refusal, Spot,
};
use http::{HeaderMap, Request, Response, request::Parts};
use tower_layer::Layer;

use super::service::Concurrency;
use crate::{
    gate::{Begun, Gate, GateBuilder, KeyedGate, Look, Pass},
    http::{
        answer::Answer,
        figures::Figures,
        front::{Front, FrontBuilder, front_options, gate_options},
        scope::{Scope, key_of, no_keys},
        upgrade::{self, Bridge},
    },
};

/// Limits how many requests are in flight, as a plain [`Layer`].
///
/// A slot is taken before the request's body is read, and held until the response's body has ended or the client is
/// gone.
///
/// ```
/// use flowgate::http::{ConcurrencyLimit, Scope};
/// use std::time::Duration;
///
/// # fn example() -> Result<(), flowgate::OptionError> {
/// // At most 100 in flight per route, queue up to 50 more, wait at most 2 s.
/// let limit = ConcurrencyLimit::builder()
///     .max_concurrent(100)
///     .max_queue(50)
///     .queue_timeout(Duration::from_secs(2))
///     .scope(Scope::Route)
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ConcurrencyLimit {
    shared: Arc<Shared>,
}

/// When a slot is given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReleaseAt {
    /// When the response's body has ended, or the upgraded connection was closed: streams count while they stream.
    #[default]
    Body,
    /// When the inner service has answered with the response's head.
    Headers,
}

/// The order in which waiting requests are let in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Line {
    /// First in, first out.
    #[default]
    Fifo,
    /// For long overload: once the line has not been empty for a whole `interval`, a request that has waited
    /// longer than `target` is refused and the newest goes first, so that answers still reach clients that
    /// wait for them.
    Codel {
        /// How long one may wait while there is a backlog.
        target: Duration,
        /// How long the line must not have been empty for it to be one.
        interval: Duration,
    },
}

/// What all services of one layer share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) front: Front,
    pub(crate) terms: Terms,
    gate: Doors,
}

/// What a request under way has to know of its layer. It has a copy: a count of references to the layer, which all threads
/// change with each request, would be the slowest thing about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) release: ReleaseAt,
    pub(crate) spot: Spot,
    has_figures: bool,
}

/// One budget, or one for each key.
#[derive(Debug)]
enum Doors {
    One(Gate),
    Many(KeyedGate),
}

/// Collects the options of a [`ConcurrencyLimit`].
#[derive(Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct ConcurrencyLimitBuilder {
    pub(super) front: FrontBuilder,
    gate: GateBuilder,
    max_queue: u32,
    line: Line,
    max_keys: Option<u32>,
    release: ReleaseAt,
}

impl ConcurrencyLimit {
    /// Starts building a layer: no line (`max_queue` 0), one budget for all, 503 with `Retry-After: 1`.
    /// `max_concurrent` has to be set.
    pub fn builder() -> ConcurrencyLimitBuilder {
        ConcurrencyLimitBuilder {
            front: FrontBuilder::new(Scope::Global, Answer::default()),
            gate: Gate::builder().name("http"),
            max_queue: 0,
            line: Line::Fifo,
            max_keys: None,
            release: ReleaseAt::Body,
        }
    }

    /// Returns the state of the layer's gate.
    pub fn look(&self) -> Look {
        match &self.shared.gate {
            Doors::One(gate) => gate.look(),
            Doors::Many(gate) => gate.look(),
        }
    }

    /// Changes the limits at once, also for requests already waiting.
    ///
    /// The line of a layer always has a bound. Limits that set none for it (neither `queue` nor `reject`) leave as it
    /// is what the layer does with requests that it cannot let in. An error if the limits have no `max`, for then
    /// nothing would bound what is in flight.
    pub fn set_limits(&self, limits: Limits) -> Result<(), OptionError> {
        let limits = self.bounded(limits)?;
        match &self.shared.gate {
            Doors::One(gate) => {
                gate.set_limits(limits);
                Ok(())
            }
            Doors::Many(gate) => gate.set_limits(limits),
        }
    }

    /// These limits, which have a `max`, with the layer's own line where theirs has no bound.
    fn bounded(&self, limits: Limits) -> Result<Limits, OptionError> {
        if limits.max().is_none() {
            let accepted = "limits with a `max`, because this layer counts requests in flight";
            return Err(OptionError::new("max", "not set", accepted));
        }
        match limits.overflow() {
            Overflow::Queue { max: None, timeout: None } => {
                limits.with_overflow(self.look().limits.overflow())
            }
            Overflow::Queue { max: None, timeout: Some(timeout) } => {
                let accepted = "only together with `queue`, which says how many may wait";
                Err(OptionError::new("queue_timeout", format_args!("{timeout:?}"), accepted))
            }
            _ => Ok(limits),
        }
    }

    /// Gives one key limits of its own. An error for a layer with one budget for all; `false` if there is no room for
    /// another lane. They need a `max`; if they set no bound for the line, the layer's stays, as with
    /// [`set_limits`](Self::set_limits).
    pub fn pin(&self, key: &str, limits: Limits) -> Result<bool, OptionError> {
        match &self.shared.gate {
            Doors::One(_) => {
                let accepted = "only with a scope that has keys; for `global`, change the limits instead";
                Err(OptionError::new("pin", format!("{key:?}"), accepted))
            }
            Doors::Many(gate) => gate.pin(key_of(key).as_str(), self.bounded(limits)?),
        }
    }

    /// Removes a key's own limits, so that the layer's apply again. Returns `false` if it had none.
    pub fn unpin(&self, key: &str) -> bool {
        match &self.shared.gate {
            Doors::One(_) => false,
            Doors::Many(gate) => gate.unpin(key_of(key).as_str()),
        }
    }
}

impl ConcurrencyLimitBuilder {
    front_options!();
    gate_options!();

    /// Allows at most this many requests in flight at once (per key): 1 to 1,000,000,000.
    pub fn max_concurrent(mut self, max: u32) -> Self {
        self.gate = self.gate.max(max);
        self
    }

    /// Lets a rule adjust the max between its floor and `max_concurrent`, by how long requests take. Responses 503
    /// and 504 of the inner service count as overload. Only for the scope `global`.
    pub fn adaptive(mut self, rule: Adaptive) -> Self {
        self.gate = self.gate.adaptive(rule);
        self
    }

    /// Limits how many requests may wait (per key). Default 0: a request that finds no free slot is refused at once.
    /// A quarter of `max_concurrent` wins back nearly all the throughput that refusing alone loses.
    pub fn max_queue(mut self, max_queue: u32) -> Self {
        self.max_queue = max_queue;
        self
    }

    /// Limits how long a request may wait. Default: as long as it takes, or until the client is gone.
    pub fn queue_timeout(mut self, queue_timeout: Duration) -> Self {
        self.gate = self.gate.timeout(queue_timeout);
        self
    }

    /// Sets the order in which waiting requests are let in. Default: first in, first out.
    pub fn line(mut self, line: Line) -> Self {
        self.line = line;
        self
    }

    /// Limits how many keys may be in use at once: 1 to 1,000,000, default 10,000. Not for the scope `global`, which
    /// has no keys.
    pub fn max_keys(mut self, max_keys: u32) -> Self {
        self.max_keys = Some(max_keys);
        self
    }

    /// Sets when a slot is given back. Default: at the end of the response's body.
    pub fn release_at(mut self, release: ReleaseAt) -> Self {
        self.release = release;
        self
    }

    /// Builds the layer, or returns the first option that is wrong.
    #[track_caller]
    pub fn build(self) -> Result<ConcurrencyLimit, OptionError> {
        let spot = Spot::here();
        let front = self.front.build()?;
        let terms = Terms::new(&front, self.release, spot);
        let gate = self.gate.scope(front.scope.word());
        let gate = match self.max_queue {
            0 => gate.reject(),
            max_queue => gate.queue(max_queue),
        };
        let gate = match self.line {
            Line::Fifo => gate,
            Line::Codel { target, interval } => gate.codel(target, interval),
        };
        let gate = match (&front.scope, self.max_keys) {
            (Scope::Global, None) => gate.build().map(Doors::One),
            (Scope::Global, Some(max_keys)) => return Err(no_keys(max_keys)),
            (_, None) => gate.keyed().build().map(Doors::Many),
            (_, Some(max_keys)) => gate.keyed().max_keys(max_keys).build().map(Doors::Many),
        };
        let gate = gate.map_err(|error| renamed(&error, self.max_queue))?;
        Ok(ConcurrencyLimit { shared: Arc::new(Shared { front, terms, gate }) })
    }
}

/// The options of a layer have names of their own.
fn renamed(error: &OptionError, max_queue: u32) -> OptionError {
    let (value, accepted) = (error.value(), error.accepted());
    match error.option() {
        "max" if value == "not set" => {
            OptionError::new("max_concurrent", value, format!("an integer from 1 to {MAX_MAX}"))
        }
        "max" => OptionError::new("max_concurrent", value, accepted),
        "queue" => OptionError::new("max_queue", value, format!("an integer from 0 to {MAX_QUEUE}")),
        "timeout" if max_queue == 0 => {
            let accepted = "only together with `max_queue`, because by default no request waits";
            OptionError::new("queue_timeout", value, accepted)
        }
        "timeout" => OptionError::new("queue_timeout", value, "a duration above zero and up to 366 days"),
        "codel" if max_queue == 0 => OptionError::new(
            "line",
            value,
            "only together with `max_queue`, because by default no request waits",
        ),
        "codel" => OptionError::new("line", value, accepted),
        _ => error.clone(),
    }
}

impl<S> Layer<S> for ConcurrencyLimit {
    type Service = Concurrency<S>;

    fn layer(&self, inner: S) -> Concurrency<S> {
        Concurrency::new(inner, Arc::clone(&self.shared))
    }
}

impl Shared {
    /// Asks for a slot in this key's lane, at once.
    pub(crate) fn enter(&self, key: &Key) -> Begun {
        // Who has to wait leaves its waker when it is first polled.
        let cx = Context::from_waker(Waker::noop());
        match &self.gate {
            Doors::One(gate) => gate.begin(None, self.terms.spot, &cx),
            Doors::Many(gate) => gate.begin(Some(key), self.terms.spot, &cx),
        }
    }

    /// The answer to a request that was refused, with the lane's figures.
    pub(crate) fn refuse(&self, key: &Key, refusal: &Refusal, request: &Parts) -> Response<Bytes> {
        self.terms.refuse(&self.front, key, refusal, request)
    }
}

impl Terms {
    pub(crate) fn new(front: &Front, release: ReleaseAt, spot: Spot) -> Self {
        Terms { release, spot, has_figures: front.has_figures }
    }

    /// The way by which a connection that becomes something else gets the slot, if it holds it for so long.
    pub(crate) fn bridge<B>(&self, request: &mut Request<B>) -> Option<Bridge> {
        match self.release {
            ReleaseAt::Body => upgrade::bridge(request),
            ReleaseAt::Headers => None,
        }
    }

    /// The answer to a request that was refused, with the lane's figures where they are known.
    pub(crate) fn refuse(
        &self,
        front: &Front,
        key: &Key,
        refusal: &Refusal,
        request: &Parts,
    ) -> Response<Bytes> {
        let mut response = front.refuse(key, refusal, request);
        if let Some(limit) = refusal.max.filter(|_| refusal.reason != Reason::Unreachable) {
            // Where there is no room for its key, none of its slots can be had.
            let has_room = refusal.reason != Reason::KeysFull;
            let remaining = if has_room { limit.saturating_sub(refusal.in_use) } else { 0 };
            self.tell(limit, remaining, response.headers_mut());
        }
        response
    }

    /// The figures of a pass's lane, into the head of its response.
    pub(crate) fn tell_standing(&self, pass: &Pass, headers: &mut HeaderMap) {
        if self.has_figures {
            let standing = pass.standing();
            if let (Some(limit), Some(remaining)) = (standing.max, standing.remaining()) {
                self.tell(limit, remaining, headers);
            }
        }
    }

    fn tell(&self, limit: u32, remaining: u32, headers: &mut HeaderMap) {
        if self.has_figures {
            Figures::Concurrency { limit, remaining }.write(headers);
        }
    }
}
