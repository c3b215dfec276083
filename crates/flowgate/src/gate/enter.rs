//! An entry under way.
//!
//! Owns the future that an entrant awaits, and what happens when it is dropped at any moment.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use flowgate_core::{Refusal, Spot, What};

use super::{
    desk::Desk,
    engine::{Answer, Engine},
    pass::Pass,
    state::Entry,
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
    Waiting { desk: &'static Desk, ticket: u32 },
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
        if self.key.is_none()
            && let Some(pass) = self.engine.enter_express(self.weight)
        {
            return Ok(pass);
        }
        match self.engine.enter(self.key, self.weight, self.spot, None) {
            Answer::Ready(answer) => answer,
            Answer::Wait { .. } => unreachable!("without a waker nobody waits"),
        }
    }

    #[inline(never)]
    fn ask(&mut self, cx: &Context<'_>) -> Poll<Result<Pass, Refusal>> {
        match self.engine.enter(self.key, self.weight, self.spot, Some(cx.waker())) {
            Answer::Ready(answer) => {
                self.stage = Stage::Done;
                Poll::Ready(answer)
            }
            Answer::Wait { desk, ticket } => {
                self.stage = Stage::Waiting { desk, ticket };
                Poll::Pending
            }
        }
    }

    #[inline(never)]
    fn give_up(&self, desk: &'static Desk, ticket: u32) {
        desk.at(|state| state.cancel(ticket));
        self.engine.tell(self.key, What::Left);
    }

    #[inline(never)]
    fn look_up(&mut self, desk: &'static Desk, ticket: u32, cx: &Context<'_>) -> Poll<Result<Pass, Refusal>> {
        let entry = desk.at(|state| state.look_up(desk.address(), ticket, cx.waker()));
        let Some(entry) = entry else { return Poll::Pending };
        self.stage = Stage::Done;
        match entry {
            Entry::In(admission) => Poll::Ready(Ok(self.engine.admitted(desk, self.key, admission))),
            Entry::Out(turned) => Poll::Ready(Err(self.engine.refused(self.key, self.spot, turned))),
            Entry::Line { .. } | Entry::NoRoom => unreachable!("one who waits is let in or turned away"),
        }
    }
}

impl Future for Enter<'_> {
    type Output = Result<Pass, Refusal>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.stage {
            Stage::New => {
                if self.key.is_none()
                    && let Some(pass) = self.engine.enter_express(self.weight)
                {
                    self.stage = Stage::Done;
                    return Poll::Ready(Ok(pass));
                }
                self.ask(cx)
            }
            Stage::Waiting { desk, ticket } => self.look_up(desk, ticket, cx),
            Stage::Done => panic!("an entry was polled after it was done"),
        }
    }
}

impl Drop for Enter<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Stage::Waiting { desk, ticket } = self.stage {
            self.give_up(desk, ticket);
        }
    }
}
