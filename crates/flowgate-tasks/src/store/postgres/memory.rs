//! What a process remembers between turns.
//!
//! Owns which leases are settled by one delete, and where the rotation of lanes goes on. What is forgotten
//! costs speed, never a task: an unknown lease is settled task by task.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

use super::{
    balance::{Largest, Way},
    gather::{Begun, WhereTo},
    idle, marks,
    promised::Promised,
    straight::Straight,
    swap,
};
use crate::{
    plan::{Grant, Scene},
    store::{Claimed, Settle, WorkerId},
};

/// What a process remembers between turns. Nothing depends on it but speed and fairness.
#[derive(Default)]
pub(super) struct Memory {
    /// The lane that was served last: the rotation goes on behind it.
    pub(super) cursor: AtomicI64,
    /// How long to wait before lanes are looked at again that could not be made idle.
    pub(super) idling: idle::Backoff,
    pub(super) marks: marks::Marks,
    pub(super) promised: Promised,
    /// Whether the next turn may be like the last.
    pub(super) steady: swap::Steady,
    pub(super) largest: Largest,
    /// Whether the next send may be like the last.
    pub(super) straight: Straight,
    /// The tasks of each lease that this process has not settled yet, and whose lease it is.
    open: Mutex<HashMap<i64, Open>>,
}

/// What is known of a lease: its worker, and its tasks that are not settled.
type Open = (WorkerId, HashSet<i64>);

/// More leases than these are forgotten, all at once: what is left of one that is not known is found when its worker is gone.
const MOST_OPEN: usize = 100_000;

impl Memory {
    fn open(&self) -> MutexGuard<'_, HashMap<i64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a turn that wants tasks, or for one that only settles.
    pub(super) fn where_to_look(&self, wants: bool) -> WhereTo {
        let promised = if wants { self.promised.all() } else { Vec::new() };
        let lows = self.marks.of(&promised);
        WhereTo { cursor: self.cursor.load(Ordering::Relaxed), promised: (promised, lows) }
    }

    /// What a turn was like, or a send that claimed, of which so much is left: the next may be like it.
    pub(super) fn see(
        &self,
        sent: Option<(&Begun, &[i64])>,
        way: Way,
        (scene, grants, heavy): (&Scene, &[Grant], &HashSet<i64>),
    ) {
        match sent {
            None => self.steady.see(scene, grants, way, heavy),
            // What it took never had a next one.
            Some((begun, left)) => self.straight.see(begun, way == Way::Bare && left.is_empty()),
        }
    }

    /// A worker is gone: what it held is no longer this process's to settle.
    pub(super) fn forget(&self, worker: WorkerId) {
        self.open().retain(|_, (holder, _)| *holder != worker);
        self.straight.begin(worker, None);
    }

    /// The leases of which these are all that is left, as far as is known here.
    pub(super) fn whole(&self, settles: &[Settle]) -> HashSet<i64> {
        let ending: HashSet<(i64, i64)> =
            settles.iter().map(|settle| (settle.task.lease, settle.task.id.0)).collect();
        let open = self.open();
        let is_whole = |lease: &i64| {
            open.get(lease)
                .is_some_and(|(_, tasks)| tasks.iter().all(|&task| ending.contains(&(*lease, task))))
        };
        // Each lease is looked at once, however many of its tasks end here.
        let leases: HashSet<i64> = settles.iter().map(|settle| settle.task.lease).collect();
        leases.into_iter().filter(is_whole).collect()
    }

    pub(super) fn settled(&self, settles: &[Settle], whole: &HashSet<i64>) {
        let mut open = self.open();
        for Settle { task, .. } in settles {
            if let Some((_, tasks)) = open.get_mut(&task.lease) {
                tasks.remove(&task.id.0);
            }
        }
        open.retain(|lease, _| !whole.contains(lease));
    }

    pub(super) fn claimed(&self, worker: WorkerId, tasks: &[Claimed]) {
        let lanes = || tasks.iter().map(|task| task.place.lane);
        self.largest.see(tasks);
        self.marks.add(lanes());
        self.promised.found_filled(lanes());
        let mut open = self.open();
        if open.len() >= MOST_OPEN {
            open.clear();
        }
        for task in tasks {
            open.entry(task.lease).or_insert_with(|| (worker, HashSet::new())).1.insert(task.id.0);
        }
    }
}
