//! `/v2/dlq`: dead letters, and sending them again.

use std::{net::SocketAddr, time::Duration};

use axum::{
    Json,
    extract::{ConnectInfo, State},
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
    asked::{Asked, bounded, listed},
    events::cursor,
    letters::Letters,
    path::Path,
    publish::given,
    reply::{Answer, Problem, done, ok},
    sent::Sent,
    slice::{Slice, TOLD},
};
use crate::{
    clock,
    message::{Message, Start, header_map, message_view, read as read_spec},
    office::{Answered, Desk, Entry, Stage, once},
    workflow::RunHead,
};

const DEFAULT_COUNT: usize = 100;
const MOST: usize = 1000;
/// So many are looked at for one page, and of so many is looked up what stands elsewhere; then the cursor goes on from there.
const LOOKED_AT: usize = 20_000;
const LOOKED_UP: usize = MOST;
/// Those that are named come all at once, without a cursor.
const MOST_NAMED: usize = 64 * 1024 * 1024;
const MOMENT: Duration = Duration::from_millis(10);
const MOMENTS: u32 = 200;
/// A message that no attempt is left for.
pub(super) struct Letter {
    pub(super) id: TaskId,
    pub(super) message: Message,
    answer: Option<Answered>,
    /// Why its last try failed, in words.
    reason: String,
    /// The run that it ended.
    run: Option<RunHead>,
}

/// Some of the letters that were asked for, and where the rest begins.
pub(super) struct Page {
    pub(super) letters: Vec<Letter>,
    pub(super) cursor: Option<String>,
}

pub(super) async fn list(State(desk): State<Desk>, asked: Asked) -> Answer {
    let page = page(&desk, &asked, None).await?;
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

pub(super) async fn remove_many(State(desk): State<Desk>, asked: Asked, sent: Sent) -> Answer {
    remove_all(&desk, &asked, names(&sent)?).await
}

pub(super) async fn remove_all(desk: &Desk, asked: &Asked, names: Option<Vec<String>>) -> Answer {
    asked.means_what_it_names()?;
    let page = page(desk, asked, names).await?;
    let letters = page.letters.iter().map(|letter| letter.id).collect();
    let deleted = desk.store.remove_all_dead(letters).await?;
    let mut view = json!({ "deleted": deleted });
    if let Some(cursor) = page.cursor {
        view["cursor"] = json!(cursor);
    }
    ok(view)
}

pub(super) async fn retry_many(State(desk): State<Desk>, asked: Asked, sent: Sent) -> Answer {
    asked.means_what_it_names()?;
    // A run is resumed or restarted. Named, its letter is told so; otherwise it is not meant.
    let names = names(&sent)?;
    let is_named = is_named(&asked, names.as_ref());
    let asked = if is_named { asked } else { asked.with("source", "qstash") };
    let page = page(&desk, &asked, names).await?;
    // All of them or none: before the first is sent.
    page.letters.iter().try_for_each(can_be_sent)?;
    let mut responses = Vec::new();
    for letter in page.letters {
        responses.push(again(&desk, letter, None).await?);
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
    let mut new = read_spec(&given(&headers, Vec::new())?)?;
    if letter.message.head.queue.is_some() && new.flow.is_some() {
        return Err(Problem::bad("a queue has limits of its own; send it without Upstash-Flow-Control-Key"));
    }
    // That of the request, which has no body, and not of the message.
    new.headers.retain(|(name, _)| name != "Content-Type");
    let start = new.start;
    let old = std::mem::take(&mut letter.message.head.spec);
    letter.message.head.spec = new.over(old);
    ok(again(&desk, letter, start).await?)
}

/// A run is resumed or restarted, not sent again.
fn can_be_sent(letter: &Letter) -> Result<(), Problem> {
    if letter.message.head.part.is_some() {
        let text = "this letter ended a run of a workflow; POST /v2/workflows/dlq/resume or /restart with its dlqIds";
        return Err(Problem::bad(text));
    }
    Ok(())
}

/// Sends a letter as a new message. Stored under an id of the letter first: a crash in between sends nothing twice.
async fn again(desk: &Desk, letter: Letter, start: Option<Start>) -> Result<Value, Problem> {
    can_be_sent(&letter)?;
    let mut message = letter.message;
    message.head.created = clock::now();
    message.head.spec.start = start;
    // What waited for the end of a callback has gone on when it failed.
    message.head.holds = None;
    message.head.spec.dedupe = Some(once(letter.id));
    let accepted = desk.accept(message).await?;
    desk.store.remove_dead(letter.id).await?;
    Ok(json!({ "messageId": desk.numbers.message(accepted.id) }))
}

pub(super) async fn find(desk: &Desk, name: &str) -> Result<Letter, Problem> {
    let missing = || Problem::missing("dead letter", name);
    let id = desk.numbers.read_dead(name).ok_or_else(missing)?;
    let look = buried(desk, id).await?.ok_or_else(missing)?;
    Dead::of(desk, &look, &Letters::default()).ok_or_else(missing)?.look_up(desk).await
}

/// A task by its number. One that has just ended its run is waited for: the run is told as failed a moment before the letter
/// is written.
async fn buried(desk: &Desk, id: TaskId) -> Result<Option<TaskLook>, Problem> {
    for _ in 0..MOMENTS {
        let look = desk.store.look_at_task(id).await?;
        let held = look.as_ref().filter(|look| matches!(look.state, TaskState::Held { .. }));
        let Some(part) = held.and_then(|look| desk.message_of(look)?.head.part) else { return Ok(look) };
        let run = desk.run_alone(&part.run).await?.map(|run| RunHead::from_bytes(&run.head));
        let is_ending = run.and_then(|run| run.failed).is_some_and(|failed| failed.task == id.0);
        if !is_ending {
            return Ok(look);
        }
        tokio::time::sleep(MOMENT).await;
    }
    Ok(desk.store.look_at_task(id).await?)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Body {
    #[serde(default, deserialize_with = "listed")]
    dlq_ids: Option<Vec<String>>,
}

/// The letters that a body names: an empty list names none of them, and without a list all are meant.
pub(super) fn names(sent: &Sent) -> Result<Option<Vec<String>>, Problem> {
    let body: Option<Body> = sent.object_if_any(r#"send {"dlqIds": ["dlq_…"]}, or nothing for all"#)?;
    body.and_then(|body| body.dlq_ids).map(bounded).transpose()
}

/// Whether letters are named, one by one.
pub(super) fn is_named(asked: &Asked, names: Option<&Vec<String>>) -> bool {
    names.is_some() || !asked.all("dlqIds").is_empty() || !asked.all("dlqId").is_empty()
}

pub(super) async fn page(desk: &Desk, asked: &Asked, listed: Option<Vec<String>>) -> Result<Page, Problem> {
    let meant = Letters::read(asked)?;
    let count = asked.count(DEFAULT_COUNT, MOST)?;
    let before = cursor(asked)?.map(|before| TaskId(before as i64));
    let mut names = asked.all("dlqIds");
    names.extend(asked.all("dlqId"));
    let is_named = listed.is_some() || !names.is_empty();
    names.extend(listed.unwrap_or_default());
    match is_named {
        true => named(desk, &meant, &names).await,
        false => listed_from(desk, &meant, count, before).await,
    }
}

/// Those of these names that are meant.
async fn named(desk: &Desk, meant: &Letters, names: &[String]) -> Result<Page, Problem> {
    let (mut letters, mut bytes) = (Vec::new(), 0);
    for id in names.iter().filter_map(|name| desk.numbers.read_dead(name)) {
        if letters.len() > MOST || bytes > MOST_NAMED {
            let text = format!(
                "more than {MOST} dead letters are named, or their bodies have more than {} MiB; name fewer at once",
                MOST_NAMED / 1024 / 1024
            );
            return Err(Problem::bad(text));
        }
        let Some(look) = buried(desk, id).await? else { continue };
        let Some(dead) = Dead::of(desk, &look, meant) else { continue };
        let letter = dead.look_up(desk).await?;
        bytes += letter.message.body.len();
        letters.extend(letter.is_meant(meant).then_some(letter));
    }
    Ok(Page { letters, cursor: None })
}

/// Those that are meant, the newest first, behind this one.
async fn listed_from(
    desk: &Desk,
    meant: &Letters,
    count: usize,
    mut before: Option<TaskId>,
) -> Result<Page, Problem> {
    let (mut letters, mut bytes) = (Vec::new(), 0);
    let (mut looked_at, mut looked_up, mut is_end, mut slice) = (0, 0, false, Slice::first());
    // Whoever has a full page looks on for one more that is meant: without one, it was the last.
    'pages: while !is_end && looked_at < LOOKED_AT {
        let most = slice.up_to(usize::MAX);
        let page = desk.store.dead(before, most).await?;
        is_end = page.len() < most as usize;
        looked_at += page.len();
        slice = slice.after(page.iter().map(size));
        for look in &page {
            if let Some(dead) = Dead::of(desk, look, meant) {
                let is_full = letters.len() == count || bytes >= TOLD;
                // Of the one more nothing is told: it is looked up only where that says whether it is meant.
                if is_full && !meant.asks_more() || looked_up == LOOKED_UP {
                    is_end = false;
                    break 'pages;
                }
                looked_up += 1;
                let letter = dead.look_up(desk).await?;
                if letter.is_meant(meant) {
                    if is_full {
                        is_end = false;
                        break 'pages;
                    }
                    bytes += letter.message.body.len();
                    letters.push(letter);
                }
            }
            before = Some(look.id);
        }
    }
    let cursor = before.filter(|_| !is_end).map(|before| before.to_string());
    Ok(Page { letters, cursor })
}

/// How much of a store a task takes.
pub(super) fn size(look: &TaskLook) -> usize {
    look.record.as_ref().map_or(0, |record| record.body.len())
}

/// A dead task that is a message which failed, as far as it tells of itself.
struct Dead {
    id: TaskId,
    message: Message,
    reason: String,
}

impl Dead {
    /// If it is one, and can be meant.
    fn of(desk: &Desk, look: &TaskLook, meant: &Letters) -> Option<Dead> {
        let TaskState::Dead { reason: how, error } = &look.state else { return None };
        let stored = look.record.as_ref().map_or(&[][..], |record| &record.body);
        if how == "cancelled" || !meant.may_match(Message::head_of(stored)) {
            return None;
        }
        let message = desk.message_of(look)?;
        let is_it = meant.matches(&desk.numbers.message(look.id), &message);
        is_it.then(|| Dead { id: look.id, message, reason: error.clone() })
    }

    /// With what the log and its run have of it.
    async fn look_up(self, desk: &Desk) -> Result<Letter, Problem> {
        let Dead { id, message, reason } = self;
        let notes = desk.store.notes(NoteQuery { tasks: vec![id], before: None, most: 10 }).await?;
        let entries = notes.into_iter().filter_map(|note| Entry::from_bytes(note.body).ok());
        let failed = entries.into_iter().find(|entry| entry.stage == Stage::Failed);
        let run = match &message.head.part {
            Some(part) => desk.run_alone(&part.run).await?.map(|run| RunHead::from_bytes(&run.head)),
            None => None,
        };
        Ok(Letter { id, message, answer: failed.and_then(|entry| entry.answer), reason, run })
    }
}

impl Letter {
    /// Whether its message ended its run. One of an older version can stand beside the one that did: by it, nothing is begun
    /// again.
    pub(super) fn ended_its_run(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.has_letter(self.id))
    }

    fn is_meant(&self, meant: &Letters) -> bool {
        meant.means(self.answer.as_ref().map_or(0, |answer| answer.status), self.run.as_ref())
    }

    fn view(&self, desk: &Desk) -> Value {
        let mut view: Map<String, Value> = message_view(&desk.numbers.message(self.id), &self.message);
        view.insert("dlqId".into(), json!(desk.numbers.dead(self.id)));
        match &self.answer {
            Some(answer) => answer.put(&mut view),
            // Nobody answered.
            None => drop(view.insert("responseStatus".into(), json!(0))),
        }
        view.insert("reason".into(), json!(self.reason));
        if let Some(run) = &self.run {
            view.insert("workflowCreatedAt".into(), json!(run.created));
            view.insert("workflowUrl".into(), json!(run.url));
            if let Some(call) = &run.failure_call {
                let mut info = json!({ "state": call.state });
                if let Some(answer) = &call.answer {
                    let headers = answer.headers.iter().map(|(name, value)| (name.as_str(), value.clone()));
                    info["responseStatus"] = json!(answer.status);
                    info["responseBody"] = json!(answer.text());
                    info["responseHeaders"] = header_map(headers);
                }
                view.insert("failureCallbackInfo".into(), info);
            }
        }
        Value::Object(view)
    }
}
