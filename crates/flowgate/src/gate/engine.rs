//! A gate's desks and how an entrant finds its own.
//!
//! Owns what all handles of one gate share, and turns what a desk says into passes, refusals and events. It holds no counts.

use std::{hash::BuildHasher, sync::Arc, task::Waker};

use foldhash::fast::RandomState;

use flowgate_core::{Key, Limits, Overflow, Rate, Reason, Refusal, Spot, What};

use super::{
    desk::Desk,
    express::Attempt,
    meta::Meta,
    pass::{Pass, Told},
    state::{Admission, Ask, Entry, State, Turned},
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
    /// Whether an entrant that cannot start at once is refused.
    rejects: AtomicBool,
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
            rate: limits.rate().copied(),
            hasher: RandomState::default(),
        }
    }

    pub(crate) fn locate<'a>(&self, key: Option<&'a str>) -> (&'static Desk, Option<(&'a str, u64)>) {
        let Some(key) = key else { return (self.desk, None) };
        let hash = self.hasher.hash_one(key);
        // The table uses the low bits and the topmost seven; desks go by bits between.
        let desk = self.desks[(hash >> 40) as usize & (self.desks.len() - 1)];
        (desk, Some((key, hash)))
    }

    /// Enters by the express lane, or with the desk's lock.
    #[inline]
    pub(crate) fn enter(&self, key: Option<&str>, weight: u32, spot: Spot, waker: Option<&Waker>) -> Answer {
        if key.is_none() {
            match self.desk.express.take(weight) {
                Attempt::Done => return Answer::Ready(Ok(self.express_pass(weight, spot))),
                Attempt::Refused(()) if waker.is_none() || self.rejects.load(Ordering::Relaxed) => {
                    return Answer::Ready(Err(self.express_refusal(weight, spot)));
                }
                _ => {}
            }
        }
        self.enter_desk(key, weight, spot, waker)
    }

    #[inline(never)]
    fn enter_desk(&self, key: Option<&str>, weight: u32, spot: Spot, waker: Option<&Waker>) -> Answer {
        let (desk, hashed) = self.locate(key);
        let ask = Ask { key: hashed, weight, desk: desk.address(), is_timed: self.meta.bus.is_timed() };
        let mut room = 0;
        loop {
            let mut locked = desk.lock();
            locked.spare += std::mem::take(&mut room);
            let entry = locked.enter(&ask, waker);
            drop(locked);
            match entry {
                Entry::In(admission) => return Answer::Ready(Ok(self.admitted(desk, key, spot, admission))),
                Entry::Line { ticket, depth } => {
                    self.tell(key, What::Queued { depth });
                    return Answer::Wait { desk, ticket };
                }
                Entry::Out(turned) => return Answer::Ready(Err(self.refused(key, spot, turned))),
                Entry::NoRoom => {
                    room = self.meta.quota.find(&self.desks);
                    if room == 0 {
                        let turned = desk.lock().turned(Reason::KeysFull, Default::default());
                        return Answer::Ready(Err(self.refused(key, spot, turned)));
                    }
                }
            }
        }
    }

    /// Spends one start without holding a slot afterwards.
    #[inline]
    pub(crate) fn check(&self, key: Option<&str>, spot: Spot) -> Result<(), Refusal> {
        if let (None, Some(rate), false) = (key, &self.rate, self.meta.bus.is_on()) {
            let now = self.meta.time.now();
            match self.desk.express.spend(rate, now) {
                Attempt::Done => return Ok(()),
                Attempt::Refused(until) => {
                    let turned = Turned { retry_after: Some(until.since(now)), ..Turned::new(Reason::Rate) };
                    return Err(self.refused(key, spot, turned));
                }
                Attempt::Away => {}
            }
        }
        match self.enter(key, 1, spot, None) {
            Answer::Ready(answer) => answer.map(drop),
            Answer::Wait { .. } => unreachable!("without a waker nobody waits"),
        }
    }

    #[inline]
    fn express_pass(&self, weight: u32, spot: Spot) -> Pass {
        let pass = Pass::new(self.desk, 0, weight, spot);
        if self.meta.bus.is_on() { self.announce_express(pass) } else { pass }
    }

    #[inline(never)]
    fn announce_express(&self, pass: Pass) -> Pass {
        let started = if self.meta.bus.is_timed() { self.meta.time.now() } else { Default::default() };
        let in_use = self.desk.express.in_use();
        self.announce(pass.started(started), None, What::Acquired { waited: Default::default(), in_use })
    }

    #[inline(never)]
    fn express_refusal(&self, weight: u32, spot: Spot) -> Refusal {
        // The desk knows who holds what, if anybody in this work does; else what was seen is enough.
        let turned = match super::holding::held(self.desk.address(), 0) {
            None => self.desk.express.turned(weight),
            Some(_) => match self.enter_desk(None, weight, spot, None) {
                Answer::Ready(Err(refusal)) => return refusal,
                // A slot came free meanwhile; the refusal was true when it was made.
                _ => self.desk.express.turned(weight),
            },
        };
        self.refused(None, spot, turned)
    }

    /// The pass of one who was admitted at a desk.
    #[inline]
    pub(crate) fn admitted(
        &self,
        desk: &'static Desk,
        key: Option<&str>,
        spot: Spot,
        admission: Admission,
    ) -> Pass {
        let Admission { lane, weight, in_use, started, waited } = admission;
        let pass = Pass::new(desk, lane, weight, spot).started(started);
        if self.meta.bus.is_on() { self.announce(pass, key, What::Acquired { waited, in_use }) } else { pass }
    }

    /// The pass tells of itself now, and again when it comes back.
    fn announce(&self, pass: Pass, key: Option<&str>, acquired: What) -> Pass {
        let key = key.map(Key::new);
        self.meta.tell(key.as_ref(), acquired);
        let is_timed = self.meta.bus.is_timed();
        pass.told(Told { meta: Arc::clone(&self.meta), key, is_timed })
    }

    #[inline(never)]
    pub(crate) fn refused(&self, key: Option<&str>, asked_at: Spot, turned: Turned) -> Refusal {
        let Turned { reason, in_use, waiting, max, retry_after, held_at } = turned;
        let key = key.map(Key::new);
        self.meta.count_refusal(reason);
        self.meta.tell(key.as_ref(), What::Rejected { reason });
        let mut refusal = Refusal::new(Arc::clone(&self.meta.ident), key, reason);
        refusal.in_use = in_use;
        refusal.waiting = waiting;
        refusal.max = max;
        refusal.retry_after = retry_after;
        refusal.places = held_at.map(|held_at| (held_at, asked_at));
        refusal
    }

    pub(crate) fn tell(&self, key: Option<&str>, what: What) {
        if self.meta.bus.is_on() {
            self.meta.tell(key.map(Key::new).as_ref(), what);
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        *lock(&self.set)
    }

    pub(crate) fn set_limits(&self, limits: Limits) {
        let mut set = lock(&self.set);
        *set = limits;
        self.rejects.store(limits.overflow() == Overflow::Reject, Ordering::Relaxed);
        for desk in &self.desks {
            desk.lock().relimit(limits);
        }
    }

    pub(crate) fn pin(&self, key: &str, limits: Limits) -> bool {
        let (desk, hashed) = self.locate(Some(key));
        let ask = Ask::of(desk, hashed);
        let mut locked = desk.lock();
        if locked.find(&ask).is_none() && locked.spare == 0 {
            drop(locked);
            let room = self.meta.quota.find(&self.desks);
            locked = desk.lock();
            locked.spare += room;
        }
        locked.pin(&ask, limits)
    }

    /// Does the same at every desk, with no other such change in between.
    pub(crate) fn at_every_desk(&self, change: impl Fn(&mut State)) {
        let _one_at_a_time = lock(&self.set);
        for desk in &self.desks {
            change(&mut desk.lock());
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for desk in &self.desks {
            desk.dismiss();
        }
    }
}

/// What an entrant is told.
pub(crate) enum Answer {
    Ready(Result<Pass, Refusal>),
    Wait { desk: &'static Desk, ticket: u32 },
}
