//! What a gate looks like right now.
//!
//! Owns the answers of [`Gate::look`](super::Gate::look): taken with every desk locked at once, so that the numbers belong to
//! one moment.

use std::{fmt, time::Duration};

use flowgate_core::{Key, Limits, Rate, RateLook, Reason, Tick};

use super::{
    desk::Desk,
    engine::Engine,
    lanes::Slot,
    name::Name,
    state::{Ask, State, in_force},
};

/// The state of a gate at one moment.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Look {
    /// The limits that apply. If `max` adapts, its current value.
    pub limits: Limits,
    /// Whether the gate lets anyone in.
    pub phase: Phase,
    /// How many slots are taken, over all lanes.
    pub in_use: u64,
    /// How many wait, over all lanes.
    pub waiting: u64,
    /// How long the longest-waiting one has waited.
    pub oldest_wait: Option<Duration>,
    /// What is left of the rate, for a gate without keys.
    pub rate: Option<Allowance>,
    /// How many lanes there are: keys in use, and idle keys whose rate is not yet full again.
    pub lanes: usize,
    /// How many entries were refused since the gate was built, by reason.
    pub refusals: Refusals,
    /// How often a listener panicked.
    pub listener_panics: u64,
}

/// Whether a gate lets anyone in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Anyone may enter, within the limits.
    Open,
    /// Nobody starts until it is resumed.
    Paused,
    /// Newcomers are refused; those in line may still start.
    Closing,
    /// Everybody is refused.
    Closed,
}

/// What is left of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// How many may start at once when nothing is used.
    pub limit: u32,
    /// How many may start now.
    pub remaining: u32,
    /// How long until all of it is available again.
    pub resets_in: Duration,
}

/// The state of one lane at one moment.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LaneLook {
    /// Its key.
    pub key: Key,
    /// The limits that apply: the lane's own if some are pinned to its key.
    pub limits: Limits,
    /// Whether its key has limits of its own.
    pub is_pinned: bool,
    /// How many slots are taken.
    pub in_use: u32,
    /// How many wait.
    pub waiting: u32,
    /// How long the first in line has waited.
    pub oldest_wait: Option<Duration>,
    /// What is left of its rate.
    pub rate: Option<Allowance>,
}

/// How many entries were refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals([u64; Reason::ALL.len()]);

impl Refusals {
    #[cfg(feature = "shared")]
    pub(crate) fn count(&mut self, reason: Reason) {
        self.0[reason.index()] += 1;
    }

    /// Returns how many were refused for this reason.
    pub fn of(&self, reason: Reason) -> u64 {
        self.0[reason.index()]
    }

    /// Returns how many were refused in all.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns each reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        Reason::ALL.iter().map(|&reason| (reason, self.of(reason)))
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Open => "open",
            Phase::Paused => "paused",
            Phase::Closing => "closing",
            Phase::Closed => "closed",
        })
    }
}

impl Allowance {
    pub(crate) fn new(look: RateLook, now: Tick) -> Self {
        let RateLook { limit, remaining, resets_at } = look;
        Allowance { limit, remaining, resets_in: resets_at.since(now) }
    }
}

impl Engine {
    pub(crate) fn look(&self) -> Look {
        let now = self.meta.time.now();
        let mut refusals = Refusals::default();
        for reason in Reason::ALL {
            refusals.0[reason.index()] = self.meta.refused(reason);
        }
        let listener_panics = self.meta.bus.panics();
        Desk::look(&self.desks, |desks| {
            let first = desks[0];
            let oldest = desks.iter().filter_map(|desk| desk.line.oldest()).map(|(since, _)| since).min();
            let rate = match (first.is_keyed, first.limits.rate()) {
                (false, Some(rate)) => Some(Allowance::new(rate.look(first.lanes[0].lane.rate(), now), now)),
                _ => None,
            };
            Look {
                limits: first.limits,
                phase: phase(desks, now),
                in_use: desks.iter().map(|desk| desk.in_use()).sum(),
                waiting: desks.iter().map(|desk| desk.line.waiting()).sum(),
                oldest_wait: oldest.map(|since| now.since(since)),
                rate,
                lanes: desks.iter().map(|desk| desk.lane_count()).sum(),
                refusals,
                listener_panics,
            }
        })
    }

    /// The lane of a key, if it has any state.
    pub(crate) fn look_key(&self, key: &str) -> Option<LaneLook> {
        let now = self.meta.time.now();
        let name = Name::Text(key);
        let (desk, hash) = self.locate(&name);
        let ask = Ask::of(desk, Some((&name, hash)));
        desk.at(|state| state.find(&ask).map(|index| state.look_at(&state.lanes[index], now)))
    }

    /// The rate of a key's lane, and what is left of it where the lane has any state.
    pub(crate) fn rate_of_key(&self, key: &str) -> Option<(Rate, Option<Allowance>)> {
        let now = self.meta.time.now();
        let name = Name::Text(key);
        let (desk, hash) = self.locate(&name);
        let ask = Ask::of(desk, Some((&name, hash)));
        desk.see(|state| {
            let found = state.find(&ask);
            let rate = *state.limits_at(found).rate()?;
            let left = found.map(|index| Allowance::new(rate.look(state.lanes[index].lane.rate(), now), now));
            Some((rate, left))
        })
    }

    /// Up to `limit` lanes, in no order.
    pub(crate) fn look_lanes(&self, limit: usize) -> Vec<LaneLook> {
        let now = self.meta.time.now();
        let mut lanes = Vec::new();
        for desk in &self.desks {
            let room = limit - lanes.len();
            desk.at(|state| lanes.extend(state.lanes.iter().take(room).map(|slot| state.look_at(slot, now))));
        }
        lanes
    }
}

/// Whether the gate of these desks lets anyone in. What an operator says is said to all of them; they drain one by one.
fn phase(desks: &[&State], now: Tick) -> Phase {
    match desks[0].closing {
        Some(deadline) if now >= deadline || desks.iter().all(|desk| desk.is_drained()) => Phase::Closed,
        Some(_) => Phase::Closing,
        None if desks[0].is_paused => Phase::Paused,
        None => Phase::Open,
    }
}

impl State {
    fn look_at(&self, slot: &Slot, now: Tick) -> LaneLook {
        let limits = *in_force(&self.limits, &self.pins, slot);
        LaneLook {
            key: slot.key.clone(),
            limits,
            is_pinned: slot.is_pinned(),
            in_use: slot.lane.in_use(),
            waiting: slot.lane.waiting(),
            oldest_wait: slot.row.first().map(|ticket| now.since(self.line[ticket].since)),
            rate: limits.rate().map(|rate| Allowance::new(rate.look(slot.lane.rate(), now), now)),
        }
    }
}
