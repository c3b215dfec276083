//! A desk: a lock, what it guards, and the express lane beside it.
//!
//! A gate without keys has one desk, a gate with keys several, each for a share of the keys. Owns how the lock is taken and
//! left: the counts come in from the express lane and go back out, alarms are set, and wakers are woken only when the lock
//! is gone.
//!
//! Desks are never freed: one whose gate is gone waits in a pool for the next gate. So a pass is a plain reference, not a
//! counted one (which would cost half as much again as the whole entry), and there is no moment at which a late exit could
//! touch freed memory.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
};

use flowgate_core::{Lane, Outcome, Tick};

use super::{
    brisk::Left,
    express::Express,
    full::Full,
    name::Name,
    pass::Slot,
    state::{Ask, Entry, Place, State},
    wait::{Ready, Wait},
    wakes::{Wakes, discard},
};
use crate::{
    clock::Alarm,
    sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, lock},
};

#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) express: Express,
    state: Mutex<State>,
    /// Whether there was anything in `State::spare` when the lock was last left.
    spare: AtomicU32,
    /// At or before when the least recently used idle lane was used.
    oldest: AtomicU64,
}

/// A desk that somebody has locked.
pub(crate) struct Locked(MutexGuard<'static, State>);

impl Desk {
    /// A desk that serves this gate.
    pub(crate) fn hire(state: State) -> &'static Self {
        match pool::take() {
            Some(desk) => {
                *lock(&desk.state) = state;
                desk.spare.store(0, Ordering::Relaxed);
                desk.oldest.store(Tick::NEVER.as_nanos(), Ordering::Relaxed);
                desk.at(|_| ());
                desk
            }
            None => {
                let desk: &'static Desk = Box::leak(Box::new(Desk {
                    express: Express::new(),
                    state: Mutex::new(state),
                    spare: AtomicU32::new(0),
                    oldest: AtomicU64::new(u64::MAX),
                }));
                desk.at(|_| ());
                desk
            }
        }
    }

    /// The gate is gone: as soon as the last pass is back, the desk can serve another.
    pub(crate) fn dismiss(&'static self) {
        self.at(|state| state.is_orphan = true);
    }

    /// Does something at the desk, with the lock held and all counts here; then puts things in order and wakes who has to
    /// be woken.
    #[inline]
    pub(crate) fn at<R>(&'static self, step: impl FnOnce(&mut State) -> R) -> R {
        let mut state = lock(&self.state);
        self.begin(&mut state);
        let result = step(&mut state);
        self.finish(state);
        result
    }

    /// As [`Desk::at`], for one who holds another lock: whoever has to be woken comes back, to be woken when that is gone.
    pub(crate) fn change<R>(&'static self, step: impl FnOnce(&mut State) -> R) -> (R, Wakes) {
        let mut state = lock(&self.state);
        self.begin(&mut state);
        let result = step(&mut state);
        state.tell_drained();
        let wakes = std::mem::take(&mut state.wakes);
        self.finish(state);
        (result, wakes)
    }

    /// Looks at the desk, with the lock held. Where all counts are there already, nothing has to be put in order after it. A lone
    /// lane stays what it is, and is not found by its key.
    #[inline]
    pub(crate) fn see<R>(&'static self, look: impl FnOnce(&State) -> R) -> R {
        let state = lock(&self.state);
        if !state.is_out && !state.is_behind {
            return look(&state);
        }
        drop(state);
        self.at(|state| look(state))
    }

    /// Looks at several desks at one moment.
    pub(crate) fn look<R>(desks: &[&'static Desk], look: impl FnOnce(&[&State]) -> R) -> R {
        if let [only] = desks {
            return only.at(|state| look(&[state]));
        }
        // Desks of a gate with keys: nothing is ever out on their express lanes.
        let locked: Vec<_> = desks.iter().map(|desk| lock(&desk.state)).collect();
        let states: Vec<&State> = locked.iter().map(|state| &**state).collect();
        look(&states)
    }

    /// Room for lanes at any of these desks of a gate with keys, or that of its least recently used idle lane, all seen at
    /// one moment. Zero means that at that moment every lane was in use.
    pub(super) fn take_room(desks: &[&'static Desk]) -> u32 {
        let mut locked: Vec<_> = desks.iter().map(|desk| (desk, lock(&desk.state))).collect();
        let spare = locked.iter_mut().find(|(_, state)| state.spare > 0);
        if let Some((desk, state)) = spare {
            let room = std::mem::take(&mut state.spare);
            desk.show(state);
            return room;
        }
        let idle = |(_, state): &mut (_, MutexGuard<'_, State>)| state.least_recently_used();
        let oldest =
            locked.iter_mut().filter_map(|each| Some((idle(each)?.0, each))).min_by_key(|&(at, _)| at);
        oldest.map_or(0, |(_, (desk, state))| {
            state.evict();
            let room = std::mem::take(&mut state.spare);
            desk.show(state);
            room
        })
    }

    /// Enters a key's lane if it has room and nothing unusual goes on: the lane, and how much of it is in use now. One
    /// who is heard also gets what the last one left here. Else the desk is still locked, for [`Desk::enter`].
    #[inline]
    pub(super) fn enter_brisk(
        &'static self,
        key: &Name<'_>,
        hash: u32,
        weight: u32,
        is_heard: bool,
    ) -> Result<(u32, u32, Option<Box<Full>>), Locked> {
        let mut state = lock(&self.state);
        let Some((lane, in_use)) = state.enter_brisk(key, hash, weight) else { return Err(Locked(state)) };
        let full = if is_heard { state.full.take() } else { None };
        if state.has_to_show() {
            self.show(&mut state);
        }
        Ok((lane, in_use, full))
    }

    /// Enters, joins the line if that is wanted, or is refused.
    pub(crate) fn enter(&'static self, locked: Locked, ask: &Ask<'_>, wait: Option<&Wait<'_>>) -> Entry {
        let Locked(mut state) = locked;
        self.begin(&mut state);
        let entry = state.enter(ask, wait);
        self.finish(state);
        entry
    }

    /// Spends one start of a key's lane if nothing else comes of it. Else the desk is still locked, for [`Desk::check`].
    #[inline]
    pub(crate) fn check_brisk(&'static self, key: &Name<'_>, hash: u32) -> Result<(), Locked> {
        let mut state = lock(&self.state);
        if state.check_brisk(key, hash) { Ok(()) } else { Err(Locked(state)) }
    }

    /// Enters and leaves at once, or is refused.
    pub(crate) fn check(&'static self, locked: Locked, ask: &Ask<'_>) -> Entry {
        let Locked(mut state) = locked;
        self.begin(&mut state);
        let entry = state.check(ask);
        self.finish(state);
        entry
    }

    /// Joins the line behind others if there is one and nothing unusual goes on. Else the desk is still locked.
    ///
    /// Behind others, nothing is due earlier than before: the alarm is set.
    #[inline]
    pub(crate) fn join_brisk(&'static self, weight: u32, ready: Ready) -> Result<Place, (Locked, Ready)> {
        let mut state = lock(&self.state);
        state.join_brisk(weight, ready).map_err(|ready| (Locked(state), ready))
    }

    /// Locks, for [`Desk::enter`].
    pub(crate) fn lock(&'static self) -> Locked {
        Locked(lock(&self.state))
    }

    /// One who waited gives up.
    pub(crate) fn cancel(&'static self, place: &Place, weight: u32) {
        let mut state = lock(&self.state);
        if let Some(waker) = state.cancel_brisk(place) {
            drop(state);
            return discard(waker);
        }
        self.begin(&mut state);
        state.cancel(place, weight);
        self.finish(state);
    }

    /// A pass comes back that the express lane could not take.
    #[inline(never)]
    pub(super) fn leave(&'static self, lane: u32, weight: u32, outcome: Outcome) {
        self.leave_with(Slot { desk: self, lane, weight, started: Tick::ZERO }, outcome, |_| ());
    }

    /// The same with all that it carried along, which stays here for the next if it may; else it comes back.
    #[inline]
    pub(super) fn leave_full(&'static self, full: Box<Full>, outcome: Outcome) -> Option<Box<Full>> {
        let (slot, mut full) = (full.slot(), Some(full));
        self.leave_with(slot, outcome, |state| {
            if state.full.is_none() && full.as_ref().is_some_and(|full| full.is_told()) {
                state.full = full.take();
            }
        });
        full
    }

    /// `settled` is called if nobody waits and nothing unusual goes on.
    #[inline(always)]
    fn leave_with(&'static self, slot: Slot, outcome: Outcome, settled: impl FnOnce(&mut State)) {
        let mut state = lock(&self.state);
        if !state.settle_brisk(slot.lane, slot.weight) {
            return self.leave_busy(state, slot, outcome);
        }
        settled(&mut state);
        if state.has_to_show() {
            self.show(&mut state);
        }
    }

    /// Somebody waits, or something unusual goes on.
    #[inline(never)]
    fn leave_busy(&'static self, mut state: MutexGuard<'_, State>, slot: Slot, outcome: Outcome) {
        match state.leave_brisk(slot.lane, slot.weight) {
            Left::Handed(handed) => {
                if !state.is_keyed && state.line.waiting() == 0 {
                    state.catch_up();
                    self.put(&mut state);
                }
                drop(state);
                handed.tell();
            }
            Left::HandedSlowly => self.finish(state),
            Left::Not => {
                self.begin(&mut state);
                state.leave(slot.lane, slot.weight, slot.started, outcome);
                self.finish(state);
            }
        }
    }

    /// By what holders find it.
    pub(crate) fn address(&'static self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    pub(super) fn spare(&self) -> u32 {
        self.spare.load(Ordering::Relaxed)
    }

    pub(super) fn oldest(&self) -> Tick {
        Tick::from_nanos(self.oldest.load(Ordering::Relaxed))
    }

    /// All counts are here from now on, and say the same.
    #[inline]
    fn begin(&self, state: &mut State) {
        if state.is_out {
            self.fetch(state);
        }
        if state.is_behind {
            state.catch_up();
        }
        if state.lone.is_there() {
            state.move_in();
        }
    }

    /// Leaves the lock with everything in order, then wakes whoever has to be woken.
    #[inline]
    fn finish(&'static self, mut state: MutexGuard<'_, State>) {
        let brisk = state.max_if_brisk();
        // Only written when it changes: who steps the short way only reads that line of the cache.
        if state.brisk != brisk {
            state.brisk = brisk;
        }
        let is_quiet = state.is_plain && state.line.waiting() == 0 && state.closing.is_none();
        if !state.is_keyed {
            if state.line.waiting() == 0 {
                self.put(&mut state);
            }
        } else if !is_quiet || state.has_to_show() {
            self.show(&mut state);
        }
        // Quiet: no time will come at which anything has to be done here.
        if !is_quiet && state.is_eventful() {
            self.arm(&mut state);
        }
        if state.is_orphan || !state.wakes.is_one_at_most() {
            return self.finish_slowly(state);
        }
        // Only looked at where there is nobody: a line that is not written need not be fetched by the next.
        if state.wakes.is_none() {
            return;
        }
        let first = state.wakes.take_one();
        drop(state);
        Wakes::wake_one(first);
    }

    #[inline(never)]
    fn finish_slowly(&'static self, mut state: MutexGuard<'_, State>) {
        let is_free = state.is_orphan && state.in_use() == 0 && state.owner.is_some();
        let gone = is_free.then(|| state.vacate());
        let wakes = std::mem::take(&mut state.wakes);
        drop(state);
        if is_free {
            pool::put(self);
        }
        wakes.wake();
        drop(gone);
    }

    fn fetch(&self, state: &mut State) {
        if let (Some(free), Some(max)) = (self.express.fetch_slots(), state.limits.max()) {
            let in_use = max - free;
            state.lanes.taken = u64::from(in_use);
            let lane = &mut state.lanes[0].lane;
            *lane = Lane::with_counts(in_use, lane.rate());
        }
        if let Some(rate) = self.express.fetch_rate() {
            let lane = &mut state.lanes[0].lane;
            *lane = Lane::with_counts(lane.in_use(), rate);
        }
        state.is_out = false;
    }

    fn put(&self, state: &mut State) {
        let (free, rate) = state.express();
        if let (Some(free), Some(max)) = (free, state.limits.max()) {
            let is_heard = state.owner.as_ref().is_some_and(|meta| meta.bus.is_on());
            self.express.put_slots(free, max, is_heard);
        }
        if let Some(rate) = rate {
            self.express.put_rate(rate, state.lanes[0].lane.in_use());
        }
        state.is_out = free.is_some() || rate.is_some();
    }

    /// Shows what other desks of the gate look for, and gives back what this one has too much of.
    fn show(&self, state: &mut State) {
        let State { owner, spare, .. } = state;
        let mut most = 0;
        if let Some(meta) = owner {
            meta.quota.trim(spare);
            most = meta.quota.most_spare();
        }
        // Only when it changes what others would do: a line that is not written need not be fetched by the next.
        let has_spare = u32::from(*spare > 0);
        if self.spare.load(Ordering::Relaxed) != has_spare {
            self.spare.store(has_spare, Ordering::Relaxed);
        }
        let oldest = state.idle_since();
        if self.oldest() != oldest {
            self.oldest.store(oldest.as_nanos(), Ordering::Relaxed);
        }
        state.shown = match (oldest, has_spare) {
            (Tick::NEVER, 0) => 0..1,
            (Tick::NEVER, _) => 1..most + 1,
            // Each step may change which lane is the oldest.
            _ => 1..1,
        };
    }

    /// Sets the alarm if something is due before it rings; tells those who wait for the drain.
    #[inline(never)]
    fn arm(&'static self, state: &mut State) {
        state.tell_drained();
        let due = state.next_due();
        if due >= state.armed {
            return;
        }
        let Some(meta) = &state.owner else { return };
        // A clock may be code of others. If it panics, the panic hook tells of it, and whoever is here goes on: one who has
        // joined the line has yet to be told its place.
        let set = catch_unwind(AssertUnwindSafe(|| meta.time.wake_at(due, self)));
        // Nor is what it panics with dropped here, under the lock: that is theirs, too.
        let is_set = set.unwrap_or_else(|panic| {
            mem::forget(panic);
            false
        });
        state.is_unset = !is_set;
        if is_set {
            state.armed = due;
        } else {
            state.brisk = None;
        }
    }
}

impl Alarm for Desk {
    fn ring(&'static self) {
        self.at(|state| {
            state.armed = Tick::NEVER;
            let now = state.now();
            state.expire(now);
        });
    }
}

/// Desks without a gate, waiting for the next.
mod pool {
    use std::sync::{Mutex, PoisonError};

    use super::Desk;

    #[cfg(not(loom))]
    static POOL: Mutex<Vec<&'static Desk>> = Mutex::new(Vec::new());
    // Loom's locks do not outlive one run of a model, so each run has a pool of its own.
    #[cfg(loom)]
    loom::lazy_static! {
        static ref POOL: Mutex<Vec<&'static Desk>> = Mutex::new(Vec::new());
    }

    pub(super) fn take() -> Option<&'static Desk> {
        POOL.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    pub(super) fn put(desk: &'static Desk) {
        POOL.lock().unwrap_or_else(PoisonError::into_inner).push(desk);
    }
}
