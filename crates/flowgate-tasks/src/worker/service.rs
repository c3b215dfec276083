//! The worker itself: claims, runs, settles, and renews its lease.
//!
//! One turn at a time: what ends while a turn is under way is settled with the next, so a busy worker batches by itself. A
//! freed slot is refilled by the turn that frees it. One with nothing to ask for leaves an offer: then a send of this process
//! begins its turn.

mod at_hand;
mod closing;
#[cfg(test)]
mod tests;

use std::{pin::Pin, sync::Arc, time::Duration};

use flowgate_core::OptionError;
use tokio::{
    sync::broadcast::error::RecvError,
    time::{Instant, sleep_until},
};

use super::{
    catch_up::CatchUp,
    clock,
    handlers::Handlers,
    held::{Held, MANY},
    lease::{Lease, OnDrop},
    news::{Listener, News, Teller},
    options::WorkerOptions,
    stock::{Stock, begin_by},
    under_way::{Coming, UnderWay, pending_turn},
};
use crate::{
    store::{Again, Ahead, End, Offer, Settle, Store, StoreError, Turn, Turned, Wake, Want, WorkerId},
    task::TaskId,
    upkeep::keep_up_telling,
};

/// The shortest and the longest wait before asking again for what others have locked, or of a store that failed.
const SOON: Duration = Duration::from_millis(1);
pub(super) const LATE: Duration = Duration::from_millis(100);
/// How long a store has to hear that a worker leaves: one that does not answer finds out when its lease is over, and that
/// is told.
const GOODBYE: Duration = Duration::from_secs(5);

/// What a worker did, from its start to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// How many tasks ended here for good: done, dead or cancelled.
    pub settled: u64,
    /// How many attempts failed here and are followed by another one.
    pub failed: u64,
    /// How many ends it could not record, because its lease had run out.
    pub lost: u64,
    /// The tasks that had not ended by the drain deadline. They were stopped and will be tried again.
    pub stopped: Vec<TaskId>,
    /// Those that were stopped, and have no attempt left.
    pub stopped_dead: Vec<TaskId>,
}

/// Runs tasks of a store, by its handlers.
pub struct Worker {
    store: Arc<dyn Store>,
    handlers: Handlers,
    options: WorkerOptions,
    listener: Option<Listener>,
    at_once: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Worker {
    /// Creates a worker. It does nothing until [`Worker::run`].
    pub fn new(
        store: Arc<dyn Store>,
        handlers: Handlers,
        options: WorkerOptions,
    ) -> Result<Self, OptionError> {
        options.check()?;
        let at_once = Box::pin(std::future::pending());
        Ok(Worker { store, handlers, options, listener: None, at_once })
    }

    /// Calls this function with each piece of news: that the store fails, that it answers again, which tasks are
    /// dead. For a log, `worker.listen(|news| eprintln!("{news}"))` is enough.
    #[must_use]
    pub fn listen(self, listener: impl Fn(&News) + Send + Sync + 'static) -> Self {
        Worker { listener: Some(Arc::new(listener)), ..self }
    }

    /// Stops the worker without a drain when this future completes: what runs is stopped and tried again, and what
    /// has not begun goes back as it was. All of that is recorded, so nobody has to wait until its lease ends.
    #[must_use]
    pub fn stop_at_once(self, when: impl Future<Output = ()> + Send + 'static) -> Self {
        Worker { at_once: Box::pin(when), ..self }
    }

    /// Works until `shutdown` completes. Then it claims nothing more, lets running tasks end until the drain
    /// deadline, stops the rest, and records how everything ended. If the store does not answer, now or later, the
    /// worker waits for it, for as long as it has something to record. Then it says that it leaves: a store that does not
    /// hear that finds out when the lease is over ([`News::Unheard`]).
    ///
    /// # Cancel safety
    /// Dropped, it stops everything at once; its tasks run again when its lease ends.
    pub async fn run(mut self, shutdown: impl Future<Output = ()> + Send) -> Result<Ending, StoreError> {
        let (teller, telling) = Teller::start(self.listener.take(), &self.store);
        let ended = self.work(shutdown, teller).await;
        telling.end().await;
        ended
    }

    async fn work(
        self,
        shutdown: impl Future<Output = ()> + Send,
        teller: Teller,
    ) -> Result<Ending, StoreError> {
        let tells = teller.clone();
        let upkeep = keep_up_telling(Arc::clone(&self.store), move |kept| tells.kept(kept));
        let upkeep = OnDrop(tokio::spawn(upkeep).abort_handle());
        let mut wakes = self.store.wakes();
        let mut shutdown = std::pin::pin!(shutdown);
        let (mut at_once, mut is_open, mut is_hurried) = (self.at_once, true, false);
        let taken = tokio::select! {
            taken = Lease::take_when_there(&self.store, &self.options, &teller) => taken?,
            () = &mut shutdown => return Ok(Ending::default()),
            () = &mut at_once => return Ok(Ending::default()),
        };
        let mut desk = Desk::open(self.store, self.handlers, self.options, taken, teller);
        loop {
            if desk.is_out && is_open {
                tokio::select! {
                    taken = Lease::take_when_there(&desk.store, &desk.options, &desk.teller) => desk.begin_anew(taken?),
                    () = &mut shutdown => {
                        is_open = false;
                        desk.close();
                    }
                    () = &mut at_once => {
                        (is_open, is_hurried) = (false, true);
                        desk.stop_at_once().await;
                    }
                }
                continue;
            }
            desk.begin_turn();
            if desk.is_done() {
                break;
            }
            tokio::select! {
                () = &mut shutdown, if is_open => {
                    is_open = false;
                    desk.close();
                }
                turned = pending_turn(&mut desk.turn) => desk.end_turn(turned).await?,
                () = desk.held.next() => desk.replace(),
                cancelled = desk.catch_up.answer() => cancelled.into_iter().for_each(|id| desk.cancel(id)),
                woken = wakes.recv() => match woken {
                    Ok(Wake::Cancel(id)) => desk.cancel(id),
                    Ok(Wake::Work) => desk.look(),
                    Ok(Wake::Limits(key)) => desk.limits_changed(key),
                    Ok(Wake::Missed) | Err(RecvError::Lagged(_)) => desk.look_and_catch_up(),
                    Ok(Wake::Due | Wake::Rests(_) | Wake::Ended(_)) => {}
                    Err(RecvError::Closed) => std::future::pending().await,
                },
                () = sleep_until(desk.look_at) => desk.look(),
                () = sleep_until(desk.stock.next_moment().unwrap_or(desk.look_at)), if desk.stock.next_moment().is_some() => {
                    desk.mind_the_stock();
                }
                () = desk.lease.lost() => desk.give_up().await,
                () = sleep_until(desk.stop_at.unwrap_or(desk.look_at)), if desk.stop_at.is_some() => desk.stop().await,
                () = &mut at_once, if !is_hurried => {
                    (is_open, is_hurried) = (false, true);
                    desk.stop_at_once().await;
                }
            }
        }
        drop(upkeep);
        desk.leave().await;
        Ok(desk.end())
    }
}

/// A worker at work.
struct Desk {
    store: Arc<dyn Store>,
    handlers: Handlers,
    options: WorkerOptions,
    worker: WorkerId,
    lease: Lease,
    held: Held,
    stock: Stock,
    turn: Option<UnderWay>,
    /// Whether there may be something to claim.
    is_looking: bool,
    /// Whether the next turn has to lock the counters.
    wants_locks: bool,
    /// Whether its lease is over, and no other is taken yet: it holds nothing.
    is_out: bool,
    /// Whether a reply was lost, or came too late, so that the store may know of claims that this worker does not.
    is_unsure: bool,
    look_at: Instant,
    /// No turn before then: the store failed.
    rest_until: Instant,
    backoff: Duration,
    /// Not taking anything more, and when everything that still runs is stopped.
    is_closed: bool,
    stop_at: Option<Instant>,
    /// Everything was stopped: nothing starts any more.
    is_stopped: bool,
    catch_up: CatchUp,
    /// Keys, or all, whose limits changed while a turn was under way.
    changed: Vec<Option<i64>>,
    teller: Teller,
    ending: Ending,
}

impl Desk {
    fn open(
        store: Arc<dyn Store>,
        handlers: Handlers,
        options: WorkerOptions,
        (worker, lease): (WorkerId, Lease),
        teller: Teller,
    ) -> Self {
        let (rest_until, look_at) = (clock::now(), clock::now() + options.poll);
        let held = Held::of(&store);
        Desk {
            store,
            handlers,
            options,
            worker,
            lease,
            held,
            stock: Stock::default(),
            turn: None,
            is_looking: true,
            wants_locks: false,
            is_out: false,
            is_unsure: false,
            look_at,
            rest_until,
            backoff: SOON,
            is_closed: false,
            stop_at: None,
            is_stopped: false,
            catch_up: CatchUp::default(),
            changed: Vec::new(),
            teller,
            ending: Ending::default(),
        }
    }

    /// There may be something to claim.
    fn look(&mut self) {
        self.is_looking = true;
        self.look_at = clock::now() + self.options.poll;
    }

    /// Some wake-ups were not heard, cancellations and changes of limits perhaps among them.
    fn look_and_catch_up(&mut self) {
        self.look();
        self.limits_changed(None);
        self.catch_up.missed(self.turn.is_some());
    }

    /// Begins a turn, if none is under way and there is a reason for one.
    fn begin_turn(&mut self) {
        self.catch_up.ask(&self.store, || self.held.ids().chain(self.stock.ids()).collect());
        if !self.may_begin() || clock::now() < self.rest_until {
            return;
        }
        if self.held.running() < self.options.slots() as usize {
            // A slot is free that none of these could take: they are claimed anew, in their turn. What has a key waits
            // for its key.
            self.replace();
            self.held.settle_unstarted(self.stock.take_plain(), &End::Returned);
        }
        if self.is_full() && std::mem::take(&mut self.wants_locks) {
            // A turn that locks settles nothing, so nothing would ever be free for it.
            self.is_looking = true;
        }
        // Before anything is taken out to be settled: what is still to be settled is known, and must not be given back.
        // Of one that is about to leave, what it does not know goes back then.
        let known = (self.is_unsure && !self.is_done()).then(|| self.leases());
        let (mut settles, mut starts) = (Vec::new(), Vec::new());
        if !self.wants_locks {
            settles = self.held.take_ended();
            starts = self.stock.take_started(&self.held.left());
        }
        let free = (self.options.slots() as usize).saturating_sub(self.held.len()) as u32;
        let ahead = self.room_ahead();
        let has_reason = self.is_looking || self.wants_locks || !settles.is_empty();
        let wants = !self.is_closed && (free > 0 || ahead.is_some()) && has_reason;
        if settles.is_empty() && !wants && known.is_none() {
            return self.make_offer(free);
        }
        let with_locks = settles.is_empty() && free > 0;
        let want = wants.then_some(Want { slots: free, per_queue: self.options.per_queue(), with_locks });
        if wants {
            (self.is_looking, self.wants_locks) = (false, false);
        }
        let (store, worker) = (Arc::clone(&self.store), self.worker);
        self.is_unsure = false;
        let turn = Turn { settles: settles.clone(), starts: starts.clone(), want, ahead };
        let reply = async move {
            if let Some(known) = known {
                store.reconcile(worker, known).await?;
            }
            store.turn(worker, turn).await
        };
        let reply = Coming::Turn(Box::pin(reply));
        self.turn = Some(UnderWay { reply, asked: clock::now(), settles, starts });
    }

    /// Whether no slot is free before what has ended is settled.
    fn is_full(&self) -> bool {
        self.held.len() >= self.options.slots() as usize
    }

    /// How many more may be claimed ahead.
    fn room_ahead(&self) -> Option<Ahead> {
        let prefetch = self.options.prefetch.filter(|_| !self.is_closed)?;
        let room = (self.options.most() as usize).saturating_sub(self.held.len() + self.stock.len());
        let most = (prefetch.buffer as usize).saturating_sub(self.stock.len()).min(room) as u32;
        (most > 0).then_some(Ahead { most, lease: prefetch.lease })
    }

    /// Whether no turn is under way. An offer is withdrawn for a turn that has a reason, unless a send has it: then that is
    /// the turn under way.
    fn may_begin(&mut self) -> bool {
        let has_reason =
            self.is_looking || self.wants_locks || self.is_closed || self.held.len() > self.held.running();
        match self.turn.as_ref().map(|turn| &turn.reply) {
            None => true,
            Some(Coming::Turn(_)) => false,
            Some(Coming::Send(offered)) => {
                let is_free = has_reason && offered.withdraw();
                if is_free {
                    self.turn = None;
                }
                is_free
            }
        }
    }

    /// Lets a send of this process claim for slots that are free.
    fn make_offer(&mut self, free: u32) {
        if free == 0 || self.is_closed || self.is_unsure {
            return;
        }
        let (worker, per_queue) = (self.worker, self.options.per_queue());
        let offer = Offer { worker, slots: free, per_queue, queues: self.options.queues.clone() };
        self.turn = self.store.offer(offer).map(|offered| UnderWay {
            reply: Coming::Send(offered),
            asked: clock::now(),
            settles: Vec::new(),
            starts: Vec::new(),
        });
    }

    async fn end_turn(&mut self, turned: Result<Turned, StoreError>) -> Result<(), StoreError> {
        let Some(UnderWay { reply, asked, settles, starts }) = self.turn.take() else { return Ok(()) };
        self.teller.heard(&turned);
        self.catch_up.turned();
        if self.lease.is_over() {
            // What this turn claimed may be somebody else's by now: it does not start.
            self.give_up().await;
            return Ok(());
        }
        match turned {
            Ok(mut turned) => {
                self.teller.unread(std::mem::take(&mut turned.unread));
                self.count(&settles, &turned.lost);
                // What was settled before may have been by a turn whose reply was lost, and which claimed something as well.
                self.is_unsure = self.stock.told(&starts) || !turned.lost.is_empty();
                for id in std::mem::take(&mut turned.lost) {
                    self.lose(id);
                }
                if self.is_stopped {
                    self.return_claimed(&mut turned);
                }
                if let Some(prefetch) = self.options.prefetch {
                    self.stock.add(turned.ahead, asked, turned.now, prefetch.lease);
                    std::mem::take(&mut self.changed).into_iter().for_each(|key| self.hand_back(key));
                    // What ended meanwhile left places that were not taken for want of these.
                    self.replace();
                }
                let started = turned.claimed.len();
                if started > 0 {
                    self.backoff = SOON;
                }
                let asked = reply.asked().unwrap_or(asked);
                for task in turned.claimed {
                    let by = begin_by(&task, asked, turned.now);
                    self.held.start(task, by, &self.handlers);
                }
                // What ended during the turn is not settled at once, if what has just started is about to end, too.
                if started >= MANY {
                    self.held.gather().await;
                    self.replace();
                }
                // A send claims nothing ahead.
                let is_sent = self.options.prefetch.is_some() && matches!(reply, Coming::Send(_));
                self.is_looking |= self.is_full() && is_sent || self.is_unsure;
                match turned.again {
                    Again::WhenWoken => self.backoff = SOON,
                    Again::Now => self.is_looking = true,
                    Again::WithLocks => self.wants_locks = !self.is_closed,
                    Again::Soon => self.look_soon(),
                }
                Ok(())
            }
            Err(StoreError::Gone { .. }) => {
                self.give_up().await;
                Ok(())
            }
            Err(StoreError::Database { .. }) => {
                self.held.put_back(settles);
                self.stock.put_back(starts);
                self.is_unsure = true;
                self.look_soon();
                self.rest_until = self.look_at;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// What was settled, but for those that were lost.
    fn count(&mut self, settles: &[Settle], lost: &[TaskId]) {
        for settle in settles {
            match settle.end {
                _ if lost.contains(&settle.task.id) => {
                    self.ending.lost += 1;
                    continue;
                }
                End::Returned => {}
                End::Failed { .. } if !settle.is_last() => self.ending.failed += 1,
                _ => self.ending.settled += 1,
            }
            self.teller.settled(settle);
        }
    }

    fn lose(&mut self, id: TaskId) {
        self.ending.lost += u64::from(self.held.lose(id));
    }

    fn cancel(&mut self, id: TaskId) {
        match self.stock.take(id) {
            Some(task) => {
                self.replace();
                self.held.settle_unstarted(vec![task], &End::Cancelled);
            }
            None if self.held.cancel(id) => {}
            // It may be what a turn under way claims.
            None if self.turn.is_some() => self.catch_up.doubt(),
            None => {}
        }
    }

    /// The leases that this worker knows of.
    fn leases(&self) -> Vec<i64> {
        self.held.leases().into_iter().chain(self.stock.leases()).collect()
    }

    fn look_soon(&mut self) {
        self.look_at = self.look_at.min(clock::now() + self.backoff);
        self.backoff = (self.backoff * 2).min(LATE);
    }

    /// The lease ran out: what ran here belongs to others, so it is stopped, and the worker begins anew under another one.
    async fn give_up(&mut self) {
        self.lease.end();
        self.ending.lost += self.held.len() as u64;
        self.held.give_up().await;
        self.stock = Stock::default();
        self.turn = None;
        self.is_out = true;
    }

    fn begin_anew(&mut self, taken: (WorkerId, Lease)) {
        (self.worker, self.lease) = taken;
        (self.is_out, self.is_unsure) = (false, false);
        self.changed.clear();
        self.look();
    }

    fn end(self) -> Ending {
        self.ending
    }

    fn is_done(&self) -> bool {
        self.is_closed && self.turn.is_none() && self.held.len() == 0
    }
}
