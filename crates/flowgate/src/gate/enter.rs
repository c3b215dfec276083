//! An entry under way.
//!
//! Owns the future that an entrant awaits, and what happens when it is dropped at any moment.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use flowgate_core::{Reason, Refusal, Spot, What};

use super::{
    desk::Desk,
    engine::{Answer, Engine},
    holding,
    pass::Pass,
    seat::{self, Fate},
    state::{Admission, Place, Turned},
};

/// An entry: await it for a [`Pass`], or ask with [`Enter::now`].
///
/// Cancel safety: nothing happens before the first poll. Dropped while it waits, it leaves the line in constant time and the
/// others keep their order; dropped just after it was handed a slot, the slot goes to the next in line and the start it spent
/// of the rate is given back.
#[must_use = "an entry does nothing unless awaited"]
#[derive(Debug)]
pub struct Enter<'a> {
    engine: &'a Engine,
    key: Option<&'a str>,
    weight: u32,
    spot: Spot,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    New,
    Waiting(&'static Desk, Place),
    Done,
}

impl<'a> Enter<'a> {
    #[inline]
    pub(crate) fn new(engine: &'a Engine, key: Option<&'a str>, spot: Spot) -> Self {
        Enter { engine, key, weight: 1, spot, stage: Stage::New }
    }

    /// Asks for `weight` slots at once; they are given and come back together. Nothing weighs less than 1. One that weighs
    /// more than `max` is refused (`too-heavy`).
    #[inline]
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight.max(1);
        self
    }

    /// Enters now or is refused: never waits.
    #[inline]
    pub fn now(self) -> Result<Pass, Refusal> {
        if !self.engine.meta.bus.is_on() {
            return self.now_unheard();
        }
        self.now_slowly()
    }

    /// As [`Enter::now`] where nobody listens.
    #[inline]
    pub(crate) fn now_unheard(self) -> Result<Pass, Refusal> {
        if self.key.is_none()
            && let Some(pass) = self.engine.enter_unheard(self.weight)
        {
            return Ok(pass);
        }
        self.now_slowly()
    }

    /// Apart, so that the fast path need not make room for what this one needs.
    #[inline(never)]
    fn now_slowly(self) -> Result<Pass, Refusal> {
        match self.engine.enter(self.key, self.weight, self.spot, None) {
            Answer::Ready(answer) => answer,
            Answer::Wait(..) => unreachable!("without a waker nobody waits"),
        }
    }

    #[inline(never)]
    fn ask(&mut self, cx: &Context<'_>) -> Poll<Result<Pass, Refusal>> {
        match self.engine.enter(self.key, self.weight, self.spot, Some(cx.waker())) {
            Answer::Ready(answer) => {
                self.stage = Stage::Done;
                Poll::Ready(answer)
            }
            Answer::Wait(desk, place) => {
                self.stage = Stage::Waiting(desk, place);
                Poll::Pending
            }
        }
    }

    #[inline(never)]
    fn give_up(&mut self) {
        if let Stage::Waiting(desk, place) = std::mem::replace(&mut self.stage, Stage::Done) {
            desk.at(|state| state.cancel(&place, self.weight));
            seat::put(place.seat);
            self.engine.tell(self.key, What::Left);
        }
    }

    #[inline(never)]
    fn look_up(&mut self, cx: &Context<'_>) -> Poll<Result<Pass, Refusal>> {
        let Stage::Waiting(desk, place) = &self.stage else { unreachable!("only one who waits looks") };
        let (desk, lane) = (*desk, place.lane);
        let mut fate = place.seat.fate();
        if fate == Fate::Waiting {
            desk.at(|state| state.renew(place, cx.waker()));
            fate = place.seat.fate();
        }
        let answer = match fate {
            Fate::Waiting => return Poll::Pending,
            Fate::Granted { at, in_use, .. } => {
                let (weight, since) = (self.weight, place.since);
                Ok(self.engine.admitted(
                    desk,
                    self.key,
                    Admission { lane, weight, in_use, started: at, since },
                ))
            }
            Fate::Refused { reason, in_use, waiting, max } => {
                let held =
                    if reason == Reason::Reentrant { holding::held(desk.address(), lane) } else { None };
                let held_at = held.map(|(_, spot)| spot);
                let turned = Turned { in_use, waiting, max, held_at, ..Turned::new(reason) };
                Err(self.engine.refused(self.key, self.spot, turned))
            }
        };
        if let Stage::Waiting(_, place) = std::mem::replace(&mut self.stage, Stage::Done) {
            seat::put(place.seat);
        }
        Poll::Ready(answer)
    }
}

impl Future for Enter<'_> {
    type Output = Result<Pass, Refusal>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.stage {
            Stage::New => {
                if self.key.is_none()
                    && !self.engine.meta.bus.is_on()
                    && let Some(pass) = self.engine.enter_unheard(self.weight)
                {
                    self.stage = Stage::Done;
                    return Poll::Ready(Ok(pass));
                }
                self.ask(cx)
            }
            Stage::Waiting(..) => self.look_up(cx),
            Stage::Done => panic!("an entry was polled after it was done"),
        }
    }
}

impl Drop for Enter<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Stage::Waiting(..) = self.stage {
            self.give_up();
        }
    }
}
