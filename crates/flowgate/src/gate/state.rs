//! What one desk knows, and what each step changes: the gate's rules at work, under the desk's lock.
//!
//! Owns entering, leaving, waiting and handing over. Who may start is asked of [`Lane::decide`] and [`Lane::hold`] only.
//! No user code runs here: wakers to wake or to drop are collected and dealt with when the lock is gone.

use std::{collections::BTreeMap, num::NonZeroU32, ops::Range, sync::Arc, task::Waker, time::Duration};

use flowgate_core::{
    AdaptiveState, Decision, Hold, Key, Lane, Limits, Outcome, Rate, RateState, Reason, Sample, Spot, Tick,
};

use super::{
    backlogs::Backlogs,
    desk::Desk,
    due::Due,
    full::Full,
    holding,
    lanes::{Lanes, Slot},
    line::{Line, Waiter},
    lone::Lone,
    meta::Meta,
    name::Name,
    reentry::{Hands, Knots},
    seat::{Fate, Seat},
    wait::{Ready, Wait},
    wakes::Wakes,
};

/// In this order in memory, a cache line after the other, so that a step on another processor has few of them to fetch: with
/// the desk's lock what entries and exits of a lone lane write, and what those who wait and those who hand over write; what
/// is only read where nothing unusual goes on; what entries and exits of several lanes write.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct State {
    /// Lanes this desk may add before it has to ask for more.
    pub(crate) spare: u32,
    /// Whether the counts are out on the express lane.
    pub(crate) is_out: bool,
    /// Whether the lane of a gate without keys does not say who waits in it, as the line does: steps that take the short way
    /// leave that for the next that does not, so that the lane is only read.
    pub(crate) is_behind: bool,
    pub(crate) is_keyed: bool,
    /// Whether leaving means giving a count back and nothing else, as long as nobody waits.
    pub(crate) is_plain: bool,
    pub(super) lone: Lone,
    pub(crate) line: Line,
    /// `max`, where steps may take the short way: [`State::max_if_brisk`], as of the last step that took the long one.
    pub(super) brisk: Option<NonZeroU32>,
    pub(crate) is_paused: bool,
    /// Whether CoDel is the discipline of any lane here.
    pub(super) is_codel: bool,
    /// No handle is left: when the last pass is back, the desk can serve another gate.
    pub(crate) is_orphan: bool,
    /// Whether an alarm could not be set: the next step tries again, so it takes the long way.
    pub(super) is_unset: bool,
    /// While `spare` is one of these, what other desks look for is as it was shown to them.
    pub(super) shown: Range<u32>,
    /// The gate this desk belongs to; `None` while it waits in the pool for one.
    pub(crate) owner: Option<Arc<Meta>>,
    /// When the desk's alarm rings next.
    pub(crate) armed: Tick,
    pub(crate) lanes: Lanes,
    /// What the next pass carries along that somebody hears of, where the last has left it.
    pub(super) full: Option<Box<Full>>,
    /// Until when those in line may still start, once the gate is closed.
    pub(crate) closing: Option<Tick>,
    pub(crate) wakes: Wakes,
    /// When idle lanes are looked after next.
    pub(super) sweep_at: Tick,
    pub(super) timed: Due,
    pub(super) idle: Due,
    pub(super) backlogs: Backlogs,
    pub(crate) limits: Limits,
    pub(crate) adaptive: Option<AdaptiveState>,
    pub(crate) pins: BTreeMap<Key, Limits>,
    pub(crate) closers: Vec<Waker>,
    pub(super) knots: Knots,
    /// The rate the express lane was built for.
    pub(crate) express_rate: Option<Rate>,
}

/// Where the lines of the cache begin, a lock's word and its flag before the first.
#[cfg(all(target_pointer_width = "64", not(loom)))]
const _: () = {
    assert!(8 + std::mem::offset_of!(State, line) + super::line::HOT == 64);
    assert!(8 + std::mem::offset_of!(State, lanes) == 128);
};

/// One who asks to enter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) key: Option<(&'a Name<'a>, u32)>,
    pub(crate) weight: u32,
    /// The desk's own address, by which is found what the work that asks holds there; `None` if it holds nothing anywhere.
    pub(crate) holder: Option<usize>,
    /// Whether the moment of admission has to be known.
    pub(crate) is_timed: bool,
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Entry {
    In(Admission),
    Line(Place),
    Out(Turned),
    /// A lane has to be added and there is no room for one here.
    NoRoom,
}

/// A place in line.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) lane: u32,
    /// Where it stands; good for as long as its fate is [`Fate::Waiting`], as [`State::fate`] knows it.
    pub(crate) ticket: u32,
    pub(crate) since: Tick,
    pub(crate) depth: u32,
    pub(crate) seat: Arc<Seat>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    pub(crate) lane: u32,
    pub(crate) weight: u32,
    pub(crate) in_use: u32,
    pub(crate) started: Tick,
    pub(crate) waited: Duration,
}

/// A refusal, as far as a desk knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turned {
    pub(crate) reason: Reason,
    pub(crate) in_use: u32,
    pub(crate) waiting: u32,
    pub(crate) max: Option<u32>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) held_at: Option<Spot>,
}

impl<'a> Ask<'a> {
    /// An ordinary question about a key.
    pub(crate) fn of(desk: &'static Desk, key: Option<(&'a Name<'a>, u32)>) -> Self {
        Ask { key, weight: 1, holder: holding::is_any().then(|| desk.address()), is_timed: false }
    }

    /// Which passes of a lane the work that asks holds, and where it took the last.
    pub(super) fn hands_of(&self, lane: u32) -> Option<(Hands, Spot)> {
        holding::held(self.holder?, lane)
    }
}

impl Turned {
    pub(crate) fn new(reason: Reason) -> Self {
        Turned { reason, in_use: 0, waiting: 0, max: None, retry_after: None, held_at: None }
    }
}

impl State {
    /// Enters, joins the line if there is a waker to wake, or is refused.
    #[inline]
    pub(crate) fn enter(&mut self, ask: &Ask<'_>, wait: Option<&Wait<'_>>) -> Entry {
        if self.closing.is_some() {
            let found = self.find(ask);
            return Entry::Out(self.turned(found, Reason::Closed));
        }
        let now = if ask.is_timed || self.needs_time() { self.now() } else { Tick::ZERO };
        let found = self.find(ask);
        let mut lane = found.map_or(Lane::default(), |index| self.lanes[index].lane);
        if self.is_paused {
            lane.pause();
        }
        let limits = self.limits_at(found);
        match lane.decide(limits, ask.weight, now) {
            Decision::Admit => {
                lane.admit(limits, ask.weight, now);
                let Some(index) = self.put(found, ask, lane) else { return Entry::NoRoom };
                self.lanes[index].used_at = now;
                self.lanes.taken += u64::from(ask.weight);
                let (weight, in_use) = (ask.weight, lane.in_use());
                Entry::In(Admission { lane: index, weight, in_use, started: now, waited: Duration::ZERO })
            }
            // One who would not wait is not told of the line.
            Decision::Refuse(Reason::QueueFull) if wait.is_none() => {
                let reason = lane.hold(limits, ask.weight, now).unwrap_or(Hold::Line).reason();
                Entry::Out(self.refusal_of(ask, found, lane, reason, now))
            }
            Decision::Refuse(reason) => Entry::Out(self.refusal_of(ask, found, lane, reason, now)),
            Decision::Wait(hold) => match (wait, self.waits_for_itself(ask, found, now)) {
                (_, Some(held_at)) => {
                    let turned = self.turned(found, Reason::Reentrant);
                    Entry::Out(Turned { held_at: Some(held_at), ..turned })
                }
                (None, None) => Entry::Out(self.refusal_of(ask, found, lane, hold.reason(), now)),
                (Some(wait), None) => self.join(ask, found, hold, wait),
            },
        }
    }

    /// Enters and leaves at once.
    #[inline]
    pub(crate) fn check(&mut self, ask: &Ask<'_>) -> Entry {
        let entry = self.enter(ask, None);
        if let Entry::In(Admission { lane, weight, started, .. }) = entry {
            self.lanes.taken -= u64::from(weight);
            let slot = &mut self.lanes[lane];
            slot.lane.settle(weight);
            let is_resting = self.is_keyed && slot.lane.is_idle() && !slot.is_pinned();
            match self.limits.rate() {
                Some(_) if is_resting => self.rest_at(lane, started),
                _ => self.rest(lane),
            }
        }
        entry
    }

    /// A pass comes back.
    #[inline]
    pub(crate) fn leave(&mut self, index: u32, weight: u32, started: Tick, outcome: Outcome) {
        if !self.is_plain || self.line.waiting() > 0 {
            return self.leave_slowly(index, weight, started, outcome);
        }
        self.lanes.taken -= u64::from(weight);
        let slot = &mut self.lanes[index];
        slot.lane.settle(weight);
        if self.is_keyed && slot.lane.is_idle() {
            self.forget(index);
        }
    }

    /// A pass comes back where somebody waits, or where more than a count has to be kept.
    fn leave_slowly(&mut self, index: u32, weight: u32, started: Tick, outcome: Outcome) {
        if self.line.waiting() > 0 {
            self.expire_line();
            if self.hand_over(index, weight) {
                return;
            }
        }
        let in_use = self.lanes[index].lane.in_use();
        self.lanes[index].lane.settle(weight);
        self.lanes.taken -= u64::from(weight);
        // One that went out before the gate adapted has no start to count from.
        if self.adaptive.is_some() && started != Tick::ZERO {
            let sample = Sample { started, ended: self.now(), in_use, outcome };
            self.adapt(sample);
        }
        self.pump(index);
        self.rest(index);
    }

    /// Gives what comes back straight to the head of the row, if that is all there is to it; else [`State::pump`] sees to it.
    fn hand_over(&mut self, index: u32, weight: u32) -> bool {
        let slot = &self.lanes[index];
        let Some(ticket) = slot.row.first().filter(|_| self.is_plain && !self.is_codel && !self.is_paused)
        else {
            return false;
        };
        if !slot.lane.hands_over(&self.limits, weight, self.line[ticket].weight) {
            return false;
        }
        let (spent, in_use) = (slot.lane.rate(), slot.lane.in_use());
        let at = if self.tells_time() { self.now() } else { Tick::ZERO };
        self.dismiss(ticket, Fate::Granted { at, spent, in_use });
        // Nobody behind can start, but one too heavy for a lower `max` has reached the head and can be told so.
        if self.lanes[index].row.first().is_some_and(|next| self.line[next].weight > self.limits.heaviest()) {
            self.pump(index);
        }
        true
    }

    /// One who still waits is to be woken by another waker from now on; else what became of it.
    pub(crate) fn renew(&mut self, place: &Place, waker: &Waker) -> Fate {
        let fate = self.fate(place);
        if fate == Fate::Waiting && !self.line[place.ticket].waker.will_wake(waker) {
            let old = std::mem::replace(&mut self.line[place.ticket].waker, waker.clone());
            self.wakes.drop_later(old);
        }
        fate
    }

    /// One who waited gives up: it leaves the line, or passes on what it was handed.
    pub(crate) fn cancel(&mut self, place: &Place, weight: u32) {
        let index = place.lane;
        match self.fate(place) {
            Fate::Waiting => {
                let waiter = self.part(place.ticket);
                self.wakes.drop_later(waiter.waker);
                self.pump(index);
                self.rest(index);
            }
            Fate::Granted { spent, .. } => {
                let now = if self.needs_time() { self.now() } else { Tick::ZERO };
                let slot = &mut self.lanes[index];
                slot.lane.refund(in_force(&self.limits, &self.pins, slot), spent, now);
                self.leave(index, weight, Tick::ZERO, Outcome::Ignored);
            }
            Fate::Refused { .. } => {}
        }
    }

    /// Hands slots over to whoever is next in the row for as long as nothing holds it.
    pub(crate) fn pump(&mut self, index: u32) {
        if self.lanes[index].row.first().is_none() || self.is_paused {
            return;
        }
        let now = if self.tells_time() { self.now() } else { Tick::ZERO };
        if self.is_codel {
            self.turn_away_late(index, now);
        }
        while let Some(ticket) = self.next_in(index, now) {
            let weight = self.line[ticket].weight;
            let slot = &mut self.lanes[index];
            let limits = in_force(&self.limits, &self.pins, slot);
            if weight > limits.heaviest() {
                self.refuse(ticket, Reason::TooHeavy);
                continue;
            }
            match slot.lane.hold(limits, weight, now) {
                None => {
                    slot.lane.admit(limits, weight, now);
                    slot.used_at = now;
                    let (spent, in_use) = (slot.lane.rate(), slot.lane.in_use());
                    self.lanes.taken += u64::from(weight);
                    self.dismiss(ticket, Fate::Granted { at: now, spent, in_use });
                }
                Some(Hold::Slots) if self.is_knotted(index) => self.cut_knot(index),
                Some(hold) => {
                    if let Hold::Rate { until } = hold {
                        self.set_time(index, until);
                    }
                    if !self.is_codel || !self.halt_backlog(index, ticket, hold, now) {
                        return;
                    }
                }
            }
        }
    }

    /// Turns away one who waits.
    pub(crate) fn refuse(&mut self, ticket: u32, reason: Reason) {
        let Turned { in_use, waiting, max, .. } = self.turned(Some(self.line[ticket].lane), reason);
        self.dismiss(ticket, Fate::Refused { reason, in_use, waiting, max });
    }

    /// The fate of one who waits is decided: it leaves its row and is woken.
    fn dismiss(&mut self, ticket: u32, fate: Fate) {
        let waiter = self.part(ticket);
        waiter.seat.decide(fate);
        self.wakes.wake_later(waiter.waker, waiter.seat);
    }

    /// Takes one out of its row.
    fn part(&mut self, ticket: u32) -> Waiter {
        let slot = &mut self.lanes[self.line[ticket].lane];
        slot.lane.leave();
        let waiter = self.line.part(&mut slot.row, ticket);
        if waiter.is_holder {
            self.knots.part(waiter.lane, ticket);
        }
        if self.is_codel {
            self.leave_backlog(waiter.lane, ticket);
        }
        waiter
    }

    fn join(&mut self, ask: &Ask<'_>, found: Option<u32>, hold: Hold, wait: &Wait<'_>) -> Entry {
        let Some(index) = found.or_else(|| self.put(None, ask, Lane::default())) else {
            return Entry::NoRoom;
        };
        let hands = ask.hands_of(index).map(|(hands, _)| hands);
        let Ready { since, waker, seat } = wait.take(|| self.now());
        let waiter = Waiter::new(index, ask.weight, hands.is_some(), since, waker, Arc::clone(&seat));
        let slot = &mut self.lanes[index];
        slot.lane.join();
        let depth = slot.lane.waiting();
        let ticket = self.line.join(&mut slot.row, waiter);
        if let Some(hands) = hands {
            self.knots.join(index, ticket, hands);
        }
        if let Hold::Rate { until } = hold {
            self.set_time(index, until);
        }
        if self.is_codel {
            self.begin_backlog(index, hold, since);
        }
        Entry::Line(Place { lane: index, ticket, since, depth, seat })
    }

    /// The lane as it is now, put in if it was not there; `None` if there is no room for one more.
    #[inline]
    fn put(&mut self, found: Option<u32>, ask: &Ask<'_>, lane: Lane) -> Option<u32> {
        let index = match found {
            Some(index) => index,
            None => {
                let (key, hash) = ask.key?;
                self.spare = self.spare.checked_sub(1)?;
                self.insert_lane(hash, key)
            }
        };
        self.lanes[index].lane = lane;
        Some(index)
    }

    #[inline]
    pub(crate) fn find(&self, ask: &Ask<'_>) -> Option<u32> {
        match ask.key {
            Some((key, hash)) => self.lanes.find(hash, key.as_bytes()),
            None => Some(0),
        }
    }

    fn refusal_of(&self, ask: &Ask<'_>, found: Option<u32>, lane: Lane, reason: Reason, now: Tick) -> Turned {
        let held_at = match reason {
            Reason::Busy | Reason::QueueFull => self.waits_for_itself(ask, found, now),
            _ => None,
        };
        let reason = if held_at.is_some() { Reason::Reentrant } else { reason };
        let retry_after = match lane.hold(self.limits_at(found), ask.weight, now) {
            Some(Hold::Rate { until }) => Some(until.since(now)),
            _ => None,
        };
        Turned { retry_after, held_at, ..self.turned(found, reason) }
    }

    /// A refusal with what is seen in a lane.
    pub(crate) fn turned(&self, found: Option<u32>, reason: Reason) -> Turned {
        let lane = found.map_or(Lane::default(), |index| self.lanes[index].lane);
        let max = self.limits_at(found).max();
        Turned { in_use: lane.in_use(), waiting: lane.waiting(), max, ..Turned::new(reason) }
    }

    #[inline]
    pub(crate) fn limits_at(&self, found: Option<u32>) -> &Limits {
        match found {
            Some(index) => in_force(&self.limits, &self.pins, &self.lanes[index]),
            None => &self.limits,
        }
    }

    fn adapt(&mut self, sample: Sample) {
        if let (Some(state), Some(rule)) = (&mut self.adaptive, self.limits.adaptive()) {
            let max = rule.observe(state, sample);
            self.limits = self.limits.moved_to(max);
        }
    }

    /// Whether admissions here are timed.
    #[inline]
    fn needs_time(&self) -> bool {
        self.limits.rate().is_some() || self.adaptive.is_some() || !self.pins.is_empty()
    }

    /// Whether anybody asks what time it is when a slot is handed over.
    fn tells_time(&self) -> bool {
        self.needs_time() || self.is_codel || self.owner.as_ref().is_some_and(|meta| meta.bus.is_on())
    }

    pub(crate) fn now(&self) -> Tick {
        self.owner.as_ref().map_or(Tick::ZERO, |meta| meta.time.now())
    }

    /// The free slots and the rate's state that the express lane may carry now, if it may.
    pub(crate) fn express(&self) -> (Option<u32>, Option<RateState>) {
        let is_quiet = !self.is_keyed
            && !self.is_paused
            && self.closing.is_none()
            && !self.is_orphan
            && self.owner.is_some()
            && self.adaptive.is_none()
            && self.line.waiting() == 0;
        if !is_quiet {
            return (None, None);
        }
        let lane = &self.lanes[0].lane;
        match (self.limits.max(), self.limits.rate()) {
            (Some(max), None) => (max.checked_sub(lane.in_use()), None),
            (None, Some(rate)) if self.express_rate.as_ref() == Some(rate) => (None, Some(lane.rate())),
            _ => (None, None),
        }
    }
}

/// The limits that hold in a lane: its own where some are pinned.
#[inline]
pub(crate) fn in_force<'a>(limits: &'a Limits, pins: &'a BTreeMap<Key, Limits>, slot: &Slot) -> &'a Limits {
    if slot.is_pinned() { pins.get(&slot.key).unwrap_or(limits) } else { limits }
}
