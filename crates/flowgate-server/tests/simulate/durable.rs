//! A trace played through the durable tasks: a real SQLite decides who starts, under a clock moved by hand.
//!
//! The worker here has a slot for everybody and takes turns as the real one does: what ends is settled and replaced in
//! one turn, and what falls due by time is seen to by the store's own upkeep. Time jumps from one moment to the next,
//! so nothing depends on the machine.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use flowgate::{Limits, Tick};
use flowgate_tasks::{
    NewTask, TaskId,
    clock::Wall,
    store::{Again, Claimed, End, NewWorker, Settle, Sqlite, Store, Turn, Want, WorkerId},
};

use crate::replay::{Arrival, Played, read};

const BEGIN: u64 = 1_800_000_000_000_000_000;
/// More than ever run at once here.
const SLOTS: u32 = 10_000;

struct HandWall(AtomicU64);

impl Wall for HandWall {
    fn now(&self) -> Tick {
        Tick::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

struct Player {
    store: Sqlite,
    wall: Arc<HandWall>,
    worker: WorkerId,
    arrivals: Vec<Arrival>,
    numbers: HashMap<TaskId, usize>,
    running: BinaryHeap<Reverse<(u64, usize)>>,
    held: HashMap<usize, Claimed>,
    waiting: usize,
    /// When the store has something to do by itself.
    due: Option<u64>,
    played: Played,
}

/// Plays the trace at `path` under these limits.
pub(crate) fn play(path: &str, limits: Limits) -> Played {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let wall = Arc::new(HandWall(AtomicU64::new(BEGIN)));
        let store = Sqlite::in_memory_with(Arc::clone(&wall) as Arc<dyn Wall>).unwrap();
        let worker = NewWorker {
            name: "played".to_owned(),
            slots: SLOTS,
            queues: Vec::new(),
            lease: Duration::from_secs(24 * 60 * 60),
        };
        let worker = store.register(worker).await.unwrap();
        let mut player = Player {
            store,
            wall,
            worker,
            arrivals: read(path),
            numbers: HashMap::new(),
            running: BinaryHeap::new(),
            held: HashMap::new(),
            waiting: 0,
            due: None,
            played: Played::default(),
        };
        player.run(limits).await;
        assert_eq!(player.store.audit().await.unwrap(), [""; 0], "all is counted right at the end");
        player.played
    })
}

impl Player {
    async fn run(&mut self, limits: Limits) {
        let mut next = 0;
        loop {
            let coming = self.arrivals.get(next).map(|arrival| arrival.at);
            let ending = self.running.peek().map(|Reverse((at, _))| *at);
            let due = self.due.filter(|_| self.waiting > 0);
            let Some(at) = [coming, ending, due].into_iter().flatten().min() else { return };
            self.wall.0.store(BEGIN + at, Ordering::SeqCst);
            if due.is_some_and(|due| due <= at) {
                self.store.upkeep().await.unwrap();
            }
            let mut settles = Vec::new();
            while let Some(&Reverse((end, number))) = self.running.peek()
                && end <= at
            {
                self.running.pop();
                self.played.ends.push(end);
                let task = self.held.remove(&number).unwrap();
                settles.push(Settle { task, end: End::Done { result: Vec::new() } });
            }
            self.turn(settles, at).await;
            while let Some(arrival) = self.arrivals.get(next).filter(|arrival| arrival.at <= at) {
                let task = NewTask::new("played", Vec::new()).key(&arrival.key).weight(arrival.weight);
                let sent = self.store.send(vec![task.limits(limits)]).await.unwrap();
                self.numbers.insert(sent[0].id, next);
                self.waiting += 1;
                next += 1;
                self.turn(Vec::new(), at).await;
            }
            let kept = self.store.upkeep().await.unwrap();
            self.due = kept.next.map(|span| at + span.as_nanos() as u64);
        }
    }

    /// Settles, and starts whatever may start.
    async fn turn(&mut self, mut settles: Vec<Settle>, at: u64) {
        let mut with_locks = false;
        loop {
            let want = Some(Want { slots: SLOTS, per_queue: u32::MAX, with_locks });
            let turn = Turn { settles: std::mem::take(&mut settles), want, ..Turn::default() };
            let turned = self.store.turn(self.worker, turn).await.unwrap();
            assert_eq!(turned.lost, [], "nobody else is here");
            for task in turned.claimed {
                let number = self.numbers[&task.id];
                let waited = at - self.arrivals[number].at;
                self.played.started += 1;
                self.played.waited += u128::from(waited);
                self.played.longest = self.played.longest.max(waited);
                self.running.push(Reverse((at + self.arrivals[number].duration, number)));
                self.held.insert(number, task);
                self.waiting -= 1;
            }
            match turned.again {
                Again::WhenWoken => return,
                again => with_locks = again == Again::WithLocks,
            }
        }
    }
}
