//! `/v2/events` and `/v2/logs`: what happened to messages, the newest first.

use axum::extract::State;
use flowgate_tasks::store::NoteQuery;
use serde_json::{Value, json};

use super::{
    asked::Asked,
    filter::{self, Filter},
    reply::{Answer, Problem, ok},
};
use crate::office::{Desk, Entry, Stage};

const DEFAULT_COUNT: usize = 100;
const MOST: usize = 1000;
const PAGE: u32 = 500;
/// So many entries are looked at for one page; then the cursor goes on from there.
const LOOKED_AT: usize = 20_000;
const STATES: [Stage; 8] = [
    Stage::Created,
    Stage::Active,
    Stage::Retry,
    Stage::Error,
    Stage::Delivered,
    Stage::Failed,
    Stage::CancelRequested,
    Stage::Canceled,
];

pub(super) async fn list(State(desk): State<Desk>, asked: Asked) -> Answer {
    let own = ["count", "cursor", "messageIds", "messageId", "state", "order", "filter"];
    asked.only(&[&own[..], &filter::NAMES[..]].concat())?;
    let filter = Filter::read(&asked)?;
    let states = states(&asked.all("state"))?;
    let count = asked.count(DEFAULT_COUNT, MOST)?;
    let mut names = asked.all("messageIds");
    names.extend(asked.all("messageId"));
    let tasks: Vec<_> = names.iter().filter_map(|name| desk.numbers.read_message(name)).collect();
    let mut before = cursor(&asked)?.map(|before| before as i64);
    let (mut events, mut looked_at, mut is_end) = (Vec::new(), 0, !names.is_empty() && tasks.is_empty());
    while !is_end && events.len() < count && looked_at < LOOKED_AT {
        let page = desk.store.notes(NoteQuery { tasks: tasks.clone(), before, most: PAGE }).await?;
        is_end = page.len() < PAGE as usize;
        looked_at += page.len();
        for note in page {
            if events.len() == count {
                is_end = false;
                break;
            }
            before = Some(note.id);
            let Ok(entry) = Entry::from_bytes(note.body) else { continue };
            let at = note.at.as_nanos() / 1_000_000;
            let is_own = entry.message.head.space == desk.space;
            if is_own && states.contains(&entry.stage) && filter.matches(&entry.message, at) {
                events.push(entry.view(&desk.numbers.message(note.task), at));
            }
        }
    }
    let mut view = json!({ "events": events, "logs": events });
    if let Some(before) = before.filter(|_| !is_end) {
        view["cursor"] = json!(before.to_string());
    }
    ok(view)
}

/// Where the last page ended.
pub(super) fn cursor(asked: &Asked) -> Result<Option<u64>, Problem> {
    let read = |text: &str| {
        text.parse().map_err(|_| Problem::bad(format!("cursor is {text:?}; send the one of the page before")))
    };
    asked.one("cursor").map(read).transpose()
}

fn states(names: &[String]) -> Result<Vec<Stage>, Problem> {
    if names.is_empty() {
        return Ok(STATES.to_vec());
    }
    let mut states = Vec::new();
    for name in names {
        match STATES.iter().find(|stage| stage.as_str().eq_ignore_ascii_case(name)) {
            Some(stage) => states.push(*stage),
            None if name.eq_ignore_ascii_case("in_progress") => {
                states.extend([Stage::Active, Stage::Retry, Stage::Error]);
            }
            None => {
                let known: Vec<&str> = STATES.iter().map(|stage| stage.as_str()).collect();
                let known: Value = json!(known.join(", "));
                return Err(Problem::bad(format!("state is {name:?}; send one of {known} or IN_PROGRESS")));
            }
        }
    }
    Ok(states)
}
