//! The service of a shared gate: the one task that speaks with the store.
//!
//! Owns the connection, the lease, and the rounds: what is true in every lane with news goes to the store in
//! one round trip, whatever came together meanwhile. One round is under way at a time, so all that comes
//! during one goes with the next. It never waits for anything but the store.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use flowgate_core::{Limits, Tick, backoff};
use tokio::task::JoinHandle;

use super::{
    alarms::Alarms,
    answers::Done,
    book::{Item, Shared},
    document::{Declared, Document, Member},
    lease::Lease,
    name,
    plan::{Plan, declaration},
    store::{Loaded, Seen, Store, StoreError, Swap, Wake, within},
};
use crate::{
    chance::{Random, chance},
    clock::Clock,
};

/// Lanes in one round trip.
const ROUND: usize = 256;
/// The longest rest of a lane where others were faster again and again.
const LONGEST_REST: Duration = Duration::from_millis(50);
/// To connect takes longer than to ask, and while there is no lease there is none to lose.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the store is left alone after it failed: this and up to as much again.
const PAUSE: Duration = Duration::from_millis(100);

/// A running service. Dropped, it ends when nothing of this process is left in the gate.
pub(crate) struct Handle {
    shared: Arc<Shared>,
    _task: JoinHandle<()>,
}

impl Handle {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.book().is_abandoned = true;
        self.shared.news.notify_one();
    }
}

pub(crate) struct Service {
    shared: Arc<Shared>,
    store: Box<dyn Store>,
    span: Duration,
    random: Random,
    renew_at: Tick,
    /// The store failed, and is left alone until then.
    retry_at: Option<Tick>,
    /// The version of the limits that we know: nothing is swapped under others.
    limits: u64,
    /// The version of the limits that our last swap of them without an answer is for: see [`Plan::is_change`].
    doubted: Option<u64>,
    /// The store knew nothing of us where it should have: nobody starts before others have heard of it.
    has_forgotten: bool,
    alarms: Alarms,
}

impl Service {
    /// Joins the fleet, declares the limits, and goes on from there in a task of its own.
    pub(crate) async fn start(
        shared: Arc<Shared>,
        store: Box<dyn Store>,
        span: Duration,
    ) -> Result<Handle, StoreError> {
        let mut service = Service {
            shared: Arc::clone(&shared),
            store,
            span,
            random: chance(),
            renew_at: Tick::ZERO,
            retry_at: None,
            limits: 0,
            doubted: None,
            has_forgotten: false,
            alarms: Alarms::default(),
        };
        service.join().await?;
        let limits = shared.book().declared.limits;
        service.declare(limits).await?;
        let task = tokio::spawn(service.run());
        Ok(Handle { shared, _task: task })
    }

    async fn run(mut self) {
        // Whatever ends the task, nobody waits for it in vain.
        let _end = End(Arc::clone(&self.shared));
        while !self.is_over().await {
            self.check_lease();
            match self.retry_at.filter(|at| *at > self.now()) {
                Some(_) => self.shared.turn_away(),
                None => match self.work().await {
                    Ok(()) => self.recover(),
                    Err(error) => self.fail(&error),
                },
            }
            self.rest().await;
        }
    }

    /// Whether the gate is closed or abandoned and nothing of ours is left in it. Then the lease is given back.
    async fn is_over(&mut self) -> bool {
        let lease = {
            let book = self.shared.book();
            let is_leaving = book.is_abandoned || book.closing.is_some();
            let is_late = book.closing.is_some_and(|deadline| self.shared.clock.now() >= deadline);
            if !is_leaving || !book.is_quiet() {
                drop(book);
                if is_late {
                    self.shared.refuse_all();
                }
                return false;
            }
            book.lease.clone()
        };
        if let Some(lease) = lease {
            // If this fails, the lease runs out.
            let _ = within(self.patience(), self.store.leave(lease.member)).await;
        }
        true
    }

    /// What is due is done: the lease, wishes, and every lane with news.
    async fn work(&mut self) -> Result<(), StoreError> {
        if self.shared.book().lease.is_none() {
            self.join().await?;
        }
        if self.now() >= self.renew_at {
            self.renew().await?;
        }
        while self.now() < self.renew_at {
            self.hear().await?;
            let lease = self.shared.book().lease.clone();
            let Some(lease) = lease.filter(|lease| !lease.is_over()) else { break };
            let items = self.shared.book().take(lease.member, ROUND);
            if items.is_empty() {
                break;
            }
            self.round(&lease, items).await?;
        }
        Ok(())
    }

    /// What came while a round was under way: a busy process hears as well as an idle one.
    async fn hear(&mut self) -> Result<(), StoreError> {
        let wishes = std::mem::take(&mut self.shared.book().wishes);
        for (limits, reply) in wishes {
            self.declare(limits).await?;
            let _ = reply.send(());
        }
        let now = self.now();
        while let Some(name) = self.alarms.take_due(now) {
            self.shared.book().look_again(&name);
        }
        while let Some(wake) = self.store.heard() {
            self.follow(wake);
        }
        Ok(())
    }

    fn follow(&mut self, wake: Wake) {
        match wake {
            Wake::At(name) => self.shared.book().look_again(&name),
            Wake::All => self.shared.book().look_at_all(),
            Wake::Gone => self.renew_at = self.now(),
        }
    }

    /// Tells the store what is true in these lanes.
    async fn round(&mut self, lease: &Arc<Lease>, items: Vec<Item>) -> Result<(), StoreError> {
        let plans = self.plan(items).await?;
        let swaps: Vec<Swap> = plans.iter().filter_map(Plan::swap).collect();
        let mut swapped = match swaps.is_empty() {
            true => Ok(Vec::new()),
            false => within(self.patience(), self.store.swap(&swaps, self.limits)).await,
        }
        .inspect_err(|_| swaps.iter().for_each(|swap| self.shared.book().doubt(swap)))?
        .into_iter();
        self.recover();
        if lease.is_over() {
            // What was given is not ours any more: all of it is asked for again.
            return Ok(());
        }
        for plan in plans {
            if plan.is_change() && !swapped.next().unwrap_or(false) {
                self.rest_after_conflict(&plan.item.name);
            } else {
                self.settle(plan, lease);
            }
        }
        Ok(())
    }

    /// What would become of these lanes, by the documents as they are. Nothing yet, if the limits are others than we knew.
    async fn plan(&mut self, items: Vec<Item>) -> Result<Vec<Plan>, StoreError> {
        let is_unknown = |item: &&Item| item.known.is_none();
        let names: Vec<String> = items.iter().filter(is_unknown).map(|item| item.name.to_string()).collect();
        let mut loaded = Vec::new().into_iter();
        if !names.is_empty() {
            let names = [&[name::LIMITS.to_owned()], names.as_slice()].concat();
            let Loaded { is_alive, seen } = self.load(&names).await?;
            if !is_alive {
                // What it says of us, it says of one it has forgotten.
                self.join_anew().await?;
                return Ok(Vec::new());
            }
            loaded = seen.into_iter();
            let limits = loaded.next().ok_or_else(short)?;
            let own = self.shared.book().declared;
            let is_other = limits.version != self.limits;
            // No closure is longer than a lease, unless the store's clock was set back.
            if is_other || self.has_forgotten || own.opens > limits.now.after(self.span) {
                let is_there = is_other && limits.version > 0 && !self.has_forgotten;
                if !(is_there && self.learn(&limits)?) {
                    // Gone with all the store knew, or spoilt, they are ours again.
                    self.declare(own.limits).await?;
                }
                self.shared.book().look_at_all();
                return Ok(Vec::new());
            }
        }
        let (declared, store_time) = {
            let book = self.shared.book();
            (book.declared, book.store_time)
        };
        let (mut plans, mut unreadable) = (Vec::with_capacity(items.len()), Vec::new());
        for mut item in items {
            let is_loaded = item.known.is_none();
            let (kept, seen) = match item.known.take() {
                // It is later by now, which makes no difference to what is known: see `Book::take`.
                Some(known) => (known, Seen { now: store_time, ..Seen::nothing() }),
                None => {
                    let seen = loaded.next().ok_or_else(short)?;
                    let document = match seen.version {
                        0 => Some(Document::new(declared)),
                        _ => Document::from_bytes(&seen.document),
                    };
                    let Some(document) = document else {
                        unreadable.push(item.name);
                        continue;
                    };
                    ((seen.version, document), seen)
                }
            };
            let Some(plan) = Plan::new(item, kept, number(), seen, is_loaded, &declared) else {
                // It forgot what it told us, and whom else it told something is not known either.
                self.join_anew().await?;
                return Ok(Vec::new());
            };
            plans.push(plan);
        }
        for name in unreadable {
            self.shared.refuse_lane(&name, &StoreError::Unreadable(name.to_string()));
        }
        Ok(plans)
    }

    async fn load(&mut self, names: &[String]) -> Result<Loaded, StoreError> {
        let loaded = within(self.patience(), self.store.load(names)).await?;
        if let Some(seen) = loaded.seen.first() {
            self.shared.book().store_time = seen.now;
        }
        Ok(loaded)
    }

    /// The limits of the fleet, as they were seen; `false`, if they say nothing, and no later version wrote them.
    fn learn(&mut self, seen: &Seen) -> Result<bool, StoreError> {
        let Some(declared) = Declared::from_bytes(&seen.document) else {
            return match Declared::is_of_a_later_version(&seen.document) {
                true => Err(StoreError::Unreadable(name::LIMITS.to_owned())),
                false => Ok(false),
            };
        };
        self.limits = seen.version;
        self.shared.relimit(declared);
        Ok(true)
    }

    /// What was planned is so.
    fn settle(&mut self, plan: Plan, lease: &Arc<Lease>) {
        let version = if plan.is_change() { plan.next } else { plan.version };
        let Plan { item, after, turn, seen, .. } = plan;
        let rate = turn.due.map(|until| until.since(seen.now));
        let soonest = [rate, seen.soonest].into_iter().flatten().min();
        let done = Done { document: after, version, fates: turn.fates, now: seen.now };
        self.shared.settle(&item, done, lease);
        let is_waited = self.shared.book().is_waited_at(&item.name);
        let at =
            soonest.filter(|_| is_waited).map(|soonest| self.now().after(soonest + Duration::from_millis(1)));
        self.alarms.set(&item.name, at);
    }

    /// Others were faster. The first time it is tried again at once, then ever later, and by chance: so nobody is
    /// unlucky for ever.
    fn rest_after_conflict(&mut self, name: &Arc<str>) {
        let conflicts = self.shared.book().conflict(name);
        if conflicts > 1 {
            let most = backoff(Duration::from_micros(200), 2.0, LONGEST_REST, conflicts);
            let at = self.now().after(most.mul_f64((self.random)()));
            self.alarms.set(name, Some(at));
        }
    }

    async fn join(&mut self) -> Result<(), StoreError> {
        let (member, asked) = (Member(number()), self.now());
        within(self.patience().max(CONNECT), self.store.join(member, self.span)).await?;
        self.renew_at = asked.after(self.span / 3);
        self.shared.book().lease = Some(Arc::new(Lease::new(member, asked, self.span)));
        Ok(())
    }

    /// The store knows us no more, so nothing of what we held is ours.
    async fn join_anew(&mut self) -> Result<(), StoreError> {
        // A lease that should last and is not there: what others hold may be forgotten as well.
        self.has_forgotten |= self.shared.book().lease.as_ref().is_some_and(|lease| !lease.is_over());
        self.shared.book().lose();
        self.join().await
    }

    /// Renews the lease, and sees to what has time.
    async fn renew(&mut self) -> Result<(), StoreError> {
        let (lease, asked) = (self.shared.book().lease.clone(), self.now());
        let Some(lease) = lease else { return Ok(()) };
        if !within(self.patience(), self.store.renew(lease.member, self.span)).await? {
            return self.join_anew().await;
        }
        lease.renewed(asked, self.span);
        self.renew_at = asked.after(self.span / 3);
        self.shared.book().forget_idle();
        // If it fails, the next one sweeps more.
        let _ = within(self.patience(), self.store.sweep()).await;
        Ok(())
    }

    /// Makes these the limits of the fleet, if they are not, and tells everybody. A store that has none and had some
    /// has forgotten who holds what: nobody starts before all who hold something can have heard of it. The same holds
    /// where those that are kept say nothing, for they may have said so.
    async fn declare(&mut self, limits: Limits) -> Result<(), StoreError> {
        // To one that is new here, a store that forgot looks like one where nobody ever was, or like what it was some
        // time before.
        let age = match self.limits {
            0 => within(self.patience(), self.store.age()).await?,
            _ => None,
        };
        loop {
            let loaded = self.load(&[name::LIMITS.to_owned()]).await?;
            let seen = loaded.seen.into_iter().next().ok_or_else(short)?;
            let latest = seen.now.after(self.span);
            let left = age.and_then(|age| self.span.checked_sub(age));
            let is_missing = seen.version == 0 && self.limits > 0 && !self.store.sweeps_limits();
            let is_there = seen.version > 0 && self.learn(&seen)?;
            let is_spoilt = seen.version > 0 && !is_there;
            let opens = match self.has_forgotten || is_missing || is_spoilt {
                true => latest,
                false => left.map_or(Tick::ZERO, |left| seen.now.after(left)),
            };
            let found = self.shared.book().declared;
            let at = seen.now.max(found.at.after(Duration::from_nanos(1)));
            let mut declared = Declared { at, limits, opens };
            if is_there {
                // Later than that it says only if the store's clock was set back.
                declared.opens = opens.max(found.opens).min(latest);
                let is_certain = !self.has_forgotten && self.doubted != Some(seen.version);
                if (found.limits, found.opens) == (limits, declared.opens) && is_certain {
                    // Whoever set them may have been stopped before it could say so.
                    self.shared.book().look_at_all();
                    return within(self.patience(), self.store.call_all()).await;
                }
            }
            let version = number();
            let swap = declaration(declared, seen.version, version);
            let swapped = within(self.patience(), self.store.swap(&[swap], seen.version)).await;
            if swapped.inspect_err(|_| self.doubted = Some(seen.version))? == [true] {
                (self.limits, self.has_forgotten) = (version, false);
                self.shared.relimit(declared);
                self.shared.book().look_at_all();
                return within(self.patience(), self.store.call_all()).await;
            }
        }
    }

    fn check_lease(&mut self) {
        let mut book = self.shared.book();
        if book.lease.as_ref().is_some_and(|lease| lease.is_over()) {
            book.lose();
        }
    }

    fn recover(&mut self) {
        self.retry_at = None;
        self.shared.book().trouble = None;
    }

    fn fail(&mut self, error: &StoreError) {
        let pause = PAUSE + PAUSE.mul_f64((self.random)());
        self.retry_at = Some(self.now().after(pause));
        let mut book = self.shared.book();
        book.trouble = Some(error.to_string());
        book.look_at_all();
        drop(book);
        self.shared.turn_away();
    }

    /// Until there is something to do.
    async fn rest(&mut self) {
        let next = {
            let book = self.shared.book();
            let is_busy = book.is_dirty() || !book.wishes.is_empty();
            match self.retry_at {
                Some(at) => Some(at),
                None if is_busy => return,
                None => Some(self.renew_at),
            }
            .into_iter()
            .chain(book.lease.as_ref().map(|lease| lease.until()))
            .chain(book.closing.filter(|at| *at > self.now()))
            .chain(self.alarms.first().filter(|_| self.retry_at.is_none()))
            .min()
        };
        let wait = next.map_or(Duration::MAX, |next| next.since(self.now()));
        tokio::select! {
            () = self.shared.news.notified() => {}
            () = tokio::time::sleep(wait) => {}
            wake = self.store.wake(), if self.retry_at.is_none() => self.follow(wake),
        }
    }

    /// The longest that the store may take: then there is time for another try before the lease is over.
    fn patience(&self) -> Duration {
        self.span / 3
    }

    fn now(&self) -> Tick {
        self.shared.clock.now()
    }
}

/// The end of the service, however it comes.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        {
            let mut book = self.0.book();
            book.is_ended = true;
            // Passes that are still out are worth nothing without a service.
            if let Some(lease) = book.lease.take() {
                lease.end();
            }
        }
        self.0.refuse_all();
        self.0.ended.notify_waiters();
    }
}

/// A number that was never used before and will never be again, by all that chance can do. Never 0, and an integer to
/// every store.
fn number() -> u64 {
    RandomState::new().hash_one(0) >> 1 | 1
}

fn short() -> StoreError {
    StoreError::Refused("it answered less than was asked for".to_owned())
}
