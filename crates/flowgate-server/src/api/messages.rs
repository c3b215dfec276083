//! `/v2/messages`: one message, and cancelling one or many.

use axum::extract::{Path, State};
use flowgate_tasks::{
    TaskId,
    store::{Cancelled, NoteQuery},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    asked::Asked,
    filter::{self, Filter},
    reply::{Answer, Problem, ok},
    sent::Sent,
};
use crate::{
    message::{Message, Role, message_view},
    office::{Desk, Entry, Stage},
};

const DEFAULT_COUNT: usize = 100;
const MOST: usize = 500;
const PAGE: u32 = 500;

/// A message that waits or is under way; for as long as the log has it, one that is delivered as well.
pub(super) async fn read(State(desk): State<Desk>, Path(name): Path<String>) -> Answer {
    let missing = || Problem::missing("message", &name);
    let id = desk.numbers.read_message(&name).ok_or_else(missing)?;
    let message = match desk.store.look_at_task(id).await? {
        Some(look) => desk.message_of(&look),
        None => None,
    };
    let message = match message {
        Some(message) => Some(message),
        None => from_log(&desk, id).await?,
    };
    ok(Value::Object(message_view(&name, &message.ok_or_else(missing)?)))
}

async fn from_log(desk: &Desk, id: TaskId) -> Result<Option<Message>, Problem> {
    let query = NoteQuery { tasks: vec![id], before: None, most: 1000 };
    let notes = desk.store.notes(query).await?;
    let entries = notes.into_iter().filter_map(|note| Entry::from_bytes(note.body).ok());
    Ok(entries
        .filter(|entry| entry.stage == Stage::Created && entry.message.head.space == desk.space)
        .map(|entry| entry.message)
        .next())
}

pub(super) async fn cancel(State(desk): State<Desk>, Path(name): Path<String>) -> Answer {
    let missing = || Problem::missing("message that could be cancelled", &name);
    let id = desk.numbers.read_message(&name).ok_or_else(missing)?;
    if !cancel_one(&desk, id).await? {
        return Err(missing());
    }
    ok(json!({ "cancelled": 1 }))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    #[serde(default)]
    message_ids: Vec<String>,
}

pub(super) async fn cancel_many(State(desk): State<Desk>, asked: Asked, Sent(body): Sent) -> Answer {
    asked.only(&[&["messageIds", "messageId", "count", "all"], &filter::NAMES[..]].concat())?;
    let mut names = asked.all("messageIds");
    names.extend(asked.all("messageId"));
    if !body.trim_ascii().is_empty() {
        let form = r#"send {"messageIds": ["msg_…"]}, or nothing for all"#;
        let body: Body = serde_json::from_slice(&body)
            .map_err(|error| Problem::bad(format!("the body cannot be read ({error}); {form}")))?;
        names.extend(body.message_ids);
    }
    let mut cancelled = 0;
    if !names.is_empty() {
        for id in names.iter().filter_map(|name| desk.numbers.read_message(name)) {
            cancelled += u64::from(cancel_one(&desk, id).await?);
        }
        return ok(json!({ "cancelled": cancelled }));
    }
    let filter = Filter::read(&asked)?;
    let most = asked.count(DEFAULT_COUNT, MOST)? as u64;
    let mut after = TaskId(0);
    while cancelled < most {
        let page = desk.store.live_tasks(after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.id;
        for look in &page {
            let is_meant =
                desk.message_of(look).is_some_and(|message| filter.matches(&message, message.head.created));
            if is_meant && cancelled < most {
                cancelled += u64::from(cancel_one(&desk, look.id).await?);
            }
        }
    }
    ok(json!({ "cancelled": cancelled }))
}

/// Whether it was a message that could still be cancelled.
async fn cancel_one(desk: &Desk, id: TaskId) -> Result<bool, Problem> {
    let Some(message) = desk.store.look_at_task(id).await?.and_then(|look| desk.message_of(&look)) else {
        return Ok(false);
    };
    let entry = |stage| Entry::plain(stage, message.without_body());
    match desk.client.cancel(id).await? {
        Cancelled::Unknown => return Ok(false),
        // What was cancelled is no dead letter.
        Cancelled::Waiting => drop(desk.store.remove_dead(id).await?),
        Cancelled::Running => desk.journal.add(id, &entry(Stage::CancelRequested)).await,
    }
    desk.journal.add(id, &entry(Stage::Canceled)).await;
    // A run that has lost one of its messages would never end.
    if let Some(part) = message.head.part.as_ref().filter(|part| part.role != Role::Failure) {
        desk.cancel_run(&part.run).await?;
    }
    Ok(true)
}
