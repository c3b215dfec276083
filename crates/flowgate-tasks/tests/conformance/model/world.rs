//! A store and the model side by side: what happens to one happens to the other, and their answers are compared.

use flowgate_core::Tick;
use flowgate_tasks::{
    NewTask, Retry, TaskId, When,
    store::{
        Again, Cancelled, Claimed, End, KeyChange, NewWorker, Offer, Offered, QueueLimits, Settle, State,
        StoreError, Turn, Wake, Want, WorkerId,
    },
};

use tokio::sync::broadcast;

use super::{
    history::{Ending, KEYS, LATEST, Op, QUEUES, RATED, Sent, span},
    laws::{Laws, Spot, Task},
};
use crate::kit::{Kit, SECOND, max};

/// A lease of fifteen seconds is over after two steps.
const LEASE: u64 = 2;

struct Worker {
    id: WorkerId,
    /// The step at which its lease is over.
    until: u64,
    held: Vec<Claimed>,
}

pub(super) struct World<'a> {
    kit: &'a Kit,
    laws: Laws,
    workers: Vec<Worker>,
    /// What was settled before or was taken from a worker, and by whom it was held.
    stale: Vec<(WorkerId, Claimed)>,
    wakes: broadcast::Receiver<Wake>,
}

impl<'a> World<'a> {
    pub(super) async fn new(kit: &'a Kit) -> Self {
        let wakes = kit.store.wakes();
        let mut world = World { kit, laws: Laws::default(), workers: Vec::new(), stale: Vec::new(), wakes };
        for name in QUEUES {
            kit.queue(name, 0, None).await;
        }
        kit.change_key(KEYS[LATEST], KeyChange::Latest(true)).await;
        for _ in 0..3 {
            let worker = world.register().await;
            world.workers.push(worker);
        }
        world
    }

    async fn register(&self) -> Worker {
        let name = "model".to_owned();
        let worker = NewWorker { name, slots: 100, queues: Vec::new(), lease: 15 * SECOND };
        let id = self.kit.store.register(worker).await.expect("a worker");
        Worker { id, until: self.laws.step + LEASE, held: Vec::new() }
    }

    pub(super) async fn apply(&mut self, op: &Op, offer: Option<(usize, u32)>) {
        let store = &self.kit.store;
        match *op {
            Op::Send { ref sent, count } => self.send(sent, count, offer).await,
            Op::Turn { worker, settle, end, claim } => self.turn(worker, settle, end, claim).await,
            Op::SettleLate { which } => self.settle_late(which).await,
            Op::Beat { worker } => {
                assert!(self.kit.store.beat(self.workers[worker].id).await.expect("a beat"));
                self.workers[worker].until = self.laws.step + LEASE;
            }
            Op::Leave { worker } => {
                store.leave(self.workers[worker].id).await.expect("it leaves");
                self.take_back(worker);
                self.workers[worker] = self.register().await;
            }
            Op::Step => self.step().await,
            Op::ClusterCap(cap) => {
                store.set_cluster_cap(cap).await.expect("a cap");
                self.laws.cap = cap;
            }
            Op::Queue { queue, priority, max } => {
                let name = QUEUES[queue].to_owned();
                store.set_queue(QueueLimits { name, priority, max }).await.expect("a queue");
                let law = &mut self.laws.queues[queue];
                (law.priority, law.max) = (priority, max);
            }
            Op::PauseQueue { queue, is_paused } => {
                assert!(store.pause_queue(QUEUES[queue].to_owned(), is_paused).await.expect("a pause"));
                self.laws.queues[queue].is_paused = is_paused;
            }
            Op::PauseKey { key, is_paused } => {
                let change = if is_paused { KeyChange::Pause } else { KeyChange::Resume };
                self.kit.change_key(KEYS[key], change).await;
                self.laws.keys[key].is_paused = is_paused;
            }
            Op::Pin { key, max: most } => {
                let change = most.map_or(KeyChange::Unpin, |most| KeyChange::Pin(max(most)));
                self.kit.change_key(KEYS[key], change).await;
                self.laws.keys[key].pinned = most;
            }
            Op::ResetRate => {
                self.kit.change_key(KEYS[RATED], KeyChange::ResetRate).await;
                self.laws.keys[RATED].window = None;
            }
            Op::Cancel { which } => self.cancel(which).await,
            Op::Revive { which } => self.revive(which).await,
        }
        self.kit.check().await;
    }

    async fn send(&mut self, sent: &Sent, count: usize, offer: Option<(usize, u32)>) {
        let offered = offer.and_then(|(worker, slots)| {
            let worker = self.workers[worker].id;
            self.kit.store.offer(Offer { worker, slots, per_queue: u32::MAX, queues: Vec::new() })
        });
        let ids = self.kit.send_all(vec![new_task(sent, self.kit.now()); count]).await;
        assert_eq!(ids.len(), count);
        for id in ids {
            self.laws.send(id, sent);
        }
        if let (Some((worker, slots)), Some(offered)) = (offer, offered) {
            self.offered(worker, slots, count, offered).await;
        }
    }

    /// What a send claimed is judged as if the worker had asked for it.
    async fn offered(&mut self, worker: usize, slots: u32, sent: usize, mut offered: Offered) {
        assert_eq!(offered.withdraw(), sent > slots as usize, "it is taken if it has a slot for each");
        if sent > slots as usize {
            return;
        }
        let turned = offered.answer().await.expect("a claim");
        let mut claimed = turned.claimed;
        assert!(claimed.len() <= slots as usize, "more than offered");
        let left = slots - claimed.len() as u32;
        if left > 0 && turned.again != Again::WhenWoken {
            claimed.extend(self.ask(self.workers[worker].id, Vec::new(), left).await);
        }
        if self.judge(worker, claimed) < slots {
            let missed = self.laws.startable();
            assert_eq!(missed, [], "these may start, and were not claimed with a send\n{:#?}", self.laws);
        }
    }

    async fn turn(&mut self, worker: usize, settle: usize, end: Ending, claim: u32) {
        let held = &mut self.workers[worker].held;
        let settled = held.split_off(held.len().saturating_sub(settle));
        let settles = settled.iter().map(|task| Settle { task: task.clone(), end: end.end() }).collect();
        for task in settled {
            self.end(task.id, end);
            let goes_back =
                self.laws.tasks.get(&task.id).is_some_and(|task| matches!(task.spot, Spot::Line(_)));
            self.laws.going_back.extend(goes_back.then_some(task.id));
            self.stale.push((self.workers[worker].id, task));
        }
        let mut left = claim - self.claim(worker, settles, claim).await;
        let goes_back = !std::mem::take(&mut self.laws.going_back).is_empty();
        // Whoever has slots left is woken for what went back.
        while goes_back && left > 0 && !self.laws.startable().is_empty() {
            let wake = tokio::time::timeout(30 * SECOND, self.wakes.recv()).await;
            assert!(wake.is_ok(), "nobody is woken for {:?}\n{:#?}", self.laws.startable(), self.laws);
            left -= self.claim(worker, Vec::new(), left).await;
        }
        if left > 0 {
            let missed = self.laws.startable();
            assert_eq!(missed, [], "these may start, and were not claimed\n{:#?}", self.laws);
        }
    }

    /// Claims, and judges what was claimed. Gives how many tasks that were.
    async fn claim(&mut self, worker: usize, settles: Vec<Settle>, most: u32) -> u32 {
        let claimed = self.ask(self.workers[worker].id, settles, most).await;
        self.judge(worker, claimed)
    }

    fn judge(&mut self, worker: usize, claimed: Vec<Claimed>) -> u32 {
        let mut worst = None;
        for task in &claimed {
            assert_eq!(self.laws.hold(task.id), None, "task {} was claimed\n{:#?}", task.id, self.laws);
            let overtaken = self.laws.overtaken_at_its_key(task.id);
            assert_eq!(overtaken, [], "these come before {} of their key\n{:#?}", task.id, self.laws);
            worst = worst.max(Some(self.laws.rank(task.id)));
            self.laws.start(task.id, worker);
            assert_eq!(task.attempt, self.laws.tasks[&task.id].attempt);
            assert_eq!(task.weight, self.laws.tasks[&task.id].sent.weight);
        }
        let comes_first = |id: &TaskId| {
            !self.laws.going_back.contains(id) && worst.is_some_and(|worst| self.laws.rank(*id) < worst)
        };
        let overtaken: Vec<TaskId> = self.laws.startable().into_iter().filter(comes_first).collect();
        assert_eq!(overtaken, [], "these come before what was claimed ({worst:?})\n{:#?}", self.laws);
        let count = claimed.len() as u32;
        self.workers[worker].held.extend(claimed);
        count
    }

    /// Asks as often as it is told to.
    async fn ask(&self, worker: WorkerId, mut settles: Vec<Settle>, most: u32) -> Vec<Claimed> {
        let mut claimed = Vec::new();
        let mut with_locks = false;
        for _ in 0..50 {
            let slots = most - claimed.len() as u32;
            let want = (slots > 0).then_some(Want { slots, per_queue: u32::MAX, with_locks });
            let turn = Turn { settles: std::mem::take(&mut settles), want, ..Turn::default() };
            let turned = self.kit.store.turn(worker, turn).await.expect("a turn");
            assert_eq!(turned.lost, [], "all of them were this worker's");
            claimed.extend(turned.claimed);
            let wants_locks = turned.again == Again::WithLocks;
            assert!(
                !wants_locks || slots == 0 || (claimed.len() as u32) < most,
                "none is left for the turn that locks"
            );
            if claimed.len() as u32 >= most || turned.again == Again::WhenWoken {
                assert!(claimed.len() as u32 <= most, "more than asked for");
                return claimed;
            }
            with_locks = wants_locks;
        }
        panic!("told to ask again fifty times; {} claimed of {most}\n{:#?}", claimed.len(), self.laws);
    }

    fn end(&mut self, id: TaskId, end: Ending) {
        let step = self.laws.step;
        let task = self.laws.tasks.get_mut(&id).expect("a known task");
        let is_last = task.attempt >= task.sent.attempts;
        match end {
            Ending::Done => drop(self.laws.tasks.remove(&id)),
            Ending::FailedAtOnce | Ending::Lost => self.laws.lose(id),
            Ending::FailedForAWhile if is_last => task.spot = Spot::Dead("failed"),
            Ending::FailedForAWhile => task.spot = Spot::Delayed { until: step + 1 },
            Ending::Dead => task.spot = Spot::Dead("failed"),
            Ending::Cancelled => task.spot = Spot::Dead("cancelled"),
            Ending::Returned => {
                task.attempt -= 1;
                task.spot = Spot::Line((id.0, 0));
            }
        }
        self.laws.heed(id);
    }

    async fn settle_late(&mut self, which: usize) {
        if self.stale.is_empty() {
            return;
        }
        let (worker, task) = self.stale[which % self.stale.len()].clone();
        let id = task.id;
        let settles = vec![Settle { task, end: End::Done { result: Vec::new() } }];
        let turned = self.kit.store.turn(worker, Turn { settles, ..Turn::default() }).await.expect("a turn");
        assert_eq!(turned.lost, [id]);
    }

    /// What a worker held belongs to others.
    fn take_back(&mut self, worker: usize) -> u32 {
        let Worker { id, held, .. } = &mut self.workers[worker];
        let held = std::mem::take(held);
        let count = held.len() as u32;
        for task in held {
            self.laws.lose(task.id);
            self.stale.push((*id, task));
        }
        count
    }

    async fn step(&mut self) {
        self.laws.step += 1;
        let (due, late, both) = self.laws.fall_due();
        for id in &late {
            self.laws.tasks.get_mut(id).expect("a known task").spot = Spot::Dead("expired");
        }
        for id in &due {
            let place = self.laws.last_place();
            self.laws.tasks.get_mut(id).expect("a known task").spot = place;
        }
        let lapsed: Vec<usize> = (0..3).filter(|&at| self.workers[at].until <= self.laws.step).collect();
        let recovered: u32 = lapsed.iter().map(|&worker| self.take_back(worker)).sum();
        let kept = self.kit.pass(10 * SECOND).await;
        assert_eq!((kept.expired as usize, kept.recovered), (late.len(), recovered));
        let joined = kept.due as usize;
        assert!((due.len()..=due.len() + both).contains(&joined), "{joined} joined, not {}", due.len());
        for worker in lapsed {
            let id = self.workers[worker].id;
            assert!(!self.kit.store.beat(id).await.expect("a beat"), "its lease ran out");
            let want = Some(Want { slots: 1, per_queue: 1, with_locks: false });
            let refused = self.kit.store.turn(id, Turn { want, ..Turn::default() }).await;
            assert!(matches!(refused, Err(StoreError::Gone { .. })), "{refused:?}");
            self.workers[worker] = self.register().await;
        }
    }

    async fn cancel(&mut self, which: usize) {
        let Some(id) = self.nth(which) else { return };
        let answer = self.kit.store.cancel(id).await.expect("a cancellation");
        let task = self.laws.tasks.get_mut(&id).expect("a known task");
        let expected = match task.spot {
            Spot::Line(_) | Spot::Delayed { .. } => {
                task.spot = Spot::Dead("cancelled");
                Cancelled::Waiting
            }
            Spot::Held { .. } => {
                task.is_cancelled = true;
                Cancelled::Running
            }
            Spot::Dead(_) => Cancelled::Unknown,
        };
        assert_eq!(answer, expected);
    }

    async fn revive(&mut self, which: usize) {
        let Some(id) = self.nth(which) else { return };
        let answer = self.kit.store.revive(id).await.expect("a revival");
        let is_dead = matches!(self.laws.tasks[&id].spot, Spot::Dead(_));
        assert_eq!(answer, is_dead);
        if is_dead {
            let place = self.laws.last_place();
            let task = self.laws.tasks.get_mut(&id).expect("a known task");
            (task.attempt, task.good_until, task.spot, task.is_cancelled) = (0, None, place, false);
        }
    }

    fn nth(&self, which: usize) -> Option<TaskId> {
        let ids: Vec<TaskId> = self.laws.tasks.keys().copied().collect();
        (!ids.is_empty()).then(|| ids[which % ids.len()])
    }

    /// Each task is where the model says, and the counts agree.
    pub(super) async fn compare_all(&self) {
        for (&id, task) in &self.laws.tasks {
            let look =
                self.kit.store.look_at_task(id).await.expect("a look").expect("a task that has not ended");
            assert_eq!(look.attempt, task.attempt, "task {id}");
            assert!(self.agrees(&look.state, task), "task {id} is {:?}, not {:?}", look.state, task.spot);
        }
        for (index, key) in KEYS.into_iter().enumerate() {
            let (_, weight) = self.laws.held(|task| task.sent.key == Some(index));
            assert_eq!(self.kit.key_in_use(key).await, weight, "key {key}");
        }
        assert_eq!(
            self.kit.store.cluster().await.expect("a look"),
            (self.laws.held(|_| true).0, self.laws.cap)
        );
    }

    fn agrees(&self, state: &State, task: &Task) -> bool {
        match (state, task.spot) {
            (State::Waiting { .. }, Spot::Line(_)) | (State::Delayed { .. }, Spot::Delayed { .. }) => true,
            (State::Held { worker, .. }, Spot::Held { worker: index }) => self.workers[index].id == *worker,
            (State::Dead { reason, .. }, Spot::Dead(expected)) => reason == expected,
            _ => false,
        }
    }
}

impl Ending {
    fn end(self) -> End {
        let failed = |retry_after| End::Failed { error: "no".to_owned(), retry_after };
        match self {
            Ending::Done => End::Done { result: Vec::new() },
            Ending::FailedAtOnce => failed(std::time::Duration::ZERO),
            Ending::FailedForAWhile => failed(span(1)),
            Ending::Dead => End::Dead { error: "no".to_owned() },
            Ending::Cancelled => End::Cancelled,
            Ending::Returned => End::Returned,
            Ending::Lost => End::Lost,
        }
    }
}

fn new_task(sent: &Sent, now: Tick) -> NewTask {
    let mut task = NewTask::new("model", Vec::new())
        .queue(QUEUES[sent.queue])
        .priority(sent.priority)
        .weight(sent.weight)
        .retry(Retry { max_attempts: sent.attempts, ..Retry::default() });
    if let Some(key) = sent.key {
        task = task.key(KEYS[key]);
    }
    if let Some(limits) = sent.terms.limits() {
        task = task.limits(limits);
    }
    if let Some(steps) = sent.delay {
        task = task.delay(span(steps));
    }
    if let Some(steps) = sent.good_until {
        // As a moment: one that is over before the delay is refused where both are spans.
        task = task.good_until(When::At(now.after(span(steps))));
    }
    task
}
