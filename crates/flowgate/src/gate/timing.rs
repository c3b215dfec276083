//! What a desk does because time passes: waits that end, rates that refill, idle lanes that rest.
//!
//! Owns the moments: one alarm per desk stands for all of them. It never admits anyone itself: it calls
//! [`State::pump`].

use flowgate_core::{Reason, Tick};

use super::{
    due::Due,
    lanes::Lanes,
    state::{State, in_force},
};

/// So few moments are not worth taking out.
const SPARE_MOMENTS: usize = 64;

impl State {
    /// Does all that is due.
    pub(crate) fn expire(&mut self, now: Tick) {
        if self.closing.is_some_and(|deadline| deadline <= now) {
            self.turn_away(Reason::Closed, |_| true);
            self.wake_closers();
        }
        self.expire_line_at(now);
        while let Some((at, index, serial)) = self.timed.first()
            && at <= now
        {
            self.timed.pop();
            if let Some(slot) = self.lanes.same(index, serial)
                && slot.is_timed
            {
                slot.is_timed = false;
                self.pump(index);
                self.rest(index);
            }
        }
        self.expire_backlogs(now);
        if self.sweep_at <= now {
            while self.sweep(now) {}
            self.sweep_at = Tick::NEVER;
            self.sweep_later(now);
        }
    }

    /// Looks after idle lanes once a period and a quarter, so that many are swept at once.
    fn sweep_later(&mut self, now: Tick) {
        if self.sweep_at == Tick::NEVER
            && self.idle.first().is_some()
            && let Some(rate) = self.limits.rate()
        {
            self.sweep_at = now.after(rate.period().as_duration() * 5 / 4);
        }
    }

    /// Turns away those who have waited too long.
    pub(crate) fn expire_line(&mut self) {
        if self.limits.timeout().is_some() {
            self.expire_line_at(self.now());
        }
    }

    fn expire_line_at(&mut self, now: Tick) {
        if let Some(timeout) = self.limits.timeout() {
            self.turn_away(Reason::QueueTimeout, |since| since.after(timeout) <= now);
        }
    }

    /// Turns away the longest-waiting ones for as long as `is_over` says so of when they came; only then do those behind
    /// them have their chance, so that nobody is handed a slot after its own time was over.
    fn turn_away(&mut self, reason: Reason, is_over: impl Fn(Tick) -> bool) {
        let mut lanes = Vec::new();
        while let Some((since, ticket)) = self.line.oldest()
            && is_over(since)
        {
            lanes.push(self.line[ticket].lane);
            self.refuse(ticket, reason);
        }
        lanes.sort_unstable();
        lanes.dedup();
        for index in lanes {
            self.look_after(index);
        }
    }

    /// Lets those in a lane start who can, and the lane rest if it is idle. Where that is done for many, a lane that rests may
    /// have made others leave whose rate has rested: those are gone.
    fn look_after(&mut self, index: u32) {
        if self.lanes.has(index) {
            self.pump(index);
            self.rest(index);
        }
    }

    /// Looks at the lane again when its rate has refilled.
    pub(crate) fn set_time(&mut self, index: u32, until: Tick) {
        let slot = &mut self.lanes[index];
        if !slot.is_timed {
            slot.is_timed = true;
            self.timed.push(until, index, slot.serial);
            tidy(&mut self.timed, &mut self.lanes);
        }
    }

    /// Forgets a lane that means nothing any more; lists one that is idle and does.
    #[inline]
    pub(crate) fn rest(&mut self, index: u32) {
        let slot = &self.lanes[index];
        if !self.is_keyed || !slot.lane.is_idle() || slot.is_pinned() {
            return;
        }
        if self.limits.rate().is_none() {
            self.forget(index);
            return;
        }
        let now = self.now();
        self.rest_at(index, now);
    }

    /// As [`State::rest`], for a lane of a gate with a rate.
    #[inline]
    pub(super) fn rest_at(&mut self, index: u32, now: Tick) {
        let slot = &self.lanes[index];
        if slot.lane.rests_at(&self.limits) <= now {
            self.forget(index);
        } else if !slot.is_listed() {
            let (at, serial) = (slot.used_at, slot.serial);
            self.lanes[index].set_listed(true);
            self.idle.push(at, index, serial);
            tidy(&mut self.idle, &mut self.lanes);
            // Two out for one in: the list shrinks as it is used.
            let _ = self.sweep(now) && self.sweep(now);
            self.sweep_later(now);
        }
    }

    #[inline]
    pub(crate) fn forget(&mut self, index: u32) {
        self.remove_lane(index);
        self.spare += 1;
    }

    /// Forgets the least recently used idle lane if its rate has rested; `false` if there was none.
    fn sweep(&mut self, now: Tick) -> bool {
        match self.least_recently_used() {
            Some((_, index)) if self.lanes[index].lane.rests_at(&self.limits) <= now => {
                self.idle.pop();
                self.forget(index);
                true
            }
            _ => false,
        }
    }

    /// Forgets the least recently used idle lane, whatever its rate remembers; `false` if all lanes are in use.
    pub(crate) fn evict(&mut self) -> bool {
        let Some((_, index)) = self.least_recently_used() else { return false };
        self.idle.pop();
        self.forget(index);
        true
    }

    /// The first of the idle list, once entries that are no longer true have been put right.
    pub(crate) fn least_recently_used(&mut self) -> Option<(Tick, u32)> {
        while let Some((at, index, serial)) = self.idle.first() {
            match self.lanes.same(index, serial) {
                Some(slot) if slot.lane.is_idle() && !slot.is_pinned() => {
                    if slot.used_at == at {
                        return Some((at, index));
                    }
                    // Used since it was listed: this is where it belongs now.
                    let used_at = slot.used_at;
                    self.idle.pop();
                    self.idle.push(used_at, index, serial);
                }
                Some(slot) => {
                    slot.set_listed(false);
                    self.idle.pop();
                }
                None => self.idle.pop(),
            }
        }
        None
    }

    /// At or before when the least recently used idle lane was used.
    #[inline]
    pub(crate) fn idle_since(&self) -> Tick {
        self.idle.first().map_or(Tick::NEVER, |(at, ..)| at)
    }

    /// Whether what other desks look for has changed, where no lane is ever idle.
    #[inline]
    pub(crate) fn has_to_show(&self) -> bool {
        !self.shown.contains(&self.spare)
    }

    /// Whether anything here depends on time passing, or waits for the drain.
    #[inline]
    pub(crate) fn is_eventful(&self) -> bool {
        self.closing.is_some()
            || self.sweep_at != Tick::NEVER
            || self.timed.first().is_some()
            || (self.line.waiting() > 0 && (self.limits.timeout().is_some() || self.is_codel))
    }

    /// When something is due next.
    pub(crate) fn next_due(&self) -> Tick {
        let timed = self.timed.first().map_or(Tick::NEVER, |(at, ..)| at);
        let late = match (self.line.oldest(), self.limits.timeout()) {
            (Some((since, _)), Some(timeout)) => since.after(timeout),
            _ => Tick::NEVER,
        };
        let backlog = match self.backlogs.first() {
            Some((at, _)) if !self.is_paused => at,
            _ => Tick::NEVER,
        };
        let closing = match self.closing {
            Some(deadline) if self.line.waiting() > 0 || !self.closers.is_empty() => deadline,
            _ => Tick::NEVER,
        };
        timed.min(self.sweep_at).min(late).min(backlog).min(closing)
    }

    /// Looks at every lane anew, after limits changed or a pause ended.
    pub(crate) fn pump_all(&mut self) {
        self.timed = Default::default();
        let all = self.lanes.indices();
        all.iter().for_each(|&index| self.lanes[index].is_timed = false);
        all.into_iter().for_each(|index| self.look_after(index));
    }

    /// Carries what every lane has spent of its rate over to other limits.
    pub(crate) fn carry_rates(&mut self, limits: &flowgate_core::Limits, now: Tick) {
        for index in self.lanes.indices() {
            let slot = &mut self.lanes[index];
            if !slot.is_pinned() {
                slot.lane.relimit(in_force(&self.limits, &self.pins, slot), limits, now);
            }
        }
    }
}

/// Lanes that came and went leave moments behind; so that those never outnumber the lanes there are by much, they are
/// taken out as often as there are twice as many.
fn tidy(moments: &mut Due, lanes: &mut Lanes) {
    if moments.len() > 2 * lanes.len() + SPARE_MOMENTS {
        moments.tidy(|index, serial| lanes.same(index, serial).is_some());
    }
}
