//! The limit of a route at work.
//!
//! Owns the route's gate, the key of a request, and what responses tell of both. Who may start is the gate's decision.

use std::{borrow::Cow, mem::discriminant, net::SocketAddr, str, sync::Arc};

use flowgate::{
    Gate, KeyedGate, OptionError, Pass, Reason, Refusal,
    gate::{LaneLook, Look},
    http::{Answer, Figures, Identity, ReleaseAt},
};
use http::{HeaderMap, HeaderName, header};

use super::{
    asked::{Asked, Head},
    fault::Fault,
    headers::are_twins,
    path::as_key,
    router::Part,
};
use crate::config::{KeyFrom, MissingKey, PathPattern, RouteLimit};

/// A longer one would make ten thousand lanes cost more than a few megabytes.
const LONGEST_KEY: usize = 1024;

/// The limit of a route.
#[derive(Debug)]
pub(super) struct Limiter {
    door: Door,
    key: Source,
    /// The keys with limits of their own.
    pins: Vec<Arc<str>>,
    max_keys: u32,
    /// Whether any lane has a rate.
    has_rate: bool,
    pub(super) release: ReleaseAt,
    has_figures: bool,
    pub(super) answer: Answer,
}

/// One lane, or one for each key.
#[derive(Clone, Debug)]
enum Door {
    One(Gate),
    Many(KeyedGate),
}

/// Where the key of a request comes from.
#[derive(Debug)]
enum Source {
    Constant,
    Header(HeaderName, MissingKey),
    Host(MissingKey),
    Path(Part),
    Client,
}

impl Limiter {
    /// The limit as configured; with the gate of `old`, if there is one of the same kind: what is in flight there goes on to
    /// count, and the limits change for all who wait. Told: what cannot change while the gateway runs.
    pub(super) fn build(
        name: &str,
        path: &PathPattern,
        config: &RouteLimit,
        old: Option<&Limiter>,
        notes: &mut Vec<String>,
    ) -> Result<Self, OptionError> {
        let key = Source::of(&config.key, path);
        let builder = || Gate::builder().name(name).scope("gateway").max(1).reject();
        let door = match (&key, old.map(|old| &old.door)) {
            (Source::Constant, Some(Door::One(gate))) => Door::One(gate.clone()),
            (Source::Constant, _) => Door::One(builder().build()?),
            (_, Some(Door::Many(gate))) => Door::Many(gate.clone()),
            (_, _) => Door::Many(builder().keyed().max_keys(config.max_keys).build()?),
        };
        if old.is_some_and(|old| discriminant(&old.door) != discriminant(&door)) {
            notes.push(format!(
                "route {name:?}: what is in flight or in line does not count under its new key"
            ));
        }
        let is_kept = old.is_some_and(|old| matches!((&old.door, &door), (Door::Many(_), Door::Many(_))));
        let max_keys = old.filter(|_| is_kept).map_or(config.max_keys, |old| old.max_keys);
        if max_keys != config.max_keys {
            notes.push(format!("route {name:?}: `max_keys` stays {max_keys} until the next start"));
        }
        let mut limits = config.overrides.iter().map(|own| &own.limits).chain([&config.limits]);
        let has_rate = limits.any(|limits| limits.rate().is_some());
        let pins = config.overrides.iter().map(|own| Arc::clone(&own.key)).collect();
        Ok(Limiter {
            door,
            key,
            pins,
            max_keys,
            has_rate,
            release: config.release,
            has_figures: config.headers,
            answer: config.refusal.clone(),
        })
    }

    /// Puts the limits in force, for those who wait as well.
    pub(super) fn apply(
        &self,
        name: &str,
        config: &RouteLimit,
        old: Option<&Limiter>,
        notes: &mut Vec<String>,
    ) -> Result<(), OptionError> {
        let gate = match &self.door {
            Door::One(gate) => {
                gate.set_limits(config.limits);
                return Ok(());
            }
            Door::Many(gate) => gate,
        };
        gate.set_limits(config.limits)?;
        for key in old.iter().flat_map(|old| &old.pins).filter(|key| !self.pins.contains(key)) {
            gate.unpin(key);
        }
        for own in &config.overrides {
            if !gate.pin(&own.key, own.limits)? {
                notes.push(format!("route {name:?}: no lane is free for the override of {:?}", own.key));
            }
        }
        Ok(())
    }

    /// The part of the path that is the key, where one is.
    pub(super) fn part(&self) -> Option<Part> {
        match self.key {
            Source::Path(part) => Some(part),
            Source::Constant | Source::Header(..) | Source::Host(_) | Source::Client => None,
        }
    }

    /// The key of a request, where there is more than one lane. `lenient` is its path where its route was found by that one: in
    /// it nothing is encoded any more.
    pub(super) fn key<'h>(
        &self,
        head: &'h impl Head,
        (asked, lenient): (&Asked<'h>, Option<&str>),
        (identity, peer): (&Identity, SocketAddr),
    ) -> Result<Option<Cow<'h, str>>, Fault> {
        let key = match &self.key {
            Source::Constant => return Ok(None),
            Source::Client => identity.key_of(peer, |header| head.values(header)).into(),
            Source::Path(part) => match lenient {
                Some(path) => part.of(path).to_owned().into(),
                None => as_key(part.of(&asked.path)).into_owned().into(),
            },
            // The target may name another one than the header, and then that is what goes on.
            Source::Host(missing) => match (text_of(&asked.host)?, missing) {
                (host, MissingKey::Refuse) if host.is_empty() => return Err(Fault::Request(NO_KEY)),
                (host, _) => host.into_owned().into(),
            },
            Source::Header(name, missing) => {
                check_reaches(head, name)?;
                let mut values = head.values(name);
                match (values.next(), values.next(), missing) {
                    (Some(value), None, _) => text_of(value)?,
                    // Which of them the upstream would take for the key is anybody's guess.
                    (Some(_), Some(_), _) => return Err(Fault::Request(TWO_KEYS)),
                    (None, _, MissingKey::Shared) => "".into(),
                    (None, _, MissingKey::Refuse) => return Err(Fault::Request(NO_KEY)),
                }
            }
        };
        if key.len() > LONGEST_KEY { Err(Fault::Request(LONG_KEY)) } else { Ok(Some(key)) }
    }

    /// Waits in line for a pass, or is turned away.
    ///
    /// Cancel safety: dropped, it leaves the line.
    pub(super) async fn enter(&self, key: Option<&str>) -> Result<Pass, Refusal> {
        match &self.door {
            Door::One(gate) => gate.enter().await,
            Door::Many(gate) => gate.enter_key(key.unwrap_or_default()).await,
        }
    }

    /// The figures of the lane that somebody was turned away from, where they are told: of its slots, and of its rate.
    pub(super) fn figures(&self, refusal: &Refusal, key: Option<&str>) -> (Option<Figures>, Option<Figures>) {
        if !self.has_figures {
            return (None, None);
        }
        let concurrency = refusal.max.map(|limit| {
            // Where there is no room for its key, none of its slots can be had.
            let has_room = refusal.reason != Reason::KeysFull;
            let remaining = if has_room { limit.saturating_sub(refusal.in_use) } else { 0 };
            Figures::Concurrency { limit, remaining }
        });
        (concurrency, self.rate(key))
    }

    /// The figures of the lane, into the head of a response.
    pub(super) fn tell(&self, pass: &Pass, headers: &mut HeaderMap) {
        if !self.has_figures {
            return;
        }
        // One look at the lane, and none at its rate where no lane has one: both take its lock.
        let (standing, rate) = if self.has_rate { pass.standing_and_rate() } else { (pass.standing(), None) };
        let figures = standing.max.zip(standing.remaining());
        let concurrency = figures.map(|(limit, remaining)| Figures::Concurrency { limit, remaining });
        let rate = rate.map(|(rate, left)| Figures::of_rate(&rate, left));
        with_all((concurrency, rate), |figures| Figures::write_all(figures, headers));
    }

    /// What the lane's rate has left, where it has one.
    fn rate(&self, key: Option<&str>) -> Option<Figures> {
        // Asking for the lane takes its lock: not where no lane has a rate.
        if !self.has_rate {
            return None;
        }
        let (rate, left) = match &self.door {
            Door::One(gate) => {
                let look = gate.look();
                (*look.limits.rate()?, look.rate)
            }
            Door::Many(gate) => gate.rate_of_key(key.unwrap_or_default())?,
        };
        Some(left.map_or_else(|| Figures::of_rested_rate(&rate), |left| Figures::of_rate(&rate, left)))
    }

    /// The gate right now.
    pub(super) fn look(&self) -> Look {
        match &self.door {
            Door::One(gate) => gate.look(),
            Door::Many(gate) => gate.look(),
        }
    }

    /// Up to `most` lanes right now.
    pub(super) fn lanes(&self, most: usize) -> Vec<LaneLook> {
        match &self.door {
            Door::One(_) => Vec::new(),
            Door::Many(gate) => gate.lanes(most),
        }
    }
}

impl Source {
    fn of(key: &KeyFrom, path: &PathPattern) -> Self {
        match key {
            KeyFrom::Constant(_) => Source::Constant,
            KeyFrom::Header(name, missing) if *name == header::HOST => Source::Host(*missing),
            KeyFrom::Header(name, missing) => Source::Header(name.clone(), *missing),
            KeyFrom::Client => Source::Client,
            KeyFrom::Path(name) => {
                Source::Path(Part::named(name, path).expect("the path has the parameter: config checks it"))
            }
        }
    }
}

const NO_KEY: &str = "The header by which requests to this route are counted is missing.";
const TWO_KEYS: &str = "The header by which requests to this route are counted appears more than once.";
const TWIN_KEY: &str =
    "A header differs only by its dashes from the one by which requests to this route are counted.";
const KEPT_KEY: &str =
    "Connection names the header by which requests to this route are counted; that header must be forwarded.";
const LONG_KEY: &str = "The key by which requests to this route are counted is longer than 1024 bytes.";

/// Those that there are.
pub(super) fn with_all(figures: (Option<Figures>, Option<Figures>), put: impl FnOnce(&[Figures])) {
    match figures {
        (Some(concurrency), Some(rate)) => put(&[concurrency, rate]),
        (Some(figures), None) | (None, Some(figures)) => put(&[figures]),
        (None, None) => {}
    }
}

/// Whether the upstream gets the header that is counted by, and no other that it may take for it.
fn check_reaches(head: &impl Head, name: &HeaderName) -> Result<(), Fault> {
    let name = name.as_str().as_bytes();
    if head.names().any(|other| are_twins(other, name)) {
        return Err(Fault::Request(TWIN_KEY));
    }
    let mut ending_here = head.values(&header::CONNECTION).flat_map(|line| line.split(|byte| *byte == b','));
    match ending_here.any(|listed| listed.trim_ascii().eq_ignore_ascii_case(name)) {
        true => Err(Fault::Request(KEPT_KEY)),
        false => Ok(()),
    }
}

/// Without the white space around it, which HTTP/1.1 has none of and HTTP/2 leaves there.
fn text_of(bytes: &[u8]) -> Result<Cow<'_, str>, Fault> {
    let text = str::from_utf8(bytes.trim_ascii());
    text.map(Cow::Borrowed)
        .map_err(|_| Fault::Request("The header by which requests are counted is not text."))
}
