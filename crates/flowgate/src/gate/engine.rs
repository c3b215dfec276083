//! A gate's desks, and how an entrant finds its own.
//!
//! Owns what all handles of one gate share, and turns a desk's answer into passes, refusals and events. It
//! holds no counts.

use std::{
    hash::{BuildHasher, Hasher},
    sync::Arc,
    task::Poll,
    time::Duration,
};

// A model finds the same desks in each of its runs.
#[cfg(loom)]
use foldhash::fast::FixedState as RandomState;
#[cfg(not(loom))]
use foldhash::fast::RandomState;

use flowgate_core::{Limits, Overflow, Rate, Reason, Refusal, Spot, Tick, What};

#[cfg(feature = "route")]
use super::pass::Stub;
use super::{
    desk::{Desk, Locked},
    express::Missed,
    full::Full,
    holding,
    meta::Meta,
    name::Name,
    pass::Pass,
    state::{Admission, Ask, Entry, State, Turned},
    wait::Wait,
    wakes::Wakes,
};
use crate::sync::{AtomicBool, Mutex, Ordering, lock};

#[derive(Debug)]
pub(crate) struct Engine {
    /// The first desk, and the only one of a gate without keys.
    pub(crate) desk: &'static Desk,
    pub(crate) desks: Box<[&'static Desk]>,
    pub(crate) meta: Arc<Meta>,
    /// The limits as they were set last; held while they are changed, so that changes do not mix.
    set: Mutex<Limits>,
    /// Whether every desk refuses an entrant that cannot start at once.
    rejects: AtomicBool,
    /// Whether `max` follows from how long passes are out.
    adapts: AtomicBool,
    /// The rate this gate was built with, for the express lane.
    rate: Option<Rate>,
    hasher: RandomState,
}

impl Engine {
    /// The engine of a gate; `desks` of them, or one for a gate without keys.
    pub(crate) fn new(meta: Meta, limits: Limits, keyed_desks: Option<u32>) -> Self {
        let meta = Arc::new(meta);
        let is_keyed = keyed_desks.is_some();
        let desks: Box<[&'static Desk]> = (0..keyed_desks.unwrap_or(1))
            .map(|_| Desk::hire(State::open(Arc::clone(&meta), limits, is_keyed)))
            .collect();
        Engine {
            desk: desks[0],
            desks,
            meta,
            set: Mutex::new(limits),
            rejects: AtomicBool::new(limits.overflow() == Overflow::Reject),
            adapts: AtomicBool::new(limits.adaptive().is_some()),
            rate: limits.rate().copied(),
            hasher: RandomState::default(),
        }
    }

    /// The desk of a key, and the key's hash there.
    #[inline]
    pub(crate) fn locate(&self, key: &Name<'_>) -> (&'static Desk, u32) {
        let mut hasher = self.hasher.build_hasher();
        // The bytes and nothing else: this hasher mixes in how many they are.
        hasher.write(key.as_bytes());
        let hash = hasher.finish();
        // Desks go by the upper half of the hash, their tables by the lower.
        (self.desks[(hash >> 32) as usize & (self.desks.len() - 1)], hash as u32)
    }

    /// Takes one slot by the express lane, if that is open, has room, and nobody listens. `None` says nothing at all.
    #[inline]
    pub(crate) fn enter_unheard(&self) -> Option<Pass> {
        self.desk.express.take_unheard().then(|| Pass::plain(self.desk, 0))
    }

    /// The same, to become a pass later.
    #[cfg(feature = "route")]
    #[inline]
    pub(crate) fn express(&self) -> Option<Stub> {
        self.desk.express.take_unheard().then(|| Stub::new(self.desk))
    }

    /// The same for any weight, whether somebody listens or not.
    fn enter_express(&self, weight: u32) -> Option<Answer> {
        let is_on = self.meta.bus.is_on();
        // A clock is code of others: it is asked before there is a slot that it could lose.
        let started = if is_on && self.meta.bus.is_timed() { self.meta.time.now() } else { Tick::ZERO };
        let left = self.desk.express.take(weight)?;
        if is_on {
            let in_use = self.desk.express.in_use(left);
            let admission = Admission { lane: 0, weight, in_use, started, waited: Duration::ZERO };
            return Some(Answer::Full(Full::told(None, self.desk, &self.meta, None, &admission)));
        }
        if self.desk.express.is_heard() {
            // Whoever listened has gone: the next need not come this way.
            self.refresh();
        }
        Some(if weight == 1 {
            Answer::In(self.desk)
        } else {
            Answer::Full(Full::new(self.desk, 0, weight, Tick::ZERO))
        })
    }

    /// The express lane says again whether somebody listens. A gate with keys has none, and of one without there is one desk.
    pub(super) fn refresh(&self) {
        self.desk.at(|_| ());
    }

    /// As [`Engine::enter`] for one who would wait. Where there is a line already and nothing unusual goes on, it joins that.
    #[inline]
    pub(super) fn enter_or_wait(
        &self,
        key: Option<&Name<'_>>,
        weight: u32,
        spot: Spot,
        wait: &Wait<'_>,
        lane: &mut u32,
    ) -> Answer {
        if let Some(key) = key {
            return self.enter_key(key, weight, spot, Some(wait), lane);
        }
        if !self.desk.express.is_away() || self.meta.bus.is_on() || holding::is_any() {
            return self.enter_one(weight, spot, Some(wait), lane);
        }
        match self.desk.join_brisk(weight, wait.make_ready(self.meta.time.now())) {
            Ok(place) => {
                wait.stand(self.desk, place);
                Answer::Line
            }
            Err((locked, ready)) => {
                wait.keep(ready);
                self.enter_locked(locked, weight, spot, wait, lane)
            }
        }
    }

    #[inline(never)]
    fn enter_locked(
        &self,
        locked: Locked,
        weight: u32,
        spot: Spot,
        wait: &Wait<'_>,
        lane: &mut u32,
    ) -> Answer {
        let ask = self.ask(self.desk, None, weight);
        self.enter_desk(self.desk, locked, &ask, spot, Some(wait), lane)
    }

    /// Enters, joins the line if that is wanted, or is refused. See [`Answer::In`] for `lane`.
    #[inline]
    pub(super) fn enter(
        &self,
        key: Option<&Name<'_>>,
        weight: u32,
        spot: Spot,
        wait: Option<&Wait<'_>>,
        lane: &mut u32,
    ) -> Answer {
        match key {
            Some(key) => self.enter_key(key, weight, spot, wait, lane),
            None => self.enter_one(weight, spot, wait, lane),
        }
    }

    #[inline]
    fn enter_key(
        &self,
        key: &Name<'_>,
        weight: u32,
        spot: Spot,
        wait: Option<&Wait<'_>>,
        lane: &mut u32,
    ) -> Answer {
        let (desk, hash) = self.locate(key);
        let started = if self.meta.bus.is_timed() { self.meta.time.now() } else { Tick::ZERO };
        match desk.enter_brisk(key, hash, weight, self.meta.bus.is_on()) {
            Ok((index, in_use, full)) => {
                let admission = Admission { lane: index, weight, in_use, started, waited: Duration::ZERO };
                self.admitted(desk, Some(key), &admission, full, lane)
            }
            Err(locked) => {
                let ask = self.ask(desk, Some((key, hash)), weight);
                self.enter_desk(desk, locked, &ask, spot, wait, lane)
            }
        }
    }

    /// Enters the one lane.
    #[inline(never)]
    fn enter_one(&self, weight: u32, spot: Spot, wait: Option<&Wait<'_>>, lane: &mut u32) -> Answer {
        if let Some(answer) = self.enter_express(weight) {
            return answer;
        }
        // Where nobody waits, a full express lane says all there is to know; unless this very work holds a slot.
        let never_waits = wait.is_none() || self.rejects.load(Ordering::Acquire);
        let express = &self.desk.express;
        if never_waits
            && express.lacks(weight)
            && (!holding::is_any() || holding::held(self.desk.address(), 0).is_none())
        {
            return Answer::Refused(self.refused(None, spot, &express.turned(weight)));
        }
        if let Some(wait) = wait {
            wait.keep(wait.make_ready(self.meta.time.now()));
        }
        let ask = self.ask(self.desk, None, weight);
        self.enter_desk(self.desk, self.desk.lock(), &ask, spot, wait, lane)
    }

    /// Enters the long way.
    #[inline(never)]
    fn enter_desk(
        &self,
        desk: &'static Desk,
        locked: Locked,
        ask: &Ask<'_>,
        spot: Spot,
        wait: Option<&Wait<'_>>,
        lane: &mut u32,
    ) -> Answer {
        let entry = match desk.enter(locked, ask, wait) {
            Entry::NoRoom => self.try_with_room(desk, |state| state.enter(ask, wait)),
            entry => entry,
        };
        self.answer(desk, ask.key.map(|(key, _)| key), spot, entry, wait, lane)
    }

    fn answer(
        &self,
        desk: &'static Desk,
        key: Option<&Name<'_>>,
        spot: Spot,
        entry: Entry,
        wait: Option<&Wait<'_>>,
        lane: &mut u32,
    ) -> Answer {
        match entry {
            Entry::In(admission) => self.admitted(desk, key, &admission, None, lane),
            Entry::Out(turned) => Answer::Refused(self.refused(key, spot, &turned)),
            Entry::Line(place) => {
                let depth = place.depth;
                wait.expect("nobody else is in line").stand(desk, place);
                self.tell(key, What::Queued { depth });
                Answer::Line
            }
            Entry::NoRoom => unreachable!("there was room, or it was turned away"),
        }
    }

    #[inline]
    fn ask<'a>(&self, desk: &'static Desk, key: Option<(&'a Name<'a>, u32)>, weight: u32) -> Ask<'a> {
        Ask { weight, is_timed: self.meta.bus.is_timed(), ..Ask::of(desk, key) }
    }

    /// Tries again with room for one more lane, if there is any to be had; else it is turned away.
    #[inline(never)]
    fn try_with_room(&self, desk: &'static Desk, step: impl Fn(&mut State) -> Entry) -> Entry {
        loop {
            let entry = self.make_room(desk, |state, is_found| match step(state) {
                Entry::NoRoom if !is_found => Entry::Out(state.turned(None, Reason::KeysFull)),
                entry => entry,
            });
            if !matches!(entry, Entry::NoRoom) {
                return entry;
            }
        }
    }

    /// Spends one start without holding a slot afterwards.
    #[inline]
    pub(crate) fn check(&self, key: Option<&Name<'_>>, spot: Spot) -> Result<(), Refusal> {
        if let (None, Some(rate), false) = (key, &self.rate, self.meta.bus.is_on()) {
            match self.desk.express.spend(rate, &self.meta.time) {
                Ok(()) => return Ok(()),
                Err(Missed::Refused(wait)) => {
                    return Err(self.refused(key, spot, &self.desk.express.spent(wait)));
                }
                Err(Missed::Away) => {}
            }
        }
        self.check_desk(key, spot)
    }

    #[inline(never)]
    fn check_desk(&self, key: Option<&Name<'_>>, spot: Spot) -> Result<(), Refusal> {
        if self.meta.bus.is_on() {
            let mut lane = 0;
            return self.enter(key, 1, spot, None, &mut lane).at_once(lane).map(drop);
        }
        let (desk, hashed, locked) = match key {
            Some(key) => {
                let (desk, hash) = self.locate(key);
                match desk.check_brisk(key, hash) {
                    Ok(()) => return Ok(()),
                    Err(locked) => (desk, Some((key, hash)), locked),
                }
            }
            None => (self.desk, None, self.desk.lock()),
        };
        let ask = self.ask(desk, hashed, 1);
        let mut entry = desk.check(locked, &ask);
        if let Entry::NoRoom = entry {
            entry = self.try_with_room(desk, |state| state.check(&ask));
        }
        match entry {
            Entry::Out(turned) => Err(self.refused(key, spot, &turned)),
            _ => Ok(()),
        }
    }

    /// What one is told who was admitted at a desk.
    #[inline]
    pub(super) fn admitted(
        &self,
        desk: &'static Desk,
        key: Option<&Name<'_>>,
        admission: &Admission,
        full: Option<Box<Full>>,
        into: &mut u32,
    ) -> Answer {
        if self.meta.bus.is_on() {
            return Answer::Full(Full::told(full, desk, &self.meta, key, admission));
        }
        let Admission { lane, weight, started, .. } = *admission;
        if weight == 1 && !self.adapts.load(Ordering::Relaxed) {
            *into = lane;
            return Answer::In(desk);
        }
        Answer::Full(Full::new(desk, lane, weight, started))
    }

    #[inline(never)]
    pub(crate) fn refused(&self, key: Option<&Name<'_>>, asked_at: Spot, turned: &Turned) -> Refusal {
        let (key, reason) = (key.map(Name::to_key), turned.reason);
        self.meta.count_refusal(reason);
        self.meta.tell(key.as_ref(), What::Rejected { reason });
        let mut refusal = Refusal::new(Arc::clone(&self.meta.ident), key, reason);
        refusal.in_use = turned.in_use;
        refusal.waiting = turned.waiting;
        refusal.max = turned.max;
        refusal.retry_after = turned.retry_after;
        refusal.places = turned.held_at.map(|held_at| (held_at, asked_at));
        refusal
    }

    pub(crate) fn tell(&self, key: Option<&Name<'_>>, what: What) {
        if self.meta.bus.is_on() {
            self.meta.tell(key.map(Name::to_key).as_ref(), what);
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        *lock(&self.set)
    }

    pub(crate) fn set_limits(&self, limits: Limits) {
        let mut woken = Woken::default();
        let mut set = lock(&self.set);
        *set = limits;
        // Until every desk knows them: who would be refused by what the express lane says asks its desk instead.
        self.rejects.store(false, Ordering::Relaxed);
        self.adapts.store(limits.adaptive().is_some(), Ordering::Relaxed);
        for desk in &self.desks {
            woken.0.push(desk.change(|state| state.relimit(limits)).1);
        }
        self.rejects.store(limits.overflow() == Overflow::Reject, Ordering::Release);
    }

    pub(crate) fn pin(&self, key: &str, limits: Limits) -> bool {
        let name = Name::Text(key);
        let (desk, hash) = self.locate(&name);
        let ask = Ask::of(desk, Some((&name, hash)));
        if desk.at(|state| state.pin(&ask, limits)) {
            return true;
        }
        self.make_room(desk, |state, _| state.pin(&ask, limits))
    }

    /// Does something at a desk with room for one more lane there; says whether any was found.
    #[inline(never)]
    fn make_room<R>(&self, desk: &'static Desk, step: impl FnOnce(&mut State, bool) -> R) -> R {
        // Room on its way between desks is to be seen at neither: nobody else looks until it has arrived.
        let one_at_a_time = self.meta.quota.lock();
        let room = self.meta.quota.find(&self.desks);
        let (result, wakes) = desk.change(|state| {
            state.spare += room;
            step(state, room > 0)
        });
        drop(one_at_a_time);
        wakes.wake();
        result
    }

    /// Does the same at every desk, with no other such change in between.
    pub(crate) fn at_every_desk(&self, change: impl Fn(&mut State)) {
        let mut woken = Woken::default();
        let _one_at_a_time = lock(&self.set);
        for desk in &self.desks {
            woken.0.push(desk.change(&change).1);
        }
    }
}

/// Whom a change of all desks has woken. It is made before the lock of such changes is taken, so it goes after that: a waker
/// may run its task then and there, and that may ask the gate.
#[derive(Default)]
struct Woken(Vec<Wakes>);

impl Drop for Woken {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Wakes::wake);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for desk in &self.desks {
            desk.dismiss();
        }
    }
}

/// What an entrant is told. It travels in registers: see [`pass`](super::pass).
#[must_use = "a slot that is in it is lost with it"]
pub(super) enum Answer {
    /// It has one slot, of the lane that was written where the question said.
    In(&'static Desk),
    /// The same, with more to know about it.
    Full(Box<Full>),
    Refused(Refusal),
    /// It waits; its place stands in its [`Stage`](super::enter::Stage).
    Line,
}

impl Answer {
    /// As one hears it who may wait.
    #[inline]
    pub(super) fn in_time(self, lane: u32) -> Poll<Result<Pass, Refusal>> {
        match self {
            Answer::In(desk) => Poll::Ready(Ok(Pass::plain(desk, lane))),
            Answer::Full(full) => Poll::Ready(Ok(Pass::full(full))),
            Answer::Refused(refusal) => Poll::Ready(Err(refusal)),
            Answer::Line => Poll::Pending,
        }
    }

    /// As one hears it who does not.
    #[inline]
    pub(super) fn at_once(self, lane: u32) -> Result<Pass, Refusal> {
        match self {
            Answer::In(desk) => Ok(Pass::plain(desk, lane)),
            Answer::Full(full) => Ok(Pass::full(full)),
            Answer::Refused(refusal) => Err(refusal),
            Answer::Line => unreachable!("without a waker nobody waits"),
        }
    }
}
