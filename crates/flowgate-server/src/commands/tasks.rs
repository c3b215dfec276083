//! `flowgate tasks`: what runs, what waits, and what will not run again.

use flowgate_core::Tick;
use flowgate_tasks::{
    TaskId,
    explain::span,
    store::{Holder, Of, State, Store, TaskLook, WorkerLook},
};
use serde_json::{Value, json};

use super::{
    failure::Failure,
    send::{AT_HAND, state_of},
    store::{print, print_json, with_known},
    table::Table,
};
use crate::cli::TasksOptions;

const NONE: &str = "-";
/// So many characters of an error fit a row.
const MOST_SHOWN: usize = 80;
/// Dead tasks are read so many at a time, and not more of them for one answer.
const PAGE: u32 = 200;
const LOOKED_AT: usize = 20_000;

/// Shows one task, or the lists.
pub(crate) fn tasks(options: TasksOptions) -> Result<(), Failure> {
    let TasksOptions { store, id, queue, key, most, json } = options;
    let of = match (queue, key) {
        (Some(queue), _) => Of::Queue(queue),
        (None, Some(key)) => Of::Key(key),
        (None, None) => Of::All,
    };
    with_known(&store, async move |store, _| match id {
        Some(id) => {
            let look = store.look_at_task(TaskId(id)).await?;
            let look = look.ok_or_else(|| Failure::Unknown(format!("task {id}")))?;
            if json { print_json(&as_json(&look)) } else { print(&one(&look)) }
        }
        None => {
            let lists = Lists::load(store.as_ref(), of, most).await?;
            if json { print_json(&lists.json()) } else { print(&lists.text()) }
        }
    })
}

struct Lists {
    running: Vec<Holder>,
    waiting: Vec<TaskLook>,
    dead: Vec<TaskLook>,
    workers: Vec<WorkerLook>,
    /// The store's time, if something is delayed.
    now: Option<Tick>,
}

impl Lists {
    async fn load(store: &dyn Store, of: Of, most: u32) -> Result<Self, Failure> {
        let dead = dead(store, &of, most).await?;
        let (running, waiting) = (store.holders(of.clone(), most).await?, store.line(of, most).await?);
        let delayed = waiting.iter().find(|look| matches!(look.state, State::Delayed { .. }));
        let now = match delayed {
            Some(look) => store.standing(look.id).await?.map(|standing| standing.now),
            None => None,
        };
        Ok(Lists { running, waiting, dead, workers: store.workers().await?, now })
    }

    fn worker(&self, holder: &Holder) -> &str {
        let worker = self.workers.iter().find(|worker| worker.id == holder.worker);
        worker.map_or("gone", |worker| &worker.name)
    }

    fn json(&self) -> Value {
        let held = |is_at_hand: bool| {
            let held = self.running.iter().filter(move |holder| holder.is_at_hand == is_at_hand);
            let told = held.map(|holder| {
                json!({
                    "id": holder.id.0, "kind": holder.kind, "queue": holder.queue, "key": holder.key,
                    "attempt": holder.attempt, "worker": self.worker(holder),
                    "for_ms": holder.held_for.as_millis() as u64,
                })
            });
            told.collect::<Vec<_>>()
        };
        json!({
            "running": held(false),
            "at_hand": held(true),
            "waiting": self.waiting.iter().map(as_json).collect::<Vec<_>>(),
            "dead": self.dead.iter().map(as_json).collect::<Vec<_>>(),
        })
    }

    fn text(&self) -> String {
        let mut table = Table::new(&["task", "state", "kind", "queue", "key", "start", ""]);
        for holder in &self.running {
            let since =
                format!("on {}, for {}", self.worker(holder), span(holder.held_for.as_millis() as u64));
            let state = if holder.is_at_hand { AT_HAND } else { "running" };
            let texts = [&*holder.kind, &*holder.queue, holder.key.as_deref().unwrap_or(NONE)];
            let mut row = vec![holder.id.to_string(), state.to_owned()];
            row.extend(texts.map(str::to_owned));
            row.extend([holder.attempt.to_string(), since]);
            table.row(row);
        }
        for look in self.waiting.iter().chain(&self.dead) {
            let kind = look.record.as_ref().map_or(NONE, |record| &record.kind);
            let last = match &look.state {
                State::Dead { error, .. } => shown(error),
                State::Delayed { until } => self.now.map(|now| left(*until, now)).unwrap_or_default(),
                _ => String::new(),
            };
            let texts = [kind, &look.queue, look.key.as_deref().unwrap_or(NONE)];
            let mut row = vec![look.id.to_string(), state_of(look)];
            row.extend(texts.map(str::to_owned));
            row.extend([look.attempt.to_string(), last]);
            table.row(row);
        }
        if self.running.is_empty() && self.waiting.is_empty() && self.dead.is_empty() {
            return "nothing runs, nothing waits, and nothing failed\n".to_owned();
        }
        table.text()
    }
}

/// As much of an error as fits a row.
fn shown(error: &str) -> String {
    let line = error.lines().next().unwrap_or_default();
    let told: String = line.chars().take(MOST_SHOWN).collect();
    let rest = if told.len() < error.len() { "…" } else { "" };
    told + rest
}

/// When its delay is over.
fn left(until: Tick, now: Tick) -> String {
    format!("in {}", span(until.since(now).as_millis() as u64))
}

/// Those that will not run again, the newest first; of a queue or a key they are looked for among all, up to a bound.
async fn dead(store: &dyn Store, of: &Of, most: u32) -> Result<Vec<TaskLook>, Failure> {
    let is_of = |look: &TaskLook| match of {
        Of::All => true,
        Of::Queue(name) => look.queue == *name,
        Of::Key(name) => look.key.as_ref() == Some(name),
        Of::Task(id) => look.id == *id,
    };
    let (mut found, mut before, mut looked_at) = (Vec::new(), None, 0);
    while found.len() < most as usize && looked_at < LOOKED_AT {
        let page = store.dead(before, PAGE).await?;
        let Some(last) = page.last() else { break };
        (before, looked_at) = (Some(last.id), looked_at + page.len());
        found.extend(page.into_iter().filter(is_of));
    }
    found.truncate(most as usize);
    Ok(found)
}

fn as_json(look: &TaskLook) -> Value {
    let mut value = json!({
        "id": look.id.0, "state": state_word(look), "queue": look.queue, "key": look.key, "priority": look.priority,
        "attempt": look.attempt,
    });
    if let Some(record) = &look.record {
        value["kind"] = json!(record.kind);
        value["max_attempts"] = json!(record.retry.max_attempts);
        value["body"] = text_or_json(&record.body);
    }
    match &look.state {
        State::Waiting { ahead } => value["ahead"] = json!(ahead),
        State::Delayed { until } => value["until_ms"] = json!(until.as_nanos() / 1_000_000),
        State::Held { worker, since, .. } => {
            value["worker"] = json!(worker.0);
            value["since_ms"] = json!(since.as_nanos() / 1_000_000);
        }
        State::Done { result } => value["result"] = text_or_json(result),
        State::Dead { error, .. } => value["error"] = json!(error),
        _ => {}
    }
    value
}

fn state_word(look: &TaskLook) -> String {
    match &look.state {
        State::Waiting { .. } => "waiting".to_owned(),
        _ => state_of(look),
    }
}

fn text_or_json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(bytes)))
}

fn one(look: &TaskLook) -> String {
    let mut text = format!("task {}: {}\n", look.id, state_of(look));
    // What has several lines stays below its name.
    let mut line =
        |name: &str, value: &str| text += &format!("  {name:<9} {}\n", value.replace('\n', "\n            "));
    if let Some(record) = &look.record {
        line("kind", &record.kind);
        line("body", &String::from_utf8_lossy(&record.body));
        line("starts", &format!("{} of {}", look.attempt, record.retry.max_attempts));
    }
    if !look.queue.is_empty() {
        line("queue", &look.queue);
    }
    if let Some(key) = &look.key {
        line("key", key);
    }
    match &look.state {
        State::Done { result } => line("result", &String::from_utf8_lossy(result)),
        State::Dead { error, .. } if !error.is_empty() => line("error", error),
        State::Waiting { .. } | State::Delayed { .. } => {
            line("why", &format!("flowgate explain {}", look.id));
        }
        _ => {}
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_is_cut_looks_cut() {
        assert_eq!(shown("upstream said no"), "upstream said no");
        assert_eq!(shown("upstream said no\nand why"), "upstream said no…");
        assert_eq!(shown(&"ä".repeat(MOST_SHOWN)), "ä".repeat(MOST_SHOWN));
        assert_eq!(shown(&"ä".repeat(MOST_SHOWN + 1)), format!("{}…", "ä".repeat(MOST_SHOWN)));
    }
}
