//! What a turn changes of keys, lanes and queues: only that is written.

use std::collections::HashSet;

use super::rows;
use crate::{
    ledger::Ledger,
    plan::{LaneState, Scene},
};

/// What a turn changes, as columns.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) keys: Vec<i64>,
    pub(super) key_counts: Vec<i32>,
    pub(super) key_rates: Vec<String>,
    pub(super) lanes: Vec<i64>,
    pub(super) lane_states: Vec<i16>,
    pub(super) lane_wakes: Vec<Option<i64>>,
    pub(super) queues: Vec<i64>,
    pub(super) queue_changes: Vec<i32>,
    /// A lane that was held may run, or a cap that was reached is not any more.
    pub(super) makes_room: bool,
}

impl Changes {
    /// Beside what was said of lanes and counted of keys. `stuck` are lanes whose head is too heavy for the room its key has.
    pub(super) fn of(
        scene: &Scene,
        (were, counted): (&[LaneState], &[(u32, Ledger)]),
        stuck: &HashSet<i64>,
    ) -> Self {
        let mut changes = Changes::default();
        for (key, (in_use, ledger)) in scene.keys.iter().zip(counted) {
            // A row that is written leaves one behind that everybody has to step over until the server may remove it.
            if key.in_use == *in_use && key.ledger == *ledger {
                continue;
            }
            let mut ledger = key.ledger.clone();
            ledger.tidy(scene.now);
            changes.keys.push(key.id);
            changes.key_counts.push(key.in_use as i32);
            changes.key_rates.push(ledger.to_text());
        }
        for (lane, was) in scene.lanes.iter().zip(were) {
            let state = if stuck.contains(&lane.id) { LaneState::Held } else { scene.state_of(lane) };
            if state == *was {
                continue;
            }
            changes.makes_room |= state == LaneState::Ready;
            let (number, wake_at) = rows::lane_state(state);
            changes.lanes.push(lane.id);
            changes.lane_states.push(number);
            changes.lane_wakes.push(wake_at);
        }
        for queue in &scene.queues {
            let change = queue.counter.change();
            if change != 0 && queue.counter.cap.is_some() {
                changes.queues.push(queue.id);
                changes.queue_changes.push(change as i32);
            }
        }
        let counters = scene.queues.iter().map(|queue| &queue.counter).chain([&scene.cluster]);
        changes.makes_room |= counters.into_iter().any(|counter| counter.leaves_full());
        changes
    }
}
