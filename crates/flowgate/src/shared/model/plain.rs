//! The model: a lane in plain lists, one entrant at a time.
//!
//! Owns the same rules as [`Document::turn`](super::super::document::Document::turn), written as simply as can be. It knows
//! nothing of runs, of bytes, or of what a process was told.

use std::collections::BTreeMap;

use flowgate_core::{Decision, Lane, RateState, Reason, Tick};

use super::super::document::{Ask, Declared, Fate, Kind, Member, Stake};

/// The lane, one entrant at a time.
#[derive(Clone)]
pub(super) struct Model {
    pub(super) declared: Declared,
    pub(super) rate: RateState,
    pub(super) held: BTreeMap<Member, u32>,
    pub(super) line: Vec<(Member, u64, u32)>,
}

impl Model {
    pub(super) fn new(declared: Declared) -> Self {
        Model { declared, rate: RateState::default(), held: BTreeMap::new(), line: Vec::new() }
    }

    pub(super) fn turn(
        &mut self,
        declared: Declared,
        stake: &Stake,
        dead: &[Member],
        now: Tick,
    ) -> Vec<Fate> {
        if declared.at > self.declared.at {
            let mut lane = Lane::with_counts(0, self.rate);
            lane.relimit(&self.declared.limits, &declared.limits, now);
            (self.rate, self.declared) = (lane.rate(), declared);
        }
        let limits = self.declared.limits;
        self.held.retain(|member, _| !dead.contains(member));
        self.line.retain(|(member, ..)| !dead.contains(member));
        let stood: Vec<u64> = self
            .line
            .iter()
            .filter(|(member, ..)| *member == stake.member)
            .map(|(_, ticket, _)| *ticket)
            .collect();
        let is_asked = |ticket| stake.asks.iter().any(|ask| ask.ticket == ticket);
        self.line.retain(|(member, ticket, _)| *member != stake.member || is_asked(*ticket));
        let granted: u32 = stake
            .asks
            .iter()
            .filter(|ask| ask.has_joined && !stood.contains(&ask.ticket))
            .map(|ask| ask.weight)
            .sum();
        self.held.insert(stake.member, stake.held + granted);
        let mut started = Vec::new();
        while let Some(&(member, ticket, weight)) = self.line.first() {
            if weight > limits.heaviest() || self.lane(now).hold(&limits, weight, now).is_some() {
                break;
            }
            self.start(member, weight, weight, now);
            self.line.remove(0);
            started.push((member, ticket));
        }
        let fate = |ask: &Ask| {
            if started.contains(&(stake.member, ask.ticket)) {
                return Fate::Granted;
            }
            match (stood.contains(&ask.ticket), ask.has_joined) {
                (true, _) if ask.weight > limits.heaviest() => Fate::refused(Reason::TooHeavy),
                (true, _) => Fate::Waits,
                (false, true) => Fate::Granted,
                (false, false) => self.enter(stake.member, ask, now),
            }
        };
        stake.asks.iter().map(fate).collect()
    }

    fn enter(&mut self, member: Member, ask: &Ask, now: Tick) -> Fate {
        let limits = self.declared.limits;
        let told = |reason| if reason == Reason::Paused { Reason::Unreachable } else { reason };
        match self.lane(now).decide(&limits, ask.weight, now) {
            Decision::Admit => {
                let kept = if ask.kind == Kind::Check { 0 } else { ask.weight };
                self.start(member, ask.weight, kept, now);
                Fate::Granted
            }
            Decision::Wait(_) if ask.kind == Kind::Enter => {
                self.line.push((member, ask.ticket, ask.weight));
                Fate::Waits
            }
            Decision::Wait(hold) => Fate::refused(told(hold.reason())),
            Decision::Refuse(Reason::QueueFull) if ask.kind != Kind::Enter => Fate::refused(Reason::Busy),
            Decision::Refuse(reason) => Fate::refused(told(reason)),
        }
    }

    fn start(&mut self, member: Member, weight: u32, kept: u32, now: Tick) {
        let mut lane = self.lane(now);
        lane.set_waiting(0);
        lane.admit(&self.declared.limits, weight, now);
        self.rate = lane.rate();
        *self.held.entry(member).or_default() += kept;
    }

    fn lane(&self, now: Tick) -> Lane {
        let mut lane = Lane::with_counts(self.held.values().sum(), self.rate);
        lane.set_waiting(self.line.len() as u32);
        if now < self.declared.opens {
            lane.pause();
        }
        lane
    }
}
