//! `[tasks]` and `[[queue]]`: queues and caps.
//!
//! Owns the checked sections, and what their options mean together: hard caps or fetching ahead, one queue or many.

use std::{num::NonZeroU32, time::Duration};

use flowgate_tasks::{DEFAULT_QUEUE, MAX_NAME, SERVER_QUEUE};

use super::{
    options::QUEUE,
    read::{Entry, Fields, Label, Read},
};

/// The largest cap.
pub(crate) const MOST: u32 = 1_000_000_000;
/// The last priority of a queue.
pub(crate) const LAST_PRIORITY: u32 = 1_000_000;
const MOST_AHEAD: u32 = 100_000;
const MOST_QUEUES: usize = 10_000;
const QUEUES: &str = "tables, each under a heading [[queue]], in double brackets";

/// The section `[tasks]`; it is there with its defaults even if the file has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tasks {
    pub(crate) queue_mode: QueueMode,
    /// How many tasks may be claimed or running in all.
    pub(crate) cluster_wide_cap: Option<NonZeroU32>,
    /// `None`: caps are hard.
    pub(crate) prefetch: Option<Prefetch>,
}

/// How tasks are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueMode {
    /// One queue.
    Default,
    /// Those of `[[queue]]`.
    Custom,
}

/// Claims ahead of what runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefetch {
    /// How many.
    pub(crate) buffer: NonZeroU32,
    /// How long each may wait.
    pub(crate) lease: Duration,
}

/// One `[[queue]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    pub(crate) name: String,
    /// Lower is served first.
    pub(crate) priority: i32,
    pub(crate) max_concurrency: Option<NonZeroU32>,
}

impl Tasks {
    pub(super) fn read(fields: &Fields<'_>) -> Read<Self> {
        let modes = [("default", QueueMode::Default), ("custom", QueueMode::Custom)];
        let queue_mode = fields.read("queue_mode", |entry| entry.choice(&modes));
        let cap = fields.optional("cluster_wide_cap", |entry| entry.small(1..=MOST));
        let buffer = fields.read("prefetch_buffer", |entry| entry.small(0..=MOST_AHEAD));
        let lease = fields.optional("claim_lease_ms", |entry| entry.integer(100..=86_400_000));
        let (queue_mode, cap, buffer, lease) = (queue_mode?, cap?, buffer?, lease?);
        let prefetch = match (NonZeroU32::new(buffer), lease) {
            (Some(_), _) if cap.is_some() => {
                let why = format!(
                    "cannot be combined with `prefetch_buffer` = {buffer}: a cap over all workers counts claimed tasks, \
                     so nothing can be claimed ahead; drop one of them"
                );
                return Err(fields.misplaced("cluster_wide_cap", why));
            }
            (Some(buffer), Some(millis)) => Some(Prefetch { buffer, lease: Duration::from_millis(millis) }),
            (Some(buffer), None) => {
                let why = format!(
                    "is {buffer} without `claim_lease_ms`: set how long a task that was claimed ahead may wait, like 5000"
                );
                return Err(fields.misplaced("prefetch_buffer", why));
            }
            (None, Some(_)) => {
                let why = "has no meaning with `prefetch_buffer` = 0, where nothing is claimed ahead: drop it, or set \
                           `prefetch_buffer`";
                return Err(fields.misplaced("claim_lease_ms", why));
            }
            (None, None) => None,
        };
        Ok(Tasks { queue_mode, cluster_wide_cap: cap.and_then(NonZeroU32::new), prefetch })
    }
}

impl Queue {
    /// The queues of the file, where `[tasks]` is this; `None` if that is wrong, which was told.
    pub(super) fn read_all(file: &Fields<'_>, tasks: Option<&Tasks>) -> Read<Vec<Queue>> {
        let mode = tasks.map(|tasks| tasks.queue_mode);
        let Some(entry) = file.entry("queue") else {
            let why = "has `queue_mode` = \"custom\" without a queue: add a [[queue]], or drop it";
            return if mode == Some(QueueMode::Custom) {
                Err(file.misplaced("tasks", why))
            } else {
                Ok(Vec::new())
            };
        };
        let tables = entry.value.as_array().filter(|tables| tables.len() <= MOST_QUEUES);
        let tables = tables.ok_or_else(|| entry.wrong(format!("up to {MOST_QUEUES} {QUEUES}")))?;
        let mut queues: Vec<Queue> = Vec::with_capacity(tables.len());
        let mut all = Ok(());
        for (at, table) in tables.iter().enumerate() {
            let one = entry.part(&format!("[{at}]"), table);
            match Queue::read(&one, &queues) {
                Ok(queue) => queues.push(queue),
                Err(told) => all = Err(told),
            }
        }
        if mode == Some(QueueMode::Default) {
            let why = "has no meaning with `queue_mode` = \"default\": set queue_mode = \"custom\" in [tasks], or drop it";
            all = Err(entry.misplaced(why));
        }
        all.map(|()| queues)
    }

    fn read(entry: &Entry<'_>, before: &[Queue]) -> Read<Self> {
        let name = entry.value.get("name").and_then(|name| name.get_ref().as_str());
        let label = name.map_or_else(|| Label::table(entry.field.clone()), |name| entry.named(name));
        let fields = entry.fields_as(&QUEUE, label, QUEUES)?;
        let name = fields.read("name", |entry| {
            let name = queue_name(entry)?;
            if name == SERVER_QUEUE {
                return Err(entry.wrong("another name, because that queue belongs to `flowgate serve`"));
            }
            if before.iter().any(|queue| queue.name == name) {
                return Err(entry.wrong("each name once"));
            }
            Ok(name)
        });
        let priority = fields.read("priority", |entry| entry.small(1..=LAST_PRIORITY));
        let max = fields.optional("max_concurrency", |entry| entry.small(1..=MOST));
        let (name, priority, max) = (name?, priority?, max?);
        fields.known()?;
        Ok(Queue { name, priority: priority.cast_signed(), max_concurrency: max.and_then(NonZeroU32::new) })
    }
}

/// The name of a queue. Commas are left to lists of names.
pub(super) fn queue_name(entry: &Entry<'_>) -> Read<String> {
    let accepted = format!("a text of 1 to {MAX_NAME} bytes without commas, like {DEFAULT_QUEUE:?}");
    let name = entry.text(&accepted)?;
    let is_fine = !name.trim().is_empty()
        && name.len() <= MAX_NAME
        && !name.contains(|c: char| c == ',' || c.is_control());
    if is_fine { Ok(name.to_owned()) } else { Err(entry.wrong(accepted)) }
}
