//! `/v2/events` and `/v2/logs`: what happened to messages, the newest first.

use std::convert::Infallible;

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use flowgate_tasks::store::NoteQuery;
use serde_json::{Value, json};

use super::{
    asked::Asked,
    filter::{self, Filter},
    reply::{Answer, Problem},
    slice::{Slice, TOLD},
};
use crate::office::{Desk, Entry, Stage};

const DEFAULT_COUNT: usize = 100;
const MOST: usize = 1000;
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
    let own = ["count", "cursor", "messageIds", "messageId", "state", "order"];
    asked.only(&[&own[..], &filter::NAMES[..]].concat())?;
    asked.newest_first()?;
    let filter = Filter::read(&asked)?;
    let states = states(&asked.all("state"))?;
    let count = asked.count(DEFAULT_COUNT, MOST)?;
    let mut names = asked.all("messageIds");
    names.extend(asked.all("messageId"));
    let tasks: Vec<_> = names.iter().filter_map(|name| desk.numbers.read_message(name)).collect();
    let mut before = cursor(&asked)?.map(|before| before as i64);
    let is_all = filter.is_empty() && states.len() == STATES.len() && desk.space.is_root();
    let mut page = Page::default();
    let (mut looked_at, mut is_end, mut slice) = (0, !names.is_empty() && tasks.is_empty(), Slice::first());
    // Whoever has a full page looks on for one more that is meant: without one, it was the last.
    'pages: while !is_end && looked_at < LOOKED_AT {
        // Where every entry is meant, no more are read than are told, and one that says whether there are more.
        let wanted = if is_all { count + 1 - page.count } else { usize::MAX };
        let most = slice.up_to(wanted);
        let notes = desk.store.notes(NoteQuery { tasks: tasks.clone(), before, most }).await?;
        is_end = notes.len() < most as usize;
        looked_at += notes.len();
        slice = slice.after(notes.iter().map(|note| note.body.len()));
        for note in notes {
            let (id, task) = (note.id, note.task);
            let Ok(entry) = Entry::from_bytes(note.body) else {
                before = Some(id);
                continue;
            };
            let at = note.at.as_nanos() / 1_000_000;
            let is_own = entry.message.head.space == desk.space;
            if is_own && states.contains(&entry.stage) && filter.matches(&entry.message, at) {
                if !page.has_room(count) {
                    is_end = false;
                    break 'pages;
                }
                page.add(&entry.view(&desk.numbers.message(task), at));
            }
            before = Some(id);
        }
    }
    Ok(page.told(before.filter(|_| !is_end)))
}

/// A page of the log as it is sent.
#[derive(Default)]
struct Page {
    /// The entries in JSON, with commas between them.
    text: Vec<u8>,
    count: usize,
}

impl Page {
    fn has_room(&self, count: usize) -> bool {
        self.count < count && self.text.len() < TOLD
    }

    fn add(&mut self, entry: &Value) {
        if self.count > 0 {
            self.text.push(b',');
        }
        serde_json::to_writer(&mut self.text, entry).expect("JSON is written to memory");
        self.count += 1;
    }

    /// The list under both of its names: written once, and sent twice from the same memory.
    fn told(self, cursor: Option<i64>) -> Response {
        let cursor = cursor.map(|cursor| format!("\"cursor\":\"{cursor}\",")).unwrap_or_default();
        let list = Bytes::from(self.text);
        let parts = [
            Bytes::from(format!("{{{cursor}\"events\":[")),
            list.clone(),
            Bytes::from_static(b"],\"logs\":["),
            list,
            Bytes::from_static(b"]}"),
        ];
        let parts = futures_util::stream::iter(parts.map(Ok::<_, Infallible>));
        ([(CONTENT_TYPE, "application/json")], Body::from_stream(parts)).into_response()
    }
}

/// Where the last page ended.
pub(super) fn cursor(asked: &Asked) -> Result<Option<u64>, Problem> {
    let read = |text: &str| {
        let number = text.parse::<i64>().ok().and_then(|number| u64::try_from(number).ok());
        number.ok_or_else(|| {
            let text: String = text.chars().take(100).collect();
            Problem::bad(format!("cursor is {text:?}; send the one from the previous page"))
        })
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
