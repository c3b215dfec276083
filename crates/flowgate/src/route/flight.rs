//! An exchange in flight.
//!
//! Owns the future that takes an exchange through its route, and the roster of exchanges under way: how many
//! there are, which can be woken to be cancelled, and whether newcomers are taken in. An exchange that never
//! has to wait is counted and nothing else.

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use flowgate_core::{Code, Spot};

use super::{
    cx::Cx,
    error::Error,
    event::What,
    exchange::{Exchange, ExchangeId},
    site::{Site, as_current},
    step::{BoxFuture, Erased, Halt, Outcome},
};
use crate::{
    gate::wake,
    sync::{Mutex, lock},
};

/// The exchanges of one site that are under way.
pub(crate) struct Flights {
    count: AtomicU64,
    /// Tasks of ours, which end by themselves once they are woken.
    tasks: AtomicU64,
    is_closing: AtomicBool,
    /// Of the whole context: all exchanges are cancelled at one moment, whichever routes they are in.
    is_cancelled: Arc<AtomicBool>,
    /// Whether anybody waits for the end.
    is_watched: AtomicBool,
    roster: Mutex<Roster>,
}

#[derive(Default)]
struct Roster {
    /// Those who wait for something.
    seats: Vec<Option<(ExchangeId, Waker)>>,
    free: Vec<usize>,
    /// Those that have ended because all were cancelled.
    cancelled: Vec<ExchangeId>,
    /// Whoever waits for the end, by the number of its wait.
    watchers: BTreeMap<u64, Waker>,
    watches: u64,
}

impl Flights {
    /// None yet, of a context whose exchanges are cancelled by this flag.
    pub(crate) fn new(is_cancelled: Arc<AtomicBool>) -> Self {
        Flights {
            count: AtomicU64::new(0),
            tasks: AtomicU64::new(0),
            is_closing: AtomicBool::new(false),
            is_cancelled,
            is_watched: AtomicBool::new(false),
            roster: Mutex::default(),
        }
    }

    /// Counts one more, unless newcomers are turned away. What an exchange under way leads to is not a newcomer.
    fn open(&self, is_inner: bool) -> bool {
        self.count.fetch_add(1, Ordering::SeqCst);
        let is_refused = self.is_closing() && !is_inner;
        if is_refused {
            self.close();
        }
        !is_refused
    }

    fn close(&self) {
        self.count.fetch_sub(1, Ordering::SeqCst);
        self.look_again();
    }

    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst)
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        // With `count`: one who runs has seen the flag, or is seen by who has set it.
        self.is_cancelled.load(Ordering::SeqCst)
    }

    /// It waits: whoever cancels can wake it. `None` if all are cancelled already.
    fn seat(&self, id: ExchangeId, waker: &Waker) -> Option<usize> {
        let waker = waker.clone();
        let mut roster = lock(&self.roster);
        if self.is_cancelled() {
            return None;
        }
        let place = roster.free.pop().unwrap_or(roster.seats.len());
        if place == roster.seats.len() {
            roster.seats.push(None);
        }
        roster.seats[place] = Some((id, waker));
        Some(place)
    }

    /// One waits no longer: it goes on, or has ended. If it ended because all were cancelled, or by its caller's wish, it is
    /// named. In one go, so that whoever asks for the cancelled finds it as one that waits or as one that has ended.
    fn leave(&self, seat: Option<usize>, cancelled: Option<ExchangeId>) {
        let cancelled = cancelled.filter(|_| self.is_cancelled());
        if seat.is_none() && cancelled.is_none() {
            return;
        }
        let mut roster = lock(&self.roster);
        let left = seat.and_then(|seat| roster.seats[seat].take());
        roster.free.extend(seat);
        roster.cancelled.extend(cancelled);
        drop(roster);
        drop(left);
    }

    /// A task of ours begins.
    pub(crate) fn begin_task(&self) {
        self.tasks.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn end_task(&self) {
        self.tasks.fetch_sub(1, Ordering::SeqCst);
        self.look_again();
    }

    /// From now on nobody is taken in.
    pub(crate) fn stop_intake(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
    }

    /// Whether none is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0 && self.tasks.load(Ordering::SeqCst) == 0
    }

    /// Waits until none is under way.
    pub(crate) async fn emptied(&self) {
        self.until(|| self.is_empty().then_some(())).await;
    }

    /// When all are cancelled: waits until our tasks have ended and nobody runs any more, and names those that did not end by
    /// themselves. One that is called ends when its caller polls it, which may be never.
    pub(crate) async fn cancelled(&self) -> Vec<ExchangeId> {
        self.until(|| {
            let mut roster = lock(&self.roster);
            let seated = roster.seats.len() - roster.free.len();
            // Who runs has no seat.
            let is_at_rest =
                self.tasks.load(Ordering::SeqCst) == 0 && self.count.load(Ordering::SeqCst) <= seated as u64;
            is_at_rest.then(|| {
                let mut named = std::mem::take(&mut roster.cancelled);
                named.extend(roster.seats.iter().flatten().map(|(id, _)| *id));
                named
            })
        })
        .await
    }

    /// All are cancelled: whoever waits for something is woken to hear it.
    pub(crate) fn wake_all(&self) {
        let roster = lock(&self.roster);
        let wakers: Vec<_> = roster.seats.iter().flatten().map(|(_, waker)| waker.clone()).collect();
        drop(roster);
        wakers.into_iter().for_each(wake);
    }

    async fn until<T>(&self, found: impl Fn() -> Option<T>) -> T {
        let mut watch = Watch { flights: self, number: None };
        poll_fn(|cx| {
            watch.renew(cx.waker());
            found().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Wakes whoever waits for the end.
    fn look_again(&self) {
        if self.is_watched.load(Ordering::SeqCst) {
            let watchers = std::mem::take(&mut lock(&self.roster).watchers);
            watchers.into_values().for_each(wake);
        }
    }
}

/// A wait for the end. It leaves nothing behind.
struct Watch<'a> {
    flights: &'a Flights,
    number: Option<u64>,
}

impl Watch<'_> {
    /// It is woken by this one, the next time that something has changed.
    fn renew(&mut self, waker: &Waker) {
        let mut roster = lock(&self.flights.roster);
        roster.watches += 1;
        let number = *self.number.get_or_insert(roster.watches);
        let before = roster.watchers.insert(number, waker.clone());
        drop(roster);
        drop(before);
        self.flights.is_watched.store(true, Ordering::SeqCst);
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let _waker = self.number.and_then(|number| lock(&self.flights.roster).watchers.remove(&number));
    }
}

/// An exchange on its way through a route.
///
/// Cancel safety: nothing happens before the first poll. Dropped, its work is dropped where it stands, and with it every pass
/// and every place in a line that it holds.
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Flight<'a, I, O> {
    site: &'a Site,
    chain: &'a Erased<I, O>,
    id: ExchangeId,
    sent_at: Spot,
    is_inner: bool,
    /// Whether it is counted among those under way.
    is_up: bool,
    seat: Option<usize>,
    stage: Stage<'a, I, O>,
}

/// Nothing in it is pinned in place: the work is behind a pointer.
impl<I, O> Unpin for Flight<'_, I, O> {}

enum Stage<'a, I, O> {
    New(Exchange<I>),
    Going(BoxFuture<'a, Outcome<O>>),
    Done,
}

impl<'a, I: Send + 'static, O: Send + 'static> Stage<'a, I, O> {
    /// Sets the exchange going, if that is yet to be done.
    #[inline]
    fn begin(&mut self, chain: &'a Erased<I, O>, cx: Cx<'a>) {
        if matches!(self, Stage::New(_))
            && let Stage::New(exchange) = std::mem::replace(self, Stage::Done)
        {
            *self = Stage::Going(chain.boxed(exchange, cx));
        }
    }
}

impl<'a, I: Send + 'static, O: Send + 'static> Flight<'a, I, O> {
    pub(crate) fn new(
        site: &'a Site,
        chain: &'a Erased<I, O>,
        mut exchange: Exchange<I>,
        sent_at: Spot,
    ) -> Self {
        let id = exchange.id();
        // It may have been through another route: what that one's limits asked for is not for this one's.
        exchange.forget_keys();
        let stage = Stage::New(exchange);
        Flight { site, chain, id, sent_at, is_inner: false, is_up: false, seat: None, stage }
    }

    /// It was taken in already, by a source or as a part of another exchange's way: no newcomer.
    pub(crate) fn inner(mut self) -> Self {
        self.is_inner = true;
        self
    }

    fn take_off(&mut self) -> Result<(), Error> {
        if self.is_up {
            return Ok(());
        }
        // Not inside of what catches the panics of steps: it is the caller's mistake, and this exchange has landed.
        assert!(matches!(self.stage, Stage::New(_)), "an exchange was polled after it was ready");
        if !self.site.flights.open(self.is_inner) {
            self.stage = Stage::Done;
            let message =
                format!("route `{}` accepts nothing more: its context is shutting down", self.site.route);
            return Err(Error::new(Code::Stopping, message));
        }
        self.is_up = true;
        self.site.tell(Some(self.id), || What::Started);
        Ok(())
    }

    fn work(&mut self, cx: &mut Context<'_>) -> Poll<Outcome<O>> {
        let Flight { site, chain, id, sent_at, stage, .. } = self;
        let here = Cx { site, exchange: *id, sent_at: *sent_at };
        // A panic ends the exchange and nobody else's; its state is dropped with it. A step may do something before it is
        // first polled, so it begins in here as well.
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let mut work = || {
                stage.begin(chain, here);
                let Stage::Going(work) = stage else { panic!("an exchange was polled after it was done") };
                work.as_mut().poll(cx)
            };
            if site.bus.is_on() { as_current(*id, work) } else { work() }
        }));
        polled.unwrap_or_else(|_| {
            let message = format!("a step of route `{}` panicked", site.route);
            Poll::Ready(Err(Error::new(Code::Panicked, message).into()))
        })
    }
}

impl<I, O> Flight<'_, I, O> {
    /// Ends it, the work first; what is told comes last. Without an outcome it was cancelled.
    fn land(&mut self, outcome: Option<&Outcome<O>>) {
        self.is_up = false;
        let stage = std::mem::replace(&mut self.stage, Stage::Done);
        // What panics as it is dropped has been told by the panic hook. It must not stay counted as under way: a shutdown would
        // wait for it for good.
        let _ = catch_unwind(AssertUnwindSafe(|| as_current(self.id, || drop(stage))));
        self.site.flights.leave(self.seat.take(), outcome.is_none().then_some(self.id));
        self.site.tell(Some(self.id), || match outcome {
            Some(Ok(_)) => What::Completed,
            Some(Err(Halt::Dropped)) => What::Dropped,
            Some(Err(Halt::Failed(error))) => What::Failed { code: error.code() },
            None => What::Cancelled,
        });
        self.site.flights.close();
    }
}

impl<I: Send + 'static, O: Send + 'static> Future for Flight<'_, I, O> {
    type Output = Outcome<O>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<O>> {
        let me = &mut *self;
        me.take_off()?;
        let flights = &me.site.flights;
        // While it runs it has no seat: a shutdown waits for it.
        flights.leave(me.seat.take(), None);
        if !flights.is_cancelled()
            && let Poll::Ready(mut outcome) = me.work(cx)
        {
            // The keys of this route's limits say nothing to those of the one that it comes back to.
            if let Ok(exchange) = &mut outcome {
                exchange.forget_keys();
            }
            me.land(Some(&outcome));
            return Poll::Ready(outcome);
        }
        me.seat = flights.seat(me.id, cx.waker());
        if me.seat.is_some() {
            return Poll::Pending;
        }
        me.land(None);
        let message = format!("cancelled in route `{}`: its context has shut down", me.site.route);
        Poll::Ready(Err(Error::new(Code::Stopping, message).into()))
    }
}

impl<I, O> Drop for Flight<'_, I, O> {
    fn drop(&mut self) {
        if self.is_up {
            self.land(None);
        }
    }
}
