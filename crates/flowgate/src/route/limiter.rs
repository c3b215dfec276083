//! Gates of a route.
//!
//! Owns the way from the options of `concurrency` and `throttle` to a gate, and from an exchange to its key.
//! The gate decides who may start: nothing is counted here.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::Context,
};

use flowgate_core::{Code, Key, LimitsBuilder, OptionError, Spot};

use super::{
    cx::Cx,
    error::{BoxError, Error},
    event::Scope,
    exchange::Exchange,
};
use crate::{
    clock::Clock,
    gate::{self, Begun, Enter, Gate, KeyedGate, Look, Stub},
};

/// Which wrapper a gate belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Concurrency,
    Throttle,
}

/// A gate to be built for each context that the route is added to.
#[derive(Clone, Debug)]
pub(crate) struct GateSpec {
    pub(crate) kind: Kind,
    pub(crate) scope: Scope,
    pub(crate) label: Option<String>,
    pub(crate) limits: LimitsBuilder,
    pub(crate) is_keyed: bool,
    pub(crate) max_keys: Option<u32>,
}

impl GateSpec {
    pub(crate) fn build(&self, route: &str, clock: Option<Arc<dyn Clock>>) -> Result<Door, OptionError> {
        let mut builder = Gate::builder().name(route).scope(self.scope.as_str()).limits(self.limits.clone());
        if let Some(label) = &self.label {
            builder = builder.label(label);
        }
        if let Some(clock) = clock {
            builder = builder.clock(clock);
        }
        let door = match (self.is_keyed, self.max_keys) {
            (false, None) => Door::One(builder.build().map_err(|error| renamed(&error))?),
            (false, Some(max_keys)) => {
                return Err(OptionError::new("max_keys", max_keys, "only together with `key`"));
            }
            (true, None) => Door::Many(builder.keyed().build().map_err(|error| renamed(&error))?),
            (true, Some(max_keys)) => {
                Door::Many(builder.keyed().max_keys(max_keys).build().map_err(|error| renamed(&error))?)
            }
        };
        Ok(door)
    }
}

/// The options of a route have names of their own.
fn renamed(error: &OptionError) -> OptionError {
    let option = match error.option() {
        "queue" => "max_queue",
        "timeout" => "queue_timeout",
        "period" => "per",
        other => other,
    };
    let accepted = error.accepted().replace("`queue`", "`max_queue`").replace("`timeout`", "`queue_timeout`");
    OptionError::new(option, error.value(), accepted)
}

/// A gate of a route, with or without keys. Both are handles on the gate itself, to look at it and to change its
/// limits.
#[derive(Clone, Debug)]
pub enum Door {
    /// A gate with one lane for all.
    One(Gate),
    /// A gate with a lane for each key.
    Many(KeyedGate),
}

impl Door {
    /// Returns the state of the gate.
    pub fn look(&self) -> Look {
        match self {
            Door::One(gate) => gate.look(),
            Door::Many(gate) => gate.look(),
        }
    }

    fn enter<'a>(&'a self, key: Option<&'a Key>, cx: Cx<'_>) -> Enter<'a> {
        match self {
            Door::One(gate) => gate.enter_at(None, cx.sent_at),
            Door::Many(gate) => gate.enter_at(Some(key.map_or("", Key::as_str)), cx.sent_at),
        }
    }

    /// A slot of the express lane; `None` says nothing at all.
    #[inline]
    fn express(&self) -> Option<Stub> {
        match self {
            Door::One(gate) => gate.express(),
            Door::Many(_) => None,
        }
    }

    fn begin(&self, key: Option<&Key>, spot: Spot, cx: &Context<'_>) -> Begun {
        match self {
            Door::One(gate) => gate.begin(None, spot, cx),
            Door::Many(gate) => gate.begin(Some(key.unwrap_or(&Key::new(""))), spot, cx),
        }
    }

    pub(crate) fn relay(&self, listener: Box<dyn gate::Listener>) {
        match self {
            Door::One(gate) => gate.relay(listener),
            Door::Many(gate) => gate.relay(listener),
        }
    }
}

/// Tells the key of an exchange.
pub(crate) type KeyFn<B> = Arc<dyn Fn(&Exchange<B>) -> Result<String, BoxError> + Send + Sync>;

/// A gate of a route, as its steps know it: by its place among the gates of the site.
pub(crate) struct Limiter<B> {
    pub(crate) index: usize,
    pub(crate) key: Option<KeyFn<B>>,
}

impl<B> Limiter<B> {
    /// The exchange's key, asked for once.
    pub(crate) fn key_of(&self, exchange: &mut Exchange<B>, cx: Cx<'_>) -> Result<Option<Key>, Error> {
        let Some(key_of) = &self.key else { return Ok(None) };
        if let Some(known) = exchange.key(self.index) {
            return Ok(Some(known));
        }
        let told = match catch_unwind(AssertUnwindSafe(|| key_of(exchange))) {
            Ok(Ok(key)) => Ok(Key::new(&key)),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it panicked".to_owned()),
        };
        let key = told.map_err(|message| {
            let message = format!("route `{}`: the key function failed: {message}", cx.route());
            Error::new(Code::Misconfigured, message)
        })?;
        exchange.keep_key(self.index, key.clone());
        Ok(Some(key))
    }

    /// A slot of a gate without keys where there is nothing to wait for and nobody to tell; `None` says nothing at all.
    #[inline]
    pub(crate) fn express(&self, cx: Cx<'_>) -> Option<Stub> {
        cx.site.doors[self.index].1.express()
    }

    /// Asks the gate for a pass at once, in the lane of this key.
    pub(crate) fn begin(&self, key: Option<&Key>, cx: Cx<'_>, task: &Context<'_>) -> Begun {
        cx.site.doors[self.index].1.begin(key, cx.sent_at, task)
    }

    /// Asks the gate for a pass, in the lane of this key.
    pub(crate) fn enter<'a>(&self, key: Option<&'a Key>, cx: Cx<'a>) -> Enter<'a> {
        cx.site.doors[self.index].1.enter(key, cx)
    }
}

impl<B> fmt::Debug for Limiter<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("index", &self.index).finish_non_exhaustive()
    }
}
