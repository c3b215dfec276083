//! `/v2/dlq`: dead letters, and sending them again.

use std::net::SocketAddr;

use axum::{
    Json,
    body::Bytes,
    extract::{ConnectInfo, Path, State},
    http::{HeaderMap, StatusCode},
    response::IntoResponse,
};
use flowgate_tasks::{
    TaskId,
    store::{NoteQuery, State as TaskState, TaskLook},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    asked::Asked,
    events::cursor,
    filter::{self, Filter},
    publish::given,
    reply::{Answer, Problem, done, ok},
    sent::Sent,
};
use crate::{
    clock,
    message::{Dedupe, Message, message_view, read as read_spec},
    office::{Answered, Desk, Entry, Stage},
};

const DEFAULT_COUNT: usize = 100;
const MOST: usize = 1000;
const PAGE: u32 = 500;
const LOOKED_AT: usize = 20_000;
const OWN: [&str; 7] = ["count", "cursor", "dlqIds", "dlqId", "messageId", "responseStatus", "source"];

/// A message that no attempt is left for.
struct Letter {
    id: TaskId,
    message: Message,
    answer: Option<Answered>,
}

/// Some of the letters that were asked for, and where the rest begins.
struct Page {
    letters: Vec<Letter>,
    cursor: Option<String>,
}

pub(super) async fn list(State(desk): State<Desk>, asked: Asked) -> Answer {
    let page = page(&desk, &asked, &[]).await?;
    let letters: Vec<Value> = page.letters.iter().map(|letter| letter.view(&desk)).collect();
    let mut view = json!({ "messages": letters });
    if let Some(cursor) = page.cursor {
        view["cursor"] = json!(cursor);
    }
    ok(view)
}

pub(super) async fn read(State(desk): State<Desk>, Path(name): Path<String>) -> Answer {
    ok(find(&desk, &name).await?.view(&desk))
}

pub(super) async fn remove(State(desk): State<Desk>, Path(name): Path<String>) -> Answer {
    let letter = find(&desk, &name).await?;
    desk.store.remove_dead(letter.id).await?;
    done()
}

pub(super) async fn remove_many(State(desk): State<Desk>, asked: Asked, Sent(body): Sent) -> Answer {
    let page = page(&desk, &asked, &names(&body)?).await?;
    let mut deleted = 0;
    for letter in &page.letters {
        deleted += u64::from(desk.store.remove_dead(letter.id).await?);
    }
    let mut view = json!({ "deleted": deleted });
    if let Some(cursor) = page.cursor {
        view["cursor"] = json!(cursor);
    }
    ok(view)
}

pub(super) async fn retry_many(State(desk): State<Desk>, asked: Asked, Sent(body): Sent) -> Answer {
    let page = page(&desk, &asked, &names(&body)?).await?;
    let mut responses = Vec::new();
    for letter in page.letters {
        responses.push(again(&desk, letter).await?);
    }
    let view = json!({ "responses": responses, "cursor": page.cursor.unwrap_or_default() });
    Ok((StatusCode::CREATED, Json(view)).into_response())
}

pub(super) async fn retry(
    State(desk): State<Desk>,
    Path(name): Path<String>,
    ConnectInfo(_): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
) -> Answer {
    let mut letter = find(&desk, &name).await?;
    let new = read_spec(&given(&headers, Vec::new())?)?;
    let spec = &mut letter.message.head.spec;
    spec.retries = new.retries.or(spec.retries);
    spec.retry_delay = new.retry_delay.or(spec.retry_delay.take());
    spec.timeout = new.timeout.or(spec.timeout);
    spec.flow = new.flow.or(spec.flow.take());
    ok(again(&desk, letter).await?)
}

/// Sends a letter as a new message. Stored under an id of the letter first: a crash in between sends nothing twice.
async fn again(desk: &Desk, letter: Letter) -> Result<Value, Problem> {
    let mut message = letter.message;
    message.head.created = clock::now();
    message.head.spec.start = None;
    message.head.spec.dedupe = Some(Dedupe::Id(format!("dlq/{}", letter.id)));
    let accepted = desk.accept(message).await?;
    desk.store.remove_dead(letter.id).await?;
    Ok(json!({ "messageId": desk.numbers.message(accepted.id) }))
}

async fn find(desk: &Desk, name: &str) -> Result<Letter, Problem> {
    let missing = || Problem::missing("dead letter", name);
    let id = desk.numbers.read_dead(name).ok_or_else(missing)?;
    let look = desk.store.look_at_task(id).await?.ok_or_else(missing)?;
    Letter::of(desk, &look).await?.ok_or_else(missing)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    #[serde(default)]
    dlq_ids: Vec<String>,
}

fn names(body: &Bytes) -> Result<Vec<String>, Problem> {
    if body.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let form = r#"send {"dlqIds": ["dlq_…"]}"#;
    let body: Body = serde_json::from_slice(body)
        .map_err(|error| Problem::bad(format!("the body cannot be read ({error}); {form}")))?;
    Ok(body.dlq_ids)
}

async fn page(desk: &Desk, asked: &Asked, more: &[String]) -> Result<Page, Problem> {
    asked.only(&[&OWN[..], &filter::NAMES[..]].concat())?;
    let filter = Filter::read(asked)?;
    let count = asked.count(DEFAULT_COUNT, MOST)?;
    let statuses = asked.all("responseStatus");
    let messages = asked.all("messageId");
    let mut names = asked.all("dlqIds");
    names.extend(asked.all("dlqId"));
    names.extend_from_slice(more);
    let is_meant = |letter: &Letter| {
        let status = letter.answer.as_ref().map_or(0, |answer| answer.status).to_string();
        filter.matches(&letter.message, letter.message.head.created)
            && (statuses.is_empty() || statuses.contains(&status))
            && (messages.is_empty() || messages.contains(&desk.numbers.message(letter.id)))
    };
    let mut letters = Vec::new();
    if !names.is_empty() {
        for id in names.iter().filter_map(|name| desk.numbers.read_dead(name)) {
            let look = desk.store.look_at_task(id).await?;
            let letter = match look {
                Some(look) => Letter::of(desk, &look).await?,
                None => None,
            };
            letters.extend(letter.filter(is_meant));
        }
        return Ok(Page { letters, cursor: None });
    }
    let mut before = cursor(asked)?.map(|before| TaskId(before as i64));
    let (mut looked_at, mut is_end) = (0, false);
    while !is_end && letters.len() < count && looked_at < LOOKED_AT {
        let page = desk.store.dead(before, PAGE).await?;
        is_end = page.len() < PAGE as usize;
        looked_at += page.len();
        for look in &page {
            if letters.len() == count {
                is_end = false;
                break;
            }
            before = Some(look.id);
            letters.extend(Letter::of(desk, look).await?.filter(is_meant));
        }
    }
    let cursor = before.filter(|_| !is_end).map(|before| before.to_string());
    Ok(Page { letters, cursor })
}

impl Letter {
    /// The letter of a dead task, if it is a message that failed.
    async fn of(desk: &Desk, look: &TaskLook) -> Result<Option<Letter>, Problem> {
        let TaskState::Dead { reason, .. } = &look.state else { return Ok(None) };
        if reason == "cancelled" {
            return Ok(None);
        }
        let Some(message) = desk.message_of(look) else { return Ok(None) };
        let notes = desk.store.notes(NoteQuery { tasks: vec![look.id], before: None, most: 10 }).await?;
        let entries = notes.into_iter().filter_map(|note| Entry::from_bytes(note.body).ok());
        let failed = entries.into_iter().find(|entry| entry.stage == Stage::Failed);
        Ok(Some(Letter { id: look.id, message, answer: failed.and_then(|entry| entry.answer) }))
    }

    fn view(&self, desk: &Desk) -> Value {
        let mut view: Map<String, Value> = message_view(&desk.numbers.message(self.id), &self.message);
        view.insert("dlqId".into(), json!(desk.numbers.dead(self.id)));
        match &self.answer {
            Some(answer) => answer.put(&mut view),
            // Nobody answered.
            None => drop(view.insert("responseStatus".into(), json!(0))),
        }
        Value::Object(view)
    }
}
