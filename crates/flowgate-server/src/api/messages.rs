//! `/v2/messages`: one message, and cancelling one or many.

use std::time::Duration;

use axum::extract::{Path, State};
use flowgate_tasks::{
    TaskId,
    store::{Cancelled, NoteQuery, State as TaskState},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    asked::Asked,
    dlq::size,
    filter::{self, Filter},
    reply::{Answer, Problem, ok},
    sent::Sent,
    slice::Slice,
};
use crate::{
    message::{Message, Role, message_view},
    office::{Desk, Entry, Queue, Stage},
};

const DEFAULT_COUNT: usize = 100;
const MOST: usize = 500;
/// How long what is under way is waited for, and how often it is looked for.
const MOMENT: Duration = Duration::from_millis(10);
const MOMENTS: u32 = 200;

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
    if cancel_each(&desk, vec![id]).await? == 0 {
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
    if !names.is_empty() {
        let named = names.iter().filter_map(|name| desk.numbers.read_message(name)).collect();
        let cancelled = cancel_each(&desk, named).await?;
        return ok(json!({ "cancelled": cancelled }));
    }
    let filter = Filter::read(&asked)?;
    let most = asked.count(DEFAULT_COUNT, MOST)? as u64;
    let (mut cancelled, mut after, mut slice) = (0, TaskId(0), Slice::first());
    while cancelled < most {
        let page = desk.store.live_tasks(after, slice.up_to(usize::MAX)).await?;
        let Some(last) = page.last() else { break };
        slice = slice.after(page.iter().map(size));
        let mut meant = Vec::new();
        for look in &page {
            let is_meant =
                desk.message_of(look).is_some_and(|message| filter.matches(&message, message.head.created));
            if is_meant && cancelled + (meant.len() as u64) < most {
                meant.push(look.id);
                after = look.id;
            }
        }
        // What was delivered after all makes room for more: the list goes on behind the last that was asked for.
        if cancelled + (meant.len() as u64) < most {
            after = last.id;
        }
        cancelled += cancel_each(&desk, meant).await?;
    }
    ok(json!({ "cancelled": cancelled }))
}

/// Cancels these, and says how many had not ended before.
async fn cancel_each(desk: &Desk, ids: Vec<TaskId>) -> Result<u64, Problem> {
    let (mut cancelled, mut stopping) = (0, Vec::new());
    for id in ids {
        match cancel_one(desk, id).await? {
            Asking::Nothing => {}
            Asking::Done => cancelled += 1,
            Asking::Stopping(message) => stopping.push((id, message)),
        }
    }
    // Its worker stops what is under way, unless an answer came first: then it was delivered, and is not counted.
    for _ in 0..MOMENTS {
        let mut left = Vec::new();
        for (id, message) in stopping {
            match stopped(desk, id, &message).await? {
                Some(is_cancelled) => cancelled += u64::from(is_cancelled),
                None => left.push((id, message)),
            }
        }
        stopping = left;
        if stopping.is_empty() {
            return Ok(cancelled);
        }
        tokio::time::sleep(MOMENT).await;
    }
    // Whoever has these is slow, or gone: they were asked to stop, and will not start again.
    for (_, message) in &stopping {
        without_its_run(desk, message).await?;
    }
    Ok(cancelled + stopping.len() as u64)
}

/// What came of asking for a cancel.
enum Asking {
    /// There is nothing to cancel any more.
    Nothing,
    Done,
    /// It is under way, and is being stopped.
    Stopping(Box<Message>),
}

async fn cancel_one(desk: &Desk, id: TaskId) -> Result<Asking, Problem> {
    let Some(look) = desk.store.look_at_task(id).await? else { return Ok(Asking::Nothing) };
    let Some(message) = desk.message_of(&look) else { return Ok(Asking::Nothing) };
    match desk.client.cancel(id).await? {
        Cancelled::Unknown => Ok(Asking::Nothing),
        Cancelled::Waiting => {
            // Tried before, it is what its queue waits for.
            if look.attempt > 0 || message.head.holds.is_some() {
                Queue::go_on_without(&*desk.store, &message).await?;
            }
            bury(desk, id, &message).await.map(|()| Asking::Done)
        }
        Cancelled::Running => {
            let entry = Entry::plain(Stage::CancelRequested, message.without_body());
            desk.journal.add(id, &entry).await;
            Ok(Asking::Stopping(Box::new(message)))
        }
    }
}

/// Whether a message that was to be stopped was; `None`: it is still under way.
async fn stopped(desk: &Desk, id: TaskId, message: &Message) -> Result<Option<bool>, Problem> {
    let Some(look) = desk.store.look_at_task(id).await? else { return Ok(Some(false)) };
    match look.state {
        TaskState::Held { .. } => Ok(None),
        TaskState::Done { .. } => Ok(Some(false)),
        TaskState::Dead { reason, .. } if reason != "cancelled" => Ok(Some(false)),
        TaskState::Dead { .. } => bury(desk, id, message).await.map(|()| Some(true)),
        // It failed in between and would be tried again.
        _ => match cancel_one(desk, id).await? {
            Asking::Nothing => Ok(Some(false)),
            Asking::Done => Ok(Some(true)),
            Asking::Stopping(_) => Ok(None),
        },
    }
}

/// What was cancelled is no dead letter, and is told.
async fn bury(desk: &Desk, id: TaskId, message: &Message) -> Result<(), Problem> {
    desk.store.remove_dead(id).await?;
    desk.journal.add(id, &Entry::plain(Stage::Canceled, message.without_body())).await;
    without_its_run(desk, message).await
}

/// A run that has lost one of its messages would never end.
async fn without_its_run(desk: &Desk, message: &Message) -> Result<(), Problem> {
    if let Some(part) = message.head.part.as_ref().filter(|part| part.role != Role::Failure) {
        desk.cancel_run(&part.run).await?;
    }
    Ok(())
}
