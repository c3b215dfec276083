//! What an operator does at a desk: other limits, pins, pause, resume, close.
//!
//! Owns the live changes. A change never loses or reorders a waiter, and whoever may start after it starts at
//! once.

use std::{sync::Arc, task::Waker};

use flowgate_core::{Discipline, Limits, Tick};

use super::{
    backlogs::Backlogs,
    due::Due,
    full::Full,
    lanes::Lanes,
    line::Line,
    lone::Lone,
    meta::Meta,
    reentry::Knots,
    state::{Ask, State},
    wakes::Wakes,
};

impl State {
    /// A desk for a gate, open and empty.
    pub(crate) fn open(owner: Arc<Meta>, limits: Limits, is_keyed: bool) -> Self {
        let mut state = State {
            shown: 0..1,
            owner: Some(owner),
            limits,
            adaptive: adaptive(&limits),
            is_keyed,
            is_paused: false,
            closing: None,
            is_orphan: false,
            is_unset: false,
            lone: Lone::new(),
            lanes: Lanes::new(),
            line: Line::new(),
            pins: Default::default(),
            spare: 0,
            closers: Vec::new(),
            knots: Knots::default(),
            express_rate: limits.rate().copied(),
            wakes: Wakes::default(),
            is_plain: is_plain(&limits),
            is_codel: limits.discipline() != Discipline::Fifo,
            is_out: false,
            brisk: None,
            full: None,
            is_behind: false,
            armed: Tick::NEVER,
            sweep_at: Tick::NEVER,
            timed: Due::default(),
            idle: Due::default(),
            backlogs: Backlogs::default(),
        };
        if !is_keyed {
            state.lone.go();
            state.lanes.insert_unlisted();
        }
        state
    }

    /// Gives up all memory: the desk goes to the pool. What it shared with its gate is to be dropped when the lock is gone: there
    /// are listeners in it, and subscribers learn that it is over.
    pub(super) fn vacate(&mut self) -> (Option<Arc<Meta>>, Option<Box<Full>>) {
        self.wake_closers();
        self.lone = Lone::new();
        self.lanes = Lanes::new();
        self.line = Line::new();
        self.pins.clear();
        self.timed = Due::default();
        self.idle = Due::default();
        self.backlogs = Backlogs::default();
        (self.owner.take(), self.full.take())
    }

    /// From now on these limits hold, for those who wait as well.
    pub(crate) fn relimit(&mut self, limits: Limits) {
        let now = self.now();
        self.carry_rates(&limits, now);
        self.limits = limits;
        self.adaptive = adaptive(&limits);
        self.is_plain = is_plain(&limits) && self.pins.is_empty();
        self.renew_backlogs(now);
        if self.limits.timeout().is_some() {
            self.expire_line();
        }
        self.pump_all();
    }

    /// From now on these limits hold for this key, whatever the gate's are.
    pub(crate) fn pin(&mut self, ask: &Ask<'_>, limits: Limits) -> bool {
        let Some((key, hash)) = ask.key else { return false };
        let index = match self.find(ask) {
            Some(index) => index,
            None => {
                let Some(spare) = self.spare.checked_sub(1) else { return false };
                self.spare = spare;
                self.insert_lane(hash, key)
            }
        };
        let now = self.now();
        let old = *self.limits_at(Some(index));
        let slot = &mut self.lanes[index];
        slot.lane.relimit(&old, &limits, now);
        slot.set_pinned(true);
        self.pins.insert(slot.key.clone(), limits);
        self.is_plain = false;
        self.look_again(index, now);
        true
    }

    /// From now on the gate's limits hold for this key again.
    pub(crate) fn unpin(&mut self, ask: &Ask<'_>) -> bool {
        let Some(index) = self.find(ask).filter(|&index| self.lanes[index].is_pinned()) else { return false };
        let now = self.now();
        let old = *self.limits_at(Some(index));
        let slot = &mut self.lanes[index];
        slot.set_pinned(false);
        slot.lane.relimit(&old, &self.limits, now);
        self.pins.remove(&slot.key);
        self.is_plain = is_plain(&self.limits) && self.pins.is_empty();
        self.look_again(index, now);
        true
    }

    fn look_again(&mut self, index: u32, now: Tick) {
        self.is_codel = self.has_codel();
        self.renew_backlog(index, now);
        // A moment set under other limits may be too late; one that comes too early only makes us look once more.
        self.lanes[index].is_timed = false;
        self.pump(index);
        self.rest(index);
    }

    pub(crate) fn pause(&mut self) {
        self.is_paused = true;
    }

    pub(crate) fn resume(&mut self) {
        if std::mem::take(&mut self.is_paused) {
            self.restart_backlogs();
        }
        self.pump_all();
    }

    /// No newcomers from now on; those in line may start until `deadline`.
    pub(crate) fn close(&mut self, deadline: Tick) {
        let sooner = self.closing.map_or(deadline, |set| set.min(deadline));
        self.closing = Some(sooner);
        let now = self.now();
        self.expire(now);
    }

    /// Whether nothing is in flight and nobody waits.
    pub(crate) fn is_drained(&self) -> bool {
        self.in_use() == 0 && self.line.waiting() == 0
    }

    /// Wakes those who wait for the drain, if it is over.
    pub(crate) fn tell_drained(&mut self) {
        if self.closing.is_some() && self.is_drained() {
            self.wake_closers();
        }
    }

    pub(crate) fn wake_closers(&mut self) {
        self.wakes.wake_all_later(&mut self.closers);
    }

    /// Wakes `waker` when the desk is drained or its deadline has come.
    pub(crate) fn tell_when_drained(&mut self, waker: &Waker) {
        if !self.closers.iter().any(|known| known.will_wake(waker)) {
            self.closers.push(waker.clone());
        }
    }
}

fn is_plain(limits: &Limits) -> bool {
    limits.rate().is_none() && limits.adaptive().is_none()
}

fn adaptive(limits: &Limits) -> Option<flowgate_core::AdaptiveState> {
    limits.adaptive().zip(limits.max()).map(|(rule, ceiling)| rule.begin(ceiling))
}
