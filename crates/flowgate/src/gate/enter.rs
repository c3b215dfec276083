//! An entry under way.
//!
//! Owns the future that an entrant awaits, and what happens when it is dropped at any moment.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use flowgate_core::{Key, Reason, Refusal, Spot, What};

use super::{
    desk::Desk,
    engine::{Answer, Engine},
    holding,
    name::Name,
    pass::Pass,
    seat::{self, Fate},
    state::{Admission, Place, Turned},
    wait::Wait,
};

/// A future that waits for a [`Pass`]. Await it, or call [`Enter::now`] to ask without waiting.
///
/// Cancel safety: nothing happens before the first poll. Dropped while it waits, it leaves the line in constant time and the
/// others keep their order; dropped just after it was handed a slot, the slot goes to the next in line and the start it spent
/// of the rate is given back.
#[must_use = "an entry does nothing unless awaited"]
#[derive(Debug)]
pub struct Enter<'a> {
    engine: &'a Engine,
    key: Option<Name<'a>>,
    attempt: Attempt,
}

/// Like [`Enter`], but it borrows nothing: for futures that have to be `'static`, such as those of an HTTP service.
///
/// Cancel safety: as [`Enter`].
#[must_use = "an entry does nothing unless awaited"]
#[derive(Debug)]
pub struct OwnedEnter {
    engine: Arc<Engine>,
    key: Option<Key>,
    attempt: Attempt,
}

/// How far an entry is, whoever keeps the gate and the key.
#[derive(Debug)]
struct Attempt {
    weight: u32,
    spot: Spot,
    stage: Stage,
}

#[derive(Debug)]
pub(super) enum Stage {
    New,
    Waiting(&'static Desk, Place),
    Done,
}

impl<'a> Enter<'a> {
    #[inline]
    pub(crate) fn new(engine: &'a Engine, key: Option<&'a str>, spot: Spot) -> Self {
        Enter { engine, key: key.map(Name::Text), attempt: Attempt::new(spot) }
    }

    /// Asks for `weight` slots at once; they are given and given back together. 0 counts as 1. More than `max` is
    /// refused (`too-heavy`). Say it before the first poll: one that stands in line already keeps the weight it came with.
    #[inline]
    pub fn weight(mut self, weight: u32) -> Self {
        self.attempt.weigh(weight);
        self
    }

    /// Returns a pass or a refusal at once; never waits.
    #[inline]
    pub fn now(self) -> Result<Pass, Refusal> {
        let mut lane = 0;
        self.ask_now(&mut lane).at_once(lane)
    }

    /// By value, or the entry would have to stand in memory for those who never come here.
    #[inline(never)]
    fn ask_now(self, lane: &mut u32) -> Answer {
        self.engine.enter(self.key.as_ref(), self.attempt.weight, self.attempt.spot, None, lane)
    }
}

/// An entry that was asked for at once: see [`OwnedEnter::begin`].
#[cfg(any(feature = "http", feature = "route"))]
pub(crate) enum Begun {
    Done(Result<Pass, Refusal>),
    Waiting(OwnedEnter),
}

impl OwnedEnter {
    /// Asks at once. Only one who has to wait needs handles of its own on gate and key.
    #[cfg(any(feature = "http", feature = "route"))]
    pub(crate) fn begin(engine: &Arc<Engine>, key: Option<&Key>, spot: Spot, cx: &Context<'_>) -> Begun {
        let mut attempt = Attempt::new(spot);
        match attempt.poll(engine, key.map(Name::Key).as_ref(), cx) {
            Poll::Ready(answer) => Begun::Done(answer),
            Poll::Pending => {
                Begun::Waiting(OwnedEnter { engine: Arc::clone(engine), key: key.cloned(), attempt })
            }
        }
    }

    pub(crate) fn new(engine: Arc<Engine>, key: Option<Key>, spot: Spot) -> Self {
        OwnedEnter { engine, key, attempt: Attempt::new(spot) }
    }

    /// Asks for `weight` slots at once; see [`Enter::weight`].
    pub fn weight(mut self, weight: u32) -> Self {
        self.attempt.weigh(weight);
        self
    }
}

impl Attempt {
    #[inline]
    fn new(spot: Spot) -> Self {
        Attempt { weight: 1, spot, stage: Stage::New }
    }

    /// Only of one who has not asked yet: what it is handed in line, it is handed by the weight that stands there.
    #[inline]
    fn weigh(&mut self, weight: u32) {
        if !self.is_waiting() {
            self.weight = weight.max(1);
        }
    }

    #[inline(always)]
    fn poll(
        &mut self,
        engine: &Engine,
        key: Option<&Name<'_>>,
        cx: &Context<'_>,
    ) -> Poll<Result<Pass, Refusal>> {
        match self.stage {
            Stage::New => {
                if self.weight == 1
                    && key.is_none()
                    && let Some(pass) = engine.enter_unheard()
                {
                    self.stage = Stage::Done;
                    return Poll::Ready(Ok(pass));
                }
                let mut lane = 0;
                self.ask(engine, key, cx, &mut lane).in_time(lane)
            }
            Stage::Waiting(..) => {
                let mut lane = 0;
                self.look_up(engine, key, cx, &mut lane).in_time(lane)
            }
            Stage::Done => panic!("an entry was polled after it was done"),
        }
    }

    #[inline(never)]
    fn ask(&mut self, engine: &Engine, key: Option<&Name<'_>>, cx: &Context<'_>, lane: &mut u32) -> Answer {
        self.stage = Stage::Done;
        let wait = Wait::new(cx.waker(), &mut self.stage);
        engine.enter_or_wait(key, self.weight, self.spot, &wait, lane)
    }

    #[inline(never)]
    fn give_up(&mut self, engine: &Engine, key: Option<&Name<'_>>) {
        if let Stage::Waiting(desk, place) = std::mem::replace(&mut self.stage, Stage::Done) {
            desk.cancel(&place, self.weight);
            seat::put(place.seat);
            engine.tell(key, What::Left);
        }
    }

    #[inline(never)]
    fn look_up(
        &mut self,
        engine: &Engine,
        key: Option<&Name<'_>>,
        cx: &Context<'_>,
        into: &mut u32,
    ) -> Answer {
        let Stage::Waiting(desk, place) = &self.stage else { unreachable!("only one who waits looks") };
        let (desk, lane) = (*desk, place.lane);
        let mut fate = place.seat.fate();
        if fate == Fate::Waiting {
            fate = desk.at(|state| state.renew(place, cx.waker()));
        }
        let answer = match fate {
            Fate::Waiting => return Answer::Line,
            Fate::Granted { at, in_use, .. } => {
                let (weight, waited) = (self.weight, at.since(place.since));
                let admission = Admission { lane, weight, in_use, started: at, waited };
                engine.admitted(desk, key, &admission, None, into)
            }
            Fate::Refused { reason, in_use, waiting, max } => {
                let held =
                    if reason == Reason::Reentrant { holding::held(desk.address(), lane) } else { None };
                let held_at = held.map(|(_, spot)| spot);
                let turned = Turned { in_use, waiting, max, held_at, ..Turned::new(reason) };
                Answer::Refused(engine.refused(key, self.spot, &turned))
            }
        };
        if let Stage::Waiting(_, place) = std::mem::replace(&mut self.stage, Stage::Done) {
            seat::put(place.seat);
        }
        answer
    }

    #[inline]
    fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting(..))
    }
}

impl Future for Enter<'_> {
    type Output = Result<Pass, Refusal>;

    /// A part of whatever awaits it: there it is known what was asked for, and nearly all of this is decided before it runs.
    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let me = &mut *self;
        me.attempt.poll(me.engine, me.key.as_ref(), cx)
    }
}

impl Future for OwnedEnter {
    type Output = Result<Pass, Refusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let me = &mut *self;
        me.attempt.poll(&me.engine, me.key.as_ref().map(Name::Key).as_ref(), cx)
    }
}

impl Drop for Enter<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.attempt.is_waiting() {
            self.attempt.give_up(self.engine, self.key.as_ref());
        }
    }
}

impl Drop for OwnedEnter {
    fn drop(&mut self) {
        if self.attempt.is_waiting() {
            self.attempt.give_up(&self.engine, self.key.as_ref().map(Name::Key).as_ref());
        }
    }
}
