//! `/v2/messages`: one message, and cancelling one or many.

use std::time::Duration;

use axum::extract::State;
use flowgate_tasks::{
    TaskId,
    store::{Cancelled, NoteQuery, Of, State as TaskState, StoreError, TaskLook},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    asked::{Asked, bounded, listed},
    dlq::size,
    filter::{self, Filter},
    path::Path,
    reply::{Answer, Problem, ok},
    sent::Sent,
    slice::Slice,
};
use crate::{
    message::{Message, Role, message_view},
    office::{Desk, Entry, Queue, Stage, was_stopped},
};

/// The count that the JavaScript client sends where its caller said none, `cancel({ all: true })` included: it cannot be left out
/// there, and means all. So this one number bounds nothing.
const SAID_BY_CLIENTS: u64 = 100;
/// How long what is under way is waited for, and how often it is looked for.
const MOMENT: Duration = Duration::from_millis(10);
const MOMENTS: u32 = 200;

/// A message that waits or is under way; for as long as the log has it, one that is delivered as well. One that was cancelled
/// is gone.
pub(super) async fn read(State(desk): State<Desk>, Path(name): Path<String>) -> Answer {
    let missing = || Problem::missing("message", &name);
    let id = desk.numbers.read_message(&name).ok_or_else(missing)?;
    let message = match desk.store.look_at_task(id).await? {
        Some(look) if was_stopped(&look.state) => return Err(missing()),
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
    let entries = logged(desk, id).await?;
    if entries.iter().any(|entry| entry.stage == Stage::Canceled) {
        return Ok(None);
    }
    Ok(entries.into_iter().find(|entry| entry.stage == Stage::Created).map(|entry| entry.message))
}

/// What the log has of a message, the newest first.
pub(super) async fn logged(desk: &Desk, id: TaskId) -> Result<Vec<Entry>, Problem> {
    let query = NoteQuery { tasks: vec![id], before: None, most: 1000 };
    let notes = desk.store.notes(query).await?;
    let entries = notes.into_iter().filter_map(|note| Entry::from_bytes(note.body).ok());
    Ok(entries.filter(|entry| entry.message.head.space == desk.space).collect())
}

pub(super) async fn cancel(State(desk): State<Desk>, Path(name): Path<String>) -> Answer {
    let missing = || Problem::missing("cancellable message", &name);
    let id = desk.numbers.read_message(&name).ok_or_else(missing)?;
    if cancel_named(&desk, vec![id]).await? == 0 {
        return Err(missing());
    }
    ok(json!({ "cancelled": 1 }))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Body {
    /// An empty list names nothing, and only without a list all are meant.
    #[serde(default, deserialize_with = "listed")]
    message_ids: Option<Vec<String>>,
}

pub(super) async fn cancel_many(State(desk): State<Desk>, asked: Asked, sent: Sent) -> Answer {
    asked.only(&[&["messageIds", "messageId", "count", "all"], &filter::NAMES[..]].concat())?;
    asked.means_what_it_names()?;
    let mut names = asked.all("messageIds");
    names.extend(asked.all("messageId"));
    let mut is_named = !names.is_empty();
    let form = r#"send {"messageIds": ["msg_…"]}, or nothing for all"#;
    if let Some(body) = sent.object_if_any::<Body>(form)? {
        is_named |= body.message_ids.is_some();
        names.extend(bounded(body.message_ids.unwrap_or_default())?);
    }
    if is_named {
        let named = names.iter().filter_map(|name| desk.numbers.read_message(name)).collect();
        let cancelled = cancel_named(&desk, named).await?;
        return ok(json!({ "cancelled": cancelled }));
    }
    let filter = Filter::read(&asked)?;
    let most = asked.bound()?.filter(|count| *count != SAID_BY_CLIENTS).unwrap_or(u64::MAX);
    let bulk = Bulk { filter: &filter, newest: desk.store.newest_task().await?, most };
    let cancelled = match filter.line() {
        Some(key) => bulk.cancel_line(&desk, &key).await?,
        None => bulk.cancel_meant(&desk, 0).await?,
    };
    ok(json!({ "cancelled": cancelled }))
}

/// What is cancelled by a filter: of those that were there when it began, for while others send there is always one more. Numbers
/// tell which these are; the clocks of a fleet do not. Page by page, each cancelled by itself.
struct Bulk<'a> {
    filter: &'a Filter,
    /// Higher ones came later.
    newest: TaskId,
    most: u64,
}

impl Bulk<'_> {
    /// Cancels what stands in the line of a key, and then what holds its slots: the other way round the next in line would start
    /// meanwhile. Whatever else waits is not looked at.
    async fn cancel_line(&self, desk: &Desk, key: &str) -> Result<u64, Problem> {
        let (mut cancelled, mut slice, mut last) = (0, Slice::first(), None);
        while cancelled < self.most {
            // What was cancelled is not in line any more: the next ones are the first of it.
            let wanted = usize::try_from(self.most - cancelled).unwrap_or(usize::MAX);
            let mut page = desk.store.line(Of::Key(key.to_owned()), slice.up_to(wanted)).await?;
            let Some(first) = page.first().map(|first| first.id) else { break };
            let length = page.len();
            slice = slice.after(page.iter().map(size));
            page.retain(|look| look.id <= self.newest);
            if last == Some(first) || page.len() < length {
                // It stays: a task of somebody else's under the same key, or one that came later. What stands behind it is looked
                // for among all.
                return self.cancel_meant(desk, cancelled).await;
            }
            last = Some(first);
            cancelled += cancel_each(desk, page).await?;
        }
        let left = u32::try_from(self.most - cancelled).unwrap_or(u32::MAX);
        let held = desk.store.holders(Of::Key(key.to_owned()), left).await?;
        let held = held.into_iter().map(|holder| holder.id).filter(|id| *id <= self.newest);
        Ok(cancelled + cancel_named(desk, held.collect()).await?)
    }

    /// Cancels the first of those that are meant, and says how many were, with those before.
    async fn cancel_meant(&self, desk: &Desk, mut cancelled: u64) -> Result<u64, Problem> {
        let (mut after, mut slice) = (TaskId(0), Slice::first());
        while cancelled < self.most {
            let mut page = desk.store.live_tasks(after, slice.up_to(usize::MAX)).await?;
            let Some(last) = page.last().map(|last| last.id) else { break };
            slice = slice.after(page.iter().map(size));
            page.retain(|look| look.id <= self.newest);
            // They come in the order of their numbers: a page of newer ones is the end.
            if page.is_empty() {
                break;
            }
            let mut meant = Vec::new();
            for look in page {
                let has_room = cancelled + (meant.len() as u64) < self.most;
                if has_room && is_meant(desk, self.filter, &look) {
                    after = look.id;
                    meant.push(look);
                }
            }
            // What was delivered after all makes room for more: the list goes on behind the last that was asked for.
            if cancelled + (meant.len() as u64) < self.most {
                after = last;
            }
            cancelled += cancel_each(desk, meant).await?;
        }
        Ok(cancelled)
    }
}

fn is_meant(desk: &Desk, filter: &Filter, look: &TaskLook) -> bool {
    let stored = look.record.as_ref().map_or(&[][..], |record| &record.body);
    filter.may_match(Message::head_of(stored))
        && desk.message_of(look).is_some_and(|message| filter.matches(&message, message.head.created))
}

/// Cancels these, and says how many had not ended before.
async fn cancel_each(desk: &Desk, looks: Vec<TaskLook>) -> Result<u64, Problem> {
    let mut asked = Cancels::default();
    asked.ask(desk, looks).await?;
    asked.end(desk).await
}

/// The same, by their numbers. They are looked at one after the other: a message can be large.
async fn cancel_named(desk: &Desk, ids: Vec<TaskId>) -> Result<u64, Problem> {
    let mut asked = Cancels::default();
    for id in ids {
        if let Some(look) = desk.store.look_at_task(id).await? {
            asked.ask(desk, vec![look]).await?;
        }
    }
    asked.end(desk).await
}

/// Cancels that were asked for: how many are done, and what is still being stopped.
#[derive(Default)]
struct Cancels {
    done: u64,
    stopping: Vec<(TaskId, Box<Message>)>,
}

impl Cancels {
    async fn ask(&mut self, desk: &Desk, looks: Vec<TaskLook>) -> Result<(), Problem> {
        let mut stopping = Vec::new();
        for (id, what) in cancel_all(desk, looks).await? {
            match what {
                Asking::Nothing => {}
                Asking::Done => self.done += 1,
                Asking::Stopping(message) => stopping.push((id, message)),
            }
        }
        // Before they are waited for: this server may end.
        desk.bury_later(stopping.iter().map(|(id, _)| id.0).collect()).await?;
        self.stopping.append(&mut stopping);
        Ok(())
    }

    /// How many were cancelled, when the log tells of them.
    async fn end(self, desk: &Desk) -> Result<u64, Problem> {
        let cancelled = self.count(desk).await?;
        // Whoever is told that a message was cancelled finds it so in the log.
        desk.journal.written().await;
        Ok(cancelled)
    }

    /// A worker stops what is under way, unless an answer came first: then it was delivered, and is not counted.
    async fn count(mut self, desk: &Desk) -> Result<u64, Problem> {
        for _ in 0..MOMENTS {
            let mut left = Vec::new();
            for (id, message) in self.stopping {
                match stopped(desk, id, &message).await? {
                    Some(is_cancelled) => self.done += u64::from(is_cancelled),
                    None => left.push((id, message)),
                }
            }
            self.stopping = left;
            if self.stopping.is_empty() {
                return Ok(self.done);
            }
            tokio::time::sleep(MOMENT).await;
        }
        // Whoever has these is slow, or gone: they were asked to stop, will not start again, and are buried later.
        Ok(self.done + self.stopping.len() as u64)
    }
}

/// What came of asking for a cancel.
enum Asking {
    /// There is nothing to cancel any more.
    Nothing,
    Done,
    /// It is under way, and is being stopped.
    Stopping(Box<Message>),
}

/// As they were looked at: what has begun or ended since is told by the cancel itself.
async fn cancel_all(desk: &Desk, looks: Vec<TaskLook>) -> Result<Vec<(TaskId, Asking)>, Problem> {
    let mut doomed = Vec::new();
    for look in looks {
        doomed.extend(doom(desk, &look).await?.map(|doomed| (look.id, doomed)));
    }
    // No dead letter is left of it, whenever this server should end.
    let called_off = desk.store.call_off(doomed.iter().map(|(id, _)| *id).collect()).await;
    // Of those that were cancelled it is told, whatever holds up the others.
    let (cancelled, held_up) = match called_off {
        Err(StoreError::Settling { task, became }) => (became, Some(task)),
        cancelled => (cancelled?.into_iter().map(Some).collect(), None),
    };
    let mut asked = Vec::new();
    for ((id, Doomed { message, is_of_ended_run }), cancelled) in doomed.into_iter().zip(cancelled) {
        let Some(cancelled) = cancelled else { continue };
        let what = match cancelled {
            // Whoever sweeps behind the run was quicker.
            Cancelled::Unknown if is_of_ended_run => Asking::Done,
            Cancelled::Unknown => Asking::Nothing,
            Cancelled::Waiting => {
                desk.tell_cancelled(id, message).await?;
                Asking::Done
            }
            Cancelled::Running => {
                desk.journal.add(id, &Entry::plain(Stage::CancelRequested, message.clone())).await;
                Asking::Stopping(Box::new(message))
            }
        };
        asked.push((id, what));
    }
    match held_up {
        Some(task) => Err(StoreError::Settling { task, became: Vec::new() }.into()),
        None => Ok(asked),
    }
}

/// A message that is about to be cancelled, without its body.
struct Doomed {
    message: Message,
    is_of_ended_run: bool,
}

/// What comes before a cancel. `None`: there is nothing to cancel any more.
async fn doom(desk: &Desk, look: &TaskLook) -> Result<Option<Doomed>, Problem> {
    let Some(message) = desk.message_of(look) else { return Ok(None) };
    let has_ended = matches!(look.state, TaskState::Done { .. } | TaskState::Dead { .. });
    if has_ended || message.head.part.as_ref().is_some_and(|part| part.role == Role::Letter) {
        return Ok(None);
    }
    // First: a crash behind it leaves messages that are swept away, and one before leaves all as it was. The other way round
    // it would leave a run that waits for what is gone.
    let is_of_ended_run = end_its_run(desk, &message).await?;
    // Tried before, it is what its queue waits for. Before it is gone as well: a queue that rests for nobody would rest for long.
    let is_waited_for = look.attempt > 0 || message.head.holds.is_some();
    if is_waited_for && !matches!(look.state, TaskState::Held { .. }) {
        Queue::go_on_without(&*desk.store, &message).await?;
    }
    Ok(Some(Doomed { message: message.without_body(), is_of_ended_run }))
}

/// Whether a message that was to be stopped was; `None`: it is still under way.
async fn stopped(desk: &Desk, id: TaskId, message: &Message) -> Result<Option<bool>, Problem> {
    // Whatever became of it, its run has ended.
    let is_of_run = message.head.part.as_ref().is_some_and(|part| part.role != Role::Failure);
    let Some(look) = desk.store.look_at_task(id).await? else { return Ok(Some(is_of_run)) };
    match &look.state {
        TaskState::Held { .. } => Ok(None),
        TaskState::Done { .. } => Ok(Some(is_of_run)),
        state if was_stopped(state) => Ok(desk.bury(id, message.clone()).await.map(|()| Some(true))?),
        TaskState::Dead { .. } => Ok(Some(is_of_run)),
        // It failed in between and would be tried again.
        _ => match cancel_all(desk, vec![look]).await?.pop() {
            None | Some((_, Asking::Nothing)) => Ok(Some(is_of_run)),
            Some((_, Asking::Done)) => Ok(Some(true)),
            Some((_, Asking::Stopping(_))) => Ok(None),
        },
    }
}

/// A run that has lost one of its messages would never end: it is cancelled with it. `false`: there is none, or it had ended.
async fn end_its_run(desk: &Desk, message: &Message) -> Result<bool, Problem> {
    match message.head.part.as_ref().filter(|part| part.role != Role::Failure) {
        Some(part) => Ok(desk.cancel_run(&part.run).await?),
        None => Ok(false),
    }
}
