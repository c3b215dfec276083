//! The floor on which tasks run: it counts them, and keeps what their own clock says.
//!
//! One for each process, for the handlers of some peers are plain functions.

use std::{
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tokio::sync::Notify;

use crate::{
    order::{Command, Order},
    task::Task,
};

static FLOOR: OnceLock<Floor> = OnceLock::new();

pub(crate) struct Floor {
    opened: Instant,
    task: Duration,
    keeps_records: bool,
    ran: AtomicU32,
    goal: u32,
    reached: Notify,
    /// When each was sent, in nanoseconds since the floor was opened.
    sent: Vec<AtomicU64>,
    waits: Mutex<Vec<Duration>>,
    records: Mutex<Vec<Record>>,
}

/// From when to when a task ran, in nanoseconds of a clock that all processes share.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Record {
    key: u32,
    start: u64,
    end: u64,
}

/// Opens the floor for an order.
pub(crate) fn open(order: &Order) -> &'static Floor {
    let sent = if order.command == Command::Latency { order.count } else { 0 };
    FLOOR.get_or_init(|| Floor {
        opened: Instant::now(),
        task: order.task,
        keeps_records: order.command == Command::Work,
        ran: AtomicU32::new(0),
        goal: order.count,
        reached: Notify::new(),
        sent: (0..sent).map(|_| AtomicU64::new(0)).collect(),
        waits: Mutex::default(),
        records: Mutex::default(),
    })
}

/// Runs a task: what every handler does.
pub(crate) async fn perform(task: Task) {
    let floor = FLOOR.get().expect("the floor is opened before a worker starts");
    if let Some(sent) = floor.sent.get(task.number as usize) {
        let wait = floor.opened.elapsed().saturating_sub(Duration::from_nanos(sent.load(Ordering::Acquire)));
        floor.waits.lock().expect("no panic under this lock").push(wait);
    }
    let start = if floor.keeps_records { now() } else { 0 };
    if !floor.task.is_zero() {
        tokio::time::sleep(floor.task).await;
    }
    if floor.keeps_records {
        let record = Record { key: task.key, start, end: now() };
        floor.records.lock().expect("no panic under this lock").push(record);
    }
    if floor.ran.fetch_add(1, Ordering::AcqRel) + 1 == floor.goal {
        floor.reached.notify_one();
    }
}

impl Floor {
    /// How many have run.
    pub(crate) fn ran(&self) -> u32 {
        self.ran.load(Ordering::Acquire)
    }

    /// Waits until all have run.
    pub(crate) async fn reached(&self) {
        self.reached.notified().await;
    }

    /// Notes that a task is about to be sent.
    pub(crate) fn sends(&self, number: u32) {
        let now = self.opened.elapsed().as_nanos() as u64;
        self.sent[number as usize].store(now, Ordering::Release);
    }

    /// From the call that sent it to its start, for each that has started.
    pub(crate) fn waits(&self) -> Vec<Duration> {
        self.waits.lock().expect("no panic under this lock").clone()
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        self.records.lock().expect("no panic under this lock").clone()
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}
