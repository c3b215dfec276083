//! The laws, over a handful of tasks in memory.

use std::collections::{BTreeMap, BTreeSet};

use flowgate_tasks::TaskId;

use super::history::{KEYS, LATEST, QUEUES, RATE, RATED, Sent, Terms};

/// Where a task stands in line: a number, or after that number in the order of joining.
type Place = (i64, u64);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Spot {
    Line(Place),
    Delayed { until: u64 },
    Held { worker: usize },
    Dead(&'static str),
}

#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) sent: Sent,
    pub(super) good_until: Option<u64>,
    pub(super) attempt: u32,
    pub(super) spot: Spot,
    /// Whether it was cancelled while it was held.
    pub(super) is_cancelled: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queue {
    pub(super) priority: i32,
    pub(super) max: Option<u32>,
    pub(super) is_paused: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Key {
    pub(super) is_paused: bool,
    pub(super) pinned: Option<u32>,
    /// The newest limits sent.
    pub(super) newest: Option<u32>,
    /// When the window opened, and how many started in it.
    pub(super) window: Option<(u64, u32)>,
}

/// Everything the laws speak of. Time is counted in steps.
#[derive(Debug, Default)]
pub(super) struct Laws {
    pub(super) step: u64,
    /// All that have not ended, and the dead.
    pub(super) tasks: BTreeMap<TaskId, Task>,
    pub(super) cap: Option<u32>,
    pub(super) queues: [Queue; QUEUES.len()],
    pub(super) keys: [Key; KEYS.len()],
    /// What goes back to its line in the turn that is judged. Others of its lane do not come before it; whether those
    /// of other lanes do is the store's choice.
    pub(super) going_back: BTreeSet<TaskId>,
    last_id: i64,
    joined: u64,
}

impl Laws {
    pub(super) fn send(&mut self, id: TaskId, sent: &Sent) {
        assert!(id.0 > self.last_id, "numbers only grow");
        self.last_id = id.0;
        if let (Some(key), Terms::Max(most)) = (sent.key, sent.terms) {
            self.keys[key].newest = Some(most);
        }
        let spot = sent
            .delay
            .map_or(Spot::Line((id.0, 0)), |steps| Spot::Delayed { until: self.step + u64::from(steps) });
        let good_until = sent.good_until.map(|steps| self.step + u64::from(steps));
        self.tasks.insert(id, Task { sent: sent.clone(), good_until, attempt: 0, spot, is_cancelled: false });
    }

    /// How many are held of those that the question picks, by count or by weight.
    pub(super) fn held(&self, pick: impl Fn(&Task) -> bool) -> (u32, u32) {
        let held = self.tasks.values().filter(|task| matches!(task.spot, Spot::Held { .. }) && pick(task));
        held.fold((0, 0), |(count, weight), task| (count + 1, weight + task.sent.weight))
    }

    /// The end of the line, for those that join it.
    pub(super) fn last_place(&mut self) -> Spot {
        self.joined += 1;
        Spot::Line((self.last_id, self.joined))
    }

    /// Lower is served first.
    pub(super) fn rank(&self, id: TaskId) -> (i32, i16) {
        let sent = &self.tasks[&id].sent;
        (self.queues[sent.queue].priority, sent.priority)
    }

    /// Why a task may not start now; nothing if it may.
    pub(super) fn hold(&self, id: TaskId) -> Option<&'static str> {
        let task = &self.tasks[&id];
        let Spot::Line(place) = task.spot else { return Some("it does not stand in line") };
        if task.good_until.is_some_and(|until| until <= self.step) {
            return Some("it is too late");
        }
        let lane = |task: &Task| (task.sent.queue, task.sent.key, task.sent.priority, task.sent.terms);
        let is_before = |other: &Task| {
            let is_good = other.good_until.is_none_or(|until| until > self.step);
            matches!(other.spot, Spot::Line(its) if its < place) && is_good && lane(other) == lane(task)
        };
        if self.tasks.values().any(is_before) {
            return Some("another one stands before it");
        }
        let queue = &self.queues[task.sent.queue];
        if queue.is_paused {
            return Some("its queue is paused");
        }
        if queue.max.is_some_and(|max| self.held(|other| other.sent.queue == task.sent.queue).0 >= max) {
            return Some("its queue is full");
        }
        if self.cap.is_some_and(|cap| self.held(|_| true).0 >= cap) {
            return Some("the cluster is full");
        }
        self.hold_of_key(task)
    }

    fn hold_of_key(&self, task: &Task) -> Option<&'static str> {
        let index = task.sent.key?;
        let key = &self.keys[index];
        if key.is_paused {
            return Some("its key is paused");
        }
        let newest = key.newest.filter(|_| index == LATEST);
        let max = key.pinned.or(newest).or(task.sent.terms.max());
        let in_use = self.held(|other| other.sent.key == Some(index)).1;
        if max.is_some_and(|max| in_use + task.sent.weight > max) {
            return Some("its key is full");
        }
        let is_spent = |&(opened, count): &(u64, u32)| self.step < opened + RATE.1 && count >= RATE.0;
        if index == RATED && key.window.as_ref().is_some_and(is_spent) {
            return Some("its key's rate is spent");
        }
        None
    }

    /// A task starts.
    pub(super) fn start(&mut self, id: TaskId, worker: usize) {
        let step = self.step;
        let task = self.tasks.get_mut(&id).expect("a known task");
        task.attempt += 1;
        task.spot = Spot::Held { worker };
        if task.sent.key == Some(RATED) {
            let window = &mut self.keys[RATED].window;
            *window = match *window {
                Some((opened, count)) if step < opened + RATE.1 => Some((opened, count + 1)),
                _ => Some((step, 1)),
            };
        }
    }

    /// A held task goes back to the front, or is dead if it was its last attempt.
    pub(super) fn lose(&mut self, id: TaskId) {
        let task = self.tasks.get_mut(&id).expect("a known task");
        let is_last = task.attempt >= task.sent.attempts;
        task.spot = if is_last { Spot::Dead("failed") } else { Spot::Line((id.0, 0)) };
        self.heed(id);
    }

    /// What was cancelled while it was held does not go back to its line.
    pub(super) fn heed(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if task.is_cancelled && matches!(task.spot, Spot::Line(_) | Spot::Delayed { .. }) {
            task.spot = Spot::Dead("cancelled");
        }
    }

    /// Those that the laws would let start, of all.
    pub(super) fn startable(&self) -> Vec<TaskId> {
        self.tasks.keys().copied().filter(|id| self.hold(*id).is_none()).collect()
    }

    /// Those of its key that should start before it.
    pub(super) fn overtaken_at_its_key(&self, id: TaskId) -> Vec<TaskId> {
        let key = self.tasks[&id].sent.key;
        let is_before = |other: &TaskId| {
            self.tasks[other].sent.key == key
                && self.rank(*other) < self.rank(id)
                && !self.going_back.contains(other)
        };
        match key {
            Some(_) => self.startable().into_iter().filter(is_before).collect(),
            None => Vec::new(),
        }
    }

    /// What falls due by now: tasks that join, tasks that are too late, and how many of those are both.
    pub(super) fn fall_due(&mut self) -> (Vec<TaskId>, Vec<TaskId>, usize) {
        let step = self.step;
        let is_late = |task: &Task| task.good_until.is_some_and(|until| until <= step);
        let waits = |task: &Task| matches!(task.spot, Spot::Line(_) | Spot::Delayed { .. });
        let late: Vec<TaskId> =
            self.tasks.iter().filter(|(_, task)| waits(task) && is_late(task)).map(|(id, _)| *id).collect();
        let mut due: Vec<(u64, TaskId)> = Vec::new();
        let mut both = 0;
        for (id, task) in &self.tasks {
            match task.spot {
                Spot::Delayed { until } if until <= step && is_late(task) => both += 1,
                Spot::Delayed { until } if until <= step => due.push((until, *id)),
                _ => {}
            }
        }
        due.sort_unstable();
        (due.into_iter().map(|(_, id)| id).collect(), late, both)
    }
}
