//! Passes: proof of admission.
//!
//! Owns the end of an entry: the slot lives exactly as long as its pass, however the work ends. A pass is two
//! words, and so is the result of an entry, pass or refusal: it travels in registers. A pass that is written
//! to memory and read again at once has to be waited for, which took longer than all the rest of an entry.

use std::{
    fmt,
    future::Future,
    mem,
    num::NonZeroUsize,
    panic::{RefUnwindSafe, UnwindSafe},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use flowgate_core::{Outcome, Rate, Refusal, Spot, Tick};
use pin_project_lite::pin_project;

use super::{
    desk::Desk,
    full::Full,
    holding::{self, Guard, Held},
    look::Allowance,
};
use crate::clock::Time;

/// Permission to be in flight. It holds its slot for as long as it lives; when it is dropped, however that happens,
/// the slot goes to the next in line.
///
/// A pass is `Send` and borrows nothing, so it can move into a spawned task or a response body.
#[must_use = "the slot is given back as soon as the pass is dropped"]
pub struct Pass(Form);

enum Form {
    /// What nearly all are: one slot, nobody to tell, no time to take.
    Plain { desk: &'static Desk, lane: u32, weight: One },
    /// `None` only while it is dropped.
    Full(Option<Box<Full>>),
}

/// The weight of a plain pass. What it cannot be tells the other form from this one, and a refusal from a pass, so that
/// none of them needs a word more.
#[derive(Clone, Copy)]
#[repr(u32)]
enum One {
    Slot = 1,
}

const _: () = assert!(size_of::<Poll<Result<Pass, Refusal>>>() == size_of::<(u32, u32, &Desk)>());

/// What a pass holds, and where.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) desk: &'static Desk,
    pub(crate) lane: u32,
    pub(crate) weight: u32,
    /// When it was given; [`Tick::ZERO`] where nobody wants to know.
    pub(crate) started: Tick,
}

/// A slot of the express lane whose pass is yet to be written. It is one word, so that work may begin under it while it
/// is nowhere in memory: a pass would be written there as two words and read again at once as one to be moved, which
/// the processor waits for.
#[cfg(feature = "route")]
pub(crate) struct Stub(&'static Desk);

#[cfg(feature = "route")]
impl Stub {
    #[inline]
    pub(super) fn new(desk: &'static Desk) -> Self {
        Stub(desk)
    }

    /// What is done while the guard is there is done by one who holds it. It has no place yet, so it goes by a name.
    #[inline(always)]
    pub(crate) fn hold(&self, spot: Spot) -> Guard {
        let (guard, weight) = (Guard::new(), One::Slot as u32);
        guard.hold(Held { pass: holding::name(), desk: self.0.address(), lane: 0, weight, spot });
        guard
    }

    #[inline(always)]
    pub(crate) fn into_pass(self) -> Pass {
        let desk = self.0;
        mem::forget(self);
        Pass::plain(desk, 0)
    }
}

#[cfg(feature = "route")]
impl Drop for Stub {
    /// Only a call by value, or it would have to be in memory after all.
    #[inline(always)]
    fn drop(&mut self) {
        give_up(self.0);
    }
}

/// The work panicked as it began.
#[cfg(feature = "route")]
#[cold]
#[inline(never)]
fn give_up(desk: &'static Desk) {
    drop(Pass::plain(desk, 0));
}

/// How full a pass's lane is; see [`Pass::standing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Standing {
    /// The most that may be in flight.
    pub max: Option<u32>,
    /// How many slots are taken.
    pub in_use: u32,
    /// How many wait.
    pub waiting: u32,
}

impl Standing {
    /// Returns how many more could start right now.
    pub fn remaining(&self) -> Option<u32> {
        self.max.map(|max| max.saturating_sub(self.in_use))
    }
}

impl Pass {
    /// One slot that nobody was told of.
    #[inline]
    pub(super) fn plain(desk: &'static Desk, lane: u32) -> Self {
        Pass(Form::Plain { desk, lane, weight: One::Slot })
    }

    #[inline]
    pub(super) fn full(full: Box<Full>) -> Self {
        Pass(Form::Full(Some(full)))
    }

    #[inline]
    fn slot(&self) -> Slot {
        match &self.0 {
            Form::Plain { desk, lane, weight } => {
                Slot { desk, lane: *lane, weight: *weight as u32, started: Tick::ZERO }
            }
            Form::Full(full) => full.as_ref().expect("it is there until the pass is dropped").slot(),
        }
    }

    /// Returns how many slots it holds.
    pub fn weight(&self) -> u32 {
        self.slot().weight
    }

    /// Returns how full its lane is right now, this pass included.
    pub fn standing(&self) -> Standing {
        let Slot { desk, lane, .. } = self.slot();
        desk.express.standing().unwrap_or_else(|| {
            desk.see(|state| {
                state.lone_standing().unwrap_or_else(|| {
                    let max = state.limits_at(Some(lane)).max();
                    let lane = &state.lanes[lane].lane;
                    Standing { max, in_use: lane.in_use(), waiting: lane.waiting() }
                })
            })
        })
    }

    /// Returns how full its lane is, and the lane's rate with what is left of it, if it has one; all of the same
    /// moment.
    pub fn standing_and_rate(&self) -> (Standing, Option<(Rate, Allowance)>) {
        let Slot { desk, lane, .. } = self.slot();
        desk.at(|state| {
            let limits = state.limits_at(Some(lane));
            let lane = &state.lanes[lane].lane;
            let standing = Standing { max: limits.max(), in_use: lane.in_use(), waiting: lane.waiting() };
            let rate = limits.rate().map(|rate| {
                let now = state.now();
                (*rate, Allowance::new(rate.look(lane.rate(), now), now))
            });
            (standing, rate)
        })
    }

    /// Gives the slot back and says how the work ended, for a gate whose `max` adapts. Dropping the pass says
    /// [`Outcome::Done`].
    pub fn settle(mut self, outcome: Outcome) {
        self.give_back(outcome);
        // Given back already; nothing else in it wants to be dropped.
        mem::forget(self);
    }

    /// Runs `work` under this pass, and gives the slot back when the work has ended or is dropped. An entry that the
    /// work itself asks for is refused (`re-entrant`) if it could only wait for this very slot.
    #[track_caller]
    pub fn scope<F: Future>(self, work: F) -> Scoped<F> {
        // Where the work may move between its polls, the pass moves with it.
        let name = NonZeroUsize::new(holding::name());
        Scoped { work, pass: Some(self), spot: Spot::here(), name }
    }

    /// Notes that what is polled from now on holds this pass; see [`Pass::scope`].
    #[inline(always)]
    pub(crate) fn note(&self, guard: &Guard, spot: Spot) {
        self.note_as(std::ptr::from_ref(self).addr(), guard, spot);
    }

    #[inline(always)]
    pub(crate) fn note_as(&self, pass: usize, guard: &Guard, spot: Spot) {
        match &self.0 {
            Form::Plain { desk, lane, weight } => {
                let weight = *weight as u32;
                guard.hold(Held { pass, desk: desk.address(), lane: *lane, weight, spot });
            }
            Form::Full(full) => note_full(full.as_deref(), pass, guard, spot),
        }
    }

    /// What is done until the guard is dropped, this pass is held for. Unlike [`Pass::note`], it may be somewhere else
    /// the next time: it goes by its name (`holding::name`), the same each time.
    #[cfg(feature = "http")]
    #[inline(always)]
    pub(crate) fn hold(&self, name: usize, spot: Spot) -> Guard {
        let held = Guard::new();
        self.note_as(name, &held, spot);
        held
    }

    /// As [`Pass::scope`], for one who never moves what comes of it once it was polled.
    pub(crate) fn scope_at<F: Future>(self, spot: Spot, work: F) -> Scoped<F> {
        Scoped { work, pass: Some(self), spot, name: None }
    }

    #[inline]
    fn give_back(&mut self, outcome: Outcome) {
        match &mut self.0 {
            Form::Plain { desk, lane, weight } => {
                let weight = *weight as u32;
                if !desk.express.give(weight) {
                    desk.leave(*lane, weight, outcome);
                }
            }
            Form::Full(full) => give_back_full(full.take(), outcome),
        }
    }
}

#[inline(never)]
fn note_full(full: Option<&Full>, pass: usize, guard: &Guard, spot: Spot) {
    if let Some(full) = full {
        let Slot { desk, lane, weight, .. } = full.slot();
        guard.hold(Held { pass, desk: desk.address(), lane, weight, spot });
    }
}

#[inline(never)]
fn give_back_full(full: Option<Box<Full>>, outcome: Outcome) {
    let Some(mut full) = full else { return };
    // Told before the slot is free: who counts events never counts more than `max`.
    full.tell_released();
    let Slot { desk, weight, .. } = full.slot();
    let left = if desk.express.give(weight) { Some(full) } else { desk.leave_full(full, outcome) };
    if let Some(full) = left {
        full.put_away();
    }
}

impl Slot {
    /// How long it was taken.
    #[inline(never)]
    pub(super) fn held(self, time: &Time) -> Duration {
        /// The slot comes back if the clock panics, which may be code of others.
        struct Returning(Slot);
        impl Drop for Returning {
            fn drop(&mut self) {
                drop(Pass::full(Full::new(self.0.desk, self.0.lane, self.0.weight, Tick::ZERO)));
            }
        }
        let returning = Returning(self);
        let held = time.now().since(self.started);
        mem::forget(returning);
        held
    }
}

impl Drop for Pass {
    #[inline]
    fn drop(&mut self) {
        self.give_back(Outcome::Done);
    }
}

/// A panic while a pass is out leaves its gate whole.
impl UnwindSafe for Pass {}
impl RefUnwindSafe for Pass {}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("weight", &self.weight()).finish_non_exhaustive()
    }
}

pin_project! {
    /// Work that runs under a pass; see [`Pass::scope`].
    ///
    /// Cancel safety: dropped, it drops the work first and gives the slot back then.
    #[must_use = "futures do nothing unless polled"]
    pub struct Scoped<F> {
        // Fields drop in this order: the slot is never free while the work still owns anything.
        #[pin]
        work: F,
        pass: Option<Pass>,
        spot: Spot,
        // What the pass goes by; without one, it goes by its place.
        name: Option<NonZeroUsize>,
    }
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let me = self.project();
        let pass = me.pass.as_ref().expect("a future is not polled after it is done");
        let held = Guard::new();
        match *me.name {
            Some(name) => pass.note_as(name.get(), &held, *me.spot),
            None => pass.note(&held, *me.spot),
        }
        let output = ready!(me.work.poll(cx));
        drop(held);
        me.pass.take();
        Poll::Ready(output)
    }
}
