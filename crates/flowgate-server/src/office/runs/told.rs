//! What is told of runs: which are meant, and what the log has of their messages.

use std::{collections::HashMap, panic::resume_unwind, sync::LazyLock};

use flowgate::Gate;
use flowgate_tasks::{
    TaskId,
    store::{NoteQuery, Run, RunState, RunStep, StoreError},
};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use tokio::task::{JoinError, spawn_blocking};

use crate::{
    message::{Message, Role, header_map, is_at},
    office::{Desk, Entry, Stage},
    workflow::{RunHead, RunLog, Seen, from_init},
};

/// More of the log is not read for one run.
const MOST_NOTES: u32 = 20_000;
/// To tell a run with more bytes in its steps is not for the threads that answer other requests.
const LARGE: usize = 256 * 1024;
/// So many of them are told at once: each is in memory twice meanwhile.
static TELLING: LazyLock<Gate> =
    LazyLock::new(|| Gate::builder().max(2).label("large runs").build().expect("the options are right"));
/// Of a run with more steps than this, the log of what is long done is not read.
const WHOLE: usize = 50;

/// Which runs are meant: any of the values of a name, and all of the names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunFilter {
    pub(crate) ids: Vec<String>,
    pub(crate) urls: Vec<String>,
    pub(crate) is_exact_url: bool,
    pub(crate) labels: Vec<String>,
    pub(crate) keys: Vec<String>,
    pub(crate) callers: Vec<String>,
    pub(crate) hosts: Vec<String>,
    pub(crate) paths: Vec<String>,
    pub(crate) states: Vec<RunState>,
    pub(crate) created: Option<u64>,
    pub(crate) from: Option<u64>,
    pub(crate) to: Option<u64>,
}

impl RunFilter {
    pub(crate) fn matches(&self, run: &Run, head: &RunHead) -> bool {
        let any = |wanted: &[String], found: Option<&str>| {
            wanted.is_empty() || found.is_some_and(|found| wanted.iter().any(|wanted| wanted == found))
        };
        let is_url = |url: &String| match self.is_exact_url {
            true => head.url == *url,
            false => head.url.starts_with(url.as_str()),
        };
        let has_url = self.urls.is_empty() || self.urls.iter().any(is_url);
        let has_label = self.labels.is_empty()
            || head.spec.labels.iter().any(|label| self.labels.iter().any(|wanted| wanted == label));
        any(&self.ids, Some(&run.id))
            && has_url
            && has_label
            && is_at(&head.url, &self.hosts, &self.paths)
            && any(&self.keys, head.spec.flow.as_ref().map(|flow| flow.key.as_str()))
            && any(&self.callers, head.caller.as_deref())
            && (self.states.is_empty() || self.states.contains(&run.state))
            && self.created.is_none_or(|created| head.created == created)
            && self.from.is_none_or(|from| head.created >= from)
            && self.to.is_none_or(|to| head.created <= to)
    }
}

impl Desk {
    /// A run as the protocol tells it, if it is one with any of these messages, or none are named. `None` too: it is gone.
    pub(crate) async fn run_log(
        &self,
        name: &str,
        messages: &[String],
    ) -> Result<Option<Box<RawValue>>, StoreError> {
        let Some((run, steps)) = self.store.run(name.to_owned()).await? else { return Ok(None) };
        let head = RunHead::from_bytes(&run.head);
        let seen = self.seen(noted(&steps, &head)).await?;
        let (numbers, messages) = (self.numbers.clone(), messages.to_vec());
        let is_large = steps.iter().map(|step| step.body.len()).sum::<usize>() > LARGE;
        let tell = move || {
            let log = RunLog {
                run: &run,
                head: &head,
                steps: from_init(&steps),
                seen: &seen,
                message: &|task| numbers.message(task),
                dead: &|task| numbers.dead(task),
            };
            let view = log.view();
            let is_meant = messages.is_empty() || has_message(&view, &messages);
            is_meant.then(|| to_raw_value(&view).expect("a value is JSON"))
        };
        if !is_large {
            return Ok(tell());
        }
        // It goes with the work, which goes on when whoever asked has hung up.
        let pass = TELLING.enter().await;
        let held = move || {
            let _pass = pass;
            tell()
        };
        match spawn_blocking(held).await.map_err(JoinError::try_into_panic) {
            Ok(told) => Ok(told),
            Err(Ok(said)) => resume_unwind(said),
            // The runtime ends, and this with it.
            Err(Err(_)) => Ok(None),
        }
    }

    async fn seen(&self, tasks: Vec<TaskId>) -> Result<HashMap<TaskId, Seen>, StoreError> {
        let mut seen: HashMap<TaskId, Seen> = HashMap::new();
        if tasks.is_empty() {
            return Ok(seen);
        }
        let mut notes = self.store.notes(NoteQuery { tasks, before: None, most: MOST_NOTES }).await?;
        notes.reverse();
        for note in notes {
            let Ok(entry) = Entry::from_bytes(note.body) else { continue };
            let found = seen.entry(note.task).or_default();
            match entry.stage {
                Stage::Created => created(found, &entry.message),
                Stage::Delivered => found.is_delivered = true,
                Stage::Retry => (found.is_retried, found.next) = (true, entry.next),
                Stage::Error => {
                    let at = note.at.as_nanos() / 1_000_000;
                    found.errors.push((at, entry.error.unwrap_or_default(), entry.answer));
                }
                _ => {}
            }
        }
        Ok(seen)
    }
}

/// The tasks whose log is read: of a short run all; of a long one those that are not done with, and what it called.
fn noted(steps: &[RunStep], head: &RunHead) -> Vec<TaskId> {
    let is_failed = |task| head.failed.as_ref().is_some_and(|failed| failed.is_at(task));
    let last = steps.len().saturating_sub(WHOLE / 2);
    let is_noted = |index: usize, step: &RunStep| {
        let is_plain = step.name.starts_with("step/");
        steps.len() <= WHOLE || index >= last || !is_plain || is_failed(step.task)
    };
    let noted = steps.iter().enumerate().filter(|(index, step)| is_noted(*index, step));
    let failure_call = head.failure_call.iter().map(|call| TaskId(call.task));
    noted.map(|(_, step)| step.task).chain(failure_call).collect()
}

fn has_message(log: &Value, messages: &[String]) -> bool {
    let groups = log["steps"].as_array().into_iter().flatten();
    let mut steps = groups.flat_map(|group| group["steps"].as_array().into_iter().flatten());
    steps.any(|step| step["messageId"].as_str().is_some_and(|id| messages.iter().any(|wanted| wanted == id)))
}

fn created(seen: &mut Seen, message: &Message) {
    let spec = &message.head.spec;
    let told = |(name, value): &(String, String)| (name.clone(), spec.redact.header(name, value));
    let headers: Vec<(String, String)> = spec.headers.iter().map(told).collect();
    seen.headers = header_map(headers.iter().map(|(name, value)| (name.as_str(), value.clone())));
    seen.retries = spec.retries();
    if message.head.part.as_ref().is_some_and(|part| part.role == Role::Call) {
        seen.call = Some(json!({
            "callUrl": message.head.url,
            "callMethod": spec.method(),
            "callHeaders": seen.headers,
            "callBody": String::from_utf8_lossy(&message.body),
        }));
    }
}
