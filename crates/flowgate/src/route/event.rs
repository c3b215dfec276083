//! What happens in routes, told as it happens.
//!
//! Owns the events' names and what each carries. How they reach anyone is the bus's.

use std::{fmt, sync::Arc, time::Duration};

use flowgate_core::{Code, Key, What as GateWhat};

use super::exchange::ExchangeId;

/// Something that happened in a route.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The route.
    pub route: Arc<str>,
    /// The exchange, if it is about one.
    pub exchange: Option<ExchangeId>,
    /// What happened.
    pub what: What,
}

/// What a wrapper covers: declared before `.from()` the whole route, after it the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The whole pipeline.
    Route,
    /// The next step.
    Step,
}

impl Scope {
    /// Returns the word for it: `route` or `step`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Scope::Route => "route",
            Scope::Step => "step",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What happened. [`What::name`] returns the event's name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// `route:exchange:started`: it was taken in.
    Started,
    /// `route:exchange:completed`: it came to the end of the route.
    Completed,
    /// `route:exchange:dropped`: a filter dropped it.
    Dropped,
    /// `route:exchange:failed`
    Failed {
        /// With which code.
        code: Code,
    },
    /// `route:exchange:cancelled`: its caller is gone, or the context has shut down.
    Cancelled,
    /// `route:concurrency:queued`, `acquired`, `released`, `rejected`, `left`: at a gate of `concurrency`.
    Concurrency(AtGate),
    /// `route:throttle:delayed`, `passed`, `rejected`, `left`: at a gate of `throttle`.
    Throttle(AtGate),
    /// `route:retry:scheduled`: an attempt failed, and there will be another.
    RetryScheduled {
        /// Where it was declared.
        scope: Scope,
        /// Which attempt failed, from 1.
        attempt: u32,
        /// How long it waits for the next one.
        backoff: Duration,
        /// With which code it failed.
        code: Code,
    },
    /// `route:retry:exhausted`: the last attempt failed.
    RetryExhausted {
        /// Where it was declared.
        scope: Scope,
        /// How many there were.
        attempts: u32,
        /// With which code the last one failed.
        code: Code,
    },
    /// `route:timeout:expired`
    TimeoutExpired {
        /// Where it was declared.
        scope: Scope,
        /// How long it might have taken.
        after: Duration,
    },
    /// `route:breaker:opened`: too many failures; nothing is let through until the cooldown is over.
    BreakerOpened {
        /// Where it was declared.
        scope: Scope,
    },
    /// `route:breaker:half-opened`: a trial is let through.
    BreakerHalfOpened {
        /// Where it was declared.
        scope: Scope,
    },
    /// `route:breaker:closed`: the trial went well.
    BreakerClosed {
        /// Where it was declared.
        scope: Scope,
    },
    /// `route:breaker:rejected`: it is open, or has as many trials out as it may.
    BreakerRejected {
        /// Where it was declared.
        scope: Scope,
        /// Whether a fallback answered instead.
        has_fallback: bool,
    },
    /// `route:cache:hit`
    CacheHit {
        /// Where it was declared.
        scope: Scope,
        /// Of which key.
        key: Key,
    },
    /// `route:cache:missed`
    CacheMissed {
        /// Where it was declared.
        scope: Scope,
        /// Of which key.
        key: Key,
    },
    /// `route:delay:started`
    DelayStarted {
        /// Where it was declared.
        scope: Scope,
        /// How long.
        span: Duration,
    },
    /// `route:error:caught`: an error handler is asked.
    ErrorCaught {
        /// Where it was declared.
        scope: Scope,
        /// The code that it was called with.
        code: Code,
    },
    /// `route:error:recovered`: it gave a body instead.
    ErrorRecovered {
        /// Where it was declared.
        scope: Scope,
    },
    /// `route:tap:failed`: the failure goes no further.
    TapFailed {
        /// With which code.
        code: Code,
    },
    /// `route:source:completed`: nothing more will come.
    SourceCompleted,
    /// `route:source:failed`: nothing more will come, and that is wrong.
    SourceFailed {
        /// With which code.
        code: Code,
    },
}

/// What happened at a gate of a route, in the gate's own terms.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AtGate {
    /// Where it was declared.
    pub scope: Scope,
    /// Its label.
    pub label: Option<Arc<str>>,
    /// The lane, if the gate has keys.
    pub key: Option<Key>,
    /// What: `queued {depth}`, `acquired {waited, in_use}`, `released {held}`, `rejected {reason}`, `left`.
    pub what: GateWhat,
}

impl AtGate {
    /// Whether an `acquired` had to wait in line first.
    pub fn has_waited(&self) -> bool {
        matches!(self.what, GateWhat::Acquired { waited, .. } if !waited.is_zero())
    }
}

impl What {
    /// Returns the event's name.
    pub fn name(&self) -> &'static str {
        match self {
            What::Started => "route:exchange:started",
            What::Completed => "route:exchange:completed",
            What::Dropped => "route:exchange:dropped",
            What::Failed { .. } => "route:exchange:failed",
            What::Cancelled => "route:exchange:cancelled",
            What::Concurrency(at) => match at.what {
                GateWhat::Queued { .. } => "route:concurrency:queued",
                GateWhat::Acquired { .. } => "route:concurrency:acquired",
                GateWhat::Released { .. } => "route:concurrency:released",
                GateWhat::Rejected { .. } => "route:concurrency:rejected",
                _ => "route:concurrency:left",
            },
            What::Throttle(at) => match at.what {
                GateWhat::Queued { .. } => "route:throttle:delayed",
                GateWhat::Acquired { .. } => "route:throttle:passed",
                GateWhat::Rejected { .. } => "route:throttle:rejected",
                _ => "route:throttle:left",
            },
            What::RetryScheduled { .. } => "route:retry:scheduled",
            What::RetryExhausted { .. } => "route:retry:exhausted",
            What::TimeoutExpired { .. } => "route:timeout:expired",
            What::BreakerOpened { .. } => "route:breaker:opened",
            What::BreakerHalfOpened { .. } => "route:breaker:half-opened",
            What::BreakerClosed { .. } => "route:breaker:closed",
            What::BreakerRejected { .. } => "route:breaker:rejected",
            What::CacheHit { .. } => "route:cache:hit",
            What::CacheMissed { .. } => "route:cache:missed",
            What::DelayStarted { .. } => "route:delay:started",
            What::ErrorCaught { .. } => "route:error:caught",
            What::ErrorRecovered { .. } => "route:error:recovered",
            What::TapFailed { .. } => "route:tap:failed",
            What::SourceCompleted => "route:source:completed",
            What::SourceFailed { .. } => "route:source:failed",
        }
    }
}
