//! Deadlines, and which task is woken when one is over.
//!
//! Owns one small record for each task of a worker: where it stands, and until when it may stand there.
//! Setting a deadline is a store; the worker's loop looks at all records once for each tick and wakes those
//! that are due.

use std::{
    cell::{Cell, RefCell},
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    rc::{Rc, Weak},
    task::{Context, Poll, Waker},
};

use pin_project_lite::pin_project;

use super::{
    clock::{Clock, Moment, Span},
    io::Socket,
};

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The head of a request is awaited and some of it may be there; before that, the TLS handshake, or the rest of a body that
    /// nobody wants.
    Head,
    /// Nothing is under way any more; another request may follow soon. When the time is over the connection comes to rest.
    Pausing,
    /// Nothing is under way.
    Idle,
    /// A request waits in line, or is not this task's own matter. No deadline.
    Waiting,
    /// An upstream is asked. When the time is over the exchange itself says so to its client.
    Asking,
    /// A response is on its way.
    Streaming,
    /// The connection became something else.
    Tunnel,
    /// The connection is being closed.
    Closing,
}

impl Stage {
    /// Whether there is nobody to tell when the time is over: the task is simply ended.
    fn ends_silently(self) -> bool {
        !matches!(self, Stage::Waiting | Stage::Asking | Stage::Pausing)
    }
}

/// How a task stood at a moment: where, for how long it may, and until when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    stage: Stage,
    span: Span,
    due: Moment,
}

/// The record of one task: with its counts, one cache line.
pub(super) struct Watch {
    clock: Rc<Clock>,
    stage: Cell<Stage>,
    span: Cell<Span>,
    due: Cell<Moment>,
    is_gone: Cell<bool>,
    /// Whether something was written that may not have been sent yet.
    pub(super) has_unsent: Cell<bool>,
    /// The connection to look at while nobody reads from it; none where the protocol itself tells of a hang-up. Not held: a
    /// connection is closed when its task has ended, whoever still looks at its record.
    socket: Weak<Socket>,
    waker: Cell<Option<Waker>>,
}

/// All records of a worker.
#[derive(Debug, Default)]
pub(super) struct Watches {
    slots: RefCell<Vec<Option<Rc<Watch>>>>,
    free: RefCell<Vec<usize>>,
    /// Whether any was removed since that was last asked, and who asked.
    has_removed: Cell<bool>,
    asking: RefCell<Option<Waker>>,
}

impl Watch {
    /// In this stage for at most this long.
    pub(super) fn begin(&self, stage: Stage, span: Span) {
        self.stage.set(stage);
        self.span.set(span);
        self.due.set(self.clock.after(span));
    }

    /// How it stands.
    pub(super) fn standing(&self) -> Standing {
        Standing { stage: self.stage.get(), span: self.span.get(), due: self.due.get() }
    }

    /// As it stood before.
    pub(super) fn stand(&self, standing: Standing) {
        self.stage.set(standing.stage);
        self.span.set(standing.span);
        self.due.set(standing.due);
    }

    /// In line, for as long as it takes.
    pub(super) fn wait(&self) {
        self.stage.set(Stage::Waiting);
        self.due.set(Moment::NEVER);
    }

    /// Something moved: the span of the stage begins anew.
    pub(super) fn touch(&self) {
        self.due.set(self.clock.after(self.span.get()));
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage.get()
    }

    /// Whether nothing has been under way for long enough to come to rest.
    pub(super) fn has_paused(&self) -> bool {
        self.stage.get() == Stage::Pausing && self.is_over()
    }

    /// Whether the time is over.
    pub(super) fn is_over(&self) -> bool {
        self.due.get() <= self.clock.now()
    }

    fn must_end(&self) -> bool {
        self.is_gone.get() || (self.is_over() && self.stage.get().ends_silently())
    }

    fn note(&self, waker: &Waker) {
        let known = self.waker.take().filter(|known| known.will_wake(waker));
        self.waker.set(Some(known.unwrap_or_else(|| waker.clone())));
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake_by_ref();
            self.waker.set(Some(waker));
        }
    }

    /// Whether its client hung up while nobody reads: seen here, for one in line is woken by nothing else.
    fn is_hung_up(&self) -> bool {
        let is_unread = matches!(self.stage.get(), Stage::Waiting | Stage::Asking | Stage::Streaming);
        is_unread && self.socket.upgrade().is_some_and(|socket| socket.is_hung_up())
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("stage", &self.stage).field("due", &self.due).finish_non_exhaustive()
    }
}

impl Watches {
    fn add(&self, watch: Rc<Watch>) -> usize {
        let mut slots = self.slots.borrow_mut();
        if let Some(index) = self.free.borrow_mut().pop() {
            slots[index] = Some(watch);
            return index;
        }
        slots.push(Some(watch));
        slots.len() - 1
    }

    fn remove(&self, index: usize) {
        self.slots.borrow_mut()[index] = None;
        self.free.borrow_mut().push(index);
        self.has_removed.set(true);
        if let Some(waker) = self.asking.take() {
            waker.wake();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.borrow().len() - self.free.borrow().len()
    }

    /// Waits until one was removed, unless that was so since the last time. One may ask at a time.
    ///
    /// Cancel safety: dropped, the next to ask is told.
    pub(super) async fn one_removed(&self) {
        poll_fn(|cx| {
            if self.has_removed.take() {
                return Poll::Ready(());
            }
            self.asking.replace(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Wakes all whose time is over or whose client is gone.
    pub(super) fn tick(&self) {
        for watch in self.slots.borrow().iter().flatten() {
            if watch.is_hung_up() {
                watch.is_gone.set(true);
            }
            if watch.is_gone.get() || watch.is_over() {
                watch.wake();
            }
        }
    }

    /// Ends all tasks, whatever they are at.
    pub(super) fn end_all(&self) {
        for watch in self.slots.borrow().iter().flatten() {
            watch.is_gone.set(true);
            watch.wake();
        }
    }

    /// Wakes all: something has happened that concerns everybody.
    pub(super) fn wake_all(&self) {
        self.slots.borrow().iter().flatten().for_each(|watch| watch.wake());
    }
}

/// Where the record of the task that is being polled can be found.
pub(super) type Current = RefCell<Option<Rc<Watch>>>;

pin_project! {
    /// A task with its record: polled, it is the current one; when its time is over, it ends.
    pub(super) struct Watched<F, H> {
        #[pin]
        task: F,
        place: Place,
        // What is held until the task is gone. Here, not in the task: a future within a future takes the room of both.
        held: H,
    }
}

struct Place {
    watches: Rc<Watches>,
    current: Rc<Current>,
    watch: Rc<Watch>,
    index: usize,
}

impl<F, H> Watched<F, H> {
    /// Records the task that `make` makes of its record; `held` is dropped when the task is.
    pub(super) fn new(
        (clock, watches, current): (&Rc<Clock>, &Rc<Watches>, &Rc<Current>),
        socket: Weak<Socket>,
        held: H,
        make: impl FnOnce(&Rc<Watch>) -> F,
    ) -> Self {
        let watch = Rc::new(Watch {
            clock: Rc::clone(clock),
            stage: Cell::new(Stage::Waiting),
            span: Cell::new(Span::of(std::time::Duration::ZERO)),
            due: Cell::new(Moment::NEVER),
            is_gone: Cell::new(false),
            has_unsent: Cell::new(false),
            socket,
            waker: Cell::new(None),
        });
        let index = watches.add(Rc::clone(&watch));
        let (watches, current) = (Rc::clone(watches), Rc::clone(current));
        Watched { task: make(&watch), place: Place { watches, current, watch, index }, held }
    }
}

impl<F: Future<Output = ()>, H> Future for Watched<F, H> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let me = self.project();
        me.place.watch.note(cx.waker());
        if me.place.watch.must_end() {
            return Poll::Ready(());
        }
        me.place.current.replace(Some(Rc::clone(&me.place.watch)));
        me.task.poll(cx)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.watches.remove(self.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_and_its_counts_take_one_cache_line() {
        // Seen to fail: with a span of eight bytes. Every connection has one, at rest as well.
        assert!(size_of::<Watch>() + 2 * size_of::<usize>() <= 64, "{}", size_of::<Watch>());
    }
}
