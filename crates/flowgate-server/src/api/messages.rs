//! `/v2/messages`: one message, and cancelling one or many.

use std::{mem, time::Duration};

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
    office::{Desk, Entry, Queue, QueueRest, Stage, was_stopped},
};

/// The count that the JavaScript client sends where its caller said none, `cancel({ all: true })` included: it cannot be left out
/// there, and means all. So this one number bounds nothing.
const SAID_BY_CLIENTS: u64 = 100;
/// How long what is under way is waited for, and how often it is looked for.
const MOMENT: Duration = Duration::from_millis(10);
const MOMENTS: u32 = 200;
/// So many of those that are named are cancelled at once.
const AT_ONCE: usize = 100;

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
    if was_cancelled(&entries) {
        return Ok(None);
    }
    Ok(entries.into_iter().find(|entry| entry.stage == Stage::Created).map(|entry| entry.message))
}

fn was_cancelled(entries: &[Entry]) -> bool {
    entries.iter().any(|entry| entry.stage == Stage::Canceled)
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
    if cancel_named(&desk, vec![id], &Filter::default(), u64::MAX).await? == 0 {
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
    let filter = Filter::read(&asked)?;
    let most = asked.bound()?.filter(|count| *count != SAID_BY_CLIENTS).unwrap_or(u64::MAX);
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
        let cancelled = cancel_named(&desk, named, &filter, most).await?;
        return ok(json!({ "cancelled": cancelled }));
    }
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
        Ok(cancelled + cancel_named(desk, held.collect(), &Filter::default(), u64::MAX).await?)
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
    let mut doomed = Vec::with_capacity(looks.len());
    for look in looks {
        doomed.extend(doom(desk, &look).await?);
    }
    let mut cancels = Cancels::default();
    cancels.call_off(desk, doomed).await?;
    cancels.end(desk).await
}

/// The same, by their numbers: those of them that are meant, and no more than `most`. They are looked at one after the other: a
/// message can be large. The newest come first: what waits is gone before what it waits for has stopped.
async fn cancel_named(desk: &Desk, mut ids: Vec<TaskId>, filter: &Filter, most: u64) -> Result<u64, Problem> {
    ids.sort_unstable_by(|one, other| other.cmp(one));
    ids.dedup();
    let mut cancels = Cancels::default();
    for some in ids.chunks(AT_ONCE) {
        let mut doomed = Vec::with_capacity(some.len());
        for id in some {
            if cancels.begun() + doomed.len() as u64 >= most {
                break;
            }
            let look = desk.store.look_at_task(*id).await?;
            if let Some(look) = look.filter(|look| filter.is_empty() || is_meant(desk, filter, look)) {
                doomed.extend(doom(desk, &look).await?);
            }
        }
        cancels.call_off(desk, doomed).await?;
    }
    cancels.end(desk).await
}

/// Cancels: how many are done, and what is still being stopped.
#[derive(Default)]
struct Cancels {
    done: u64,
    stopping: Vec<(TaskId, Box<Message>)>,
}

/// A message that is about to be cancelled, without its body.
struct Doomed {
    id: TaskId,
    message: Message,
    is_of_ended_run: bool,
    /// What rests for it.
    rests: Vec<QueueRest>,
}

/// What became of a message that was asked to stop.
enum Fate {
    Stopping(Box<Message>),
    /// Whether it was cancelled.
    Ended(bool),
    /// It failed in between and would be tried again.
    Waiting(Doomed),
}

/// What comes before a cancel. `None`: it has ended, and nothing is to be cancelled.
async fn doom(desk: &Desk, look: &TaskLook) -> Result<Option<Doomed>, Problem> {
    let Some(message) = desk.message_of(look) else { return Ok(None) };
    let has_ended = matches!(look.state, TaskState::Done { .. } | TaskState::Dead { .. });
    if has_ended || message.head.part.as_ref().is_some_and(|part| part.role == Role::Letter) {
        return Ok(None);
    }
    // First: a crash behind it leaves messages that are swept away, and one before leaves all as it was. The other way round
    // it would leave a run that waits for what is gone.
    let is_of_ended_run = end_its_run(desk, &message).await?;
    let mut rests = Queue::rests_for(look.id, &message);
    if look.attempt > 0 && !matches!(look.state, TaskState::Held { .. }) {
        rests.extend(Queue::earlier_rest_for(&message));
    }
    Ok(Some(Doomed { id: look.id, message: message.without_body(), is_of_ended_run, rests }))
}

impl Cancels {
    /// How many are cancelled, or may be.
    fn begun(&self) -> u64 {
        self.done + self.stopping.len() as u64
    }

    /// Cancels them as they were looked at: what has begun or ended since is told by the cancel itself.
    async fn call_off(&mut self, desk: &Desk, doomed: Vec<Doomed>) -> Result<(), Problem> {
        if doomed.is_empty() {
            return Ok(());
        }
        let ids: Vec<TaskId> = doomed.iter().map(|doomed| doomed.id).collect();
        let rests =
            doomed.iter().flat_map(|doomed| doomed.rests.iter().map(|rest| (doomed.id, rest.clone())));
        // Before anything is cancelled: whenever this server should end, what is stopped is buried, and no queue rests for what
        // is gone.
        let chore = desk.bury_later(&ids, rests.collect()).await?;
        // No dead letter is left of what had not begun, either.
        let called_off = desk.store.call_off(ids).await;
        // Of those that were cancelled it is told, whatever holds up the others.
        let (cancelled, held_up) = match called_off {
            Err(StoreError::Settling { task, became }) => (became, Some(task)),
            cancelled => (cancelled?.into_iter().map(Some).collect(), None),
        };
        let (mut ended, mut is_chore_left) = (Vec::new(), held_up.is_some());
        for (Doomed { id, message, is_of_ended_run, rests }, what) in doomed.into_iter().zip(cancelled) {
            match what {
                None => {}
                // Whoever sweeps behind the run was quicker; otherwise there is nothing to cancel any more.
                Some(Cancelled::Unknown) => self.done += u64::from(is_of_ended_run),
                Some(Cancelled::Waiting) => {
                    desk.tell_cancelled(id, message).await?;
                    self.done += 1;
                    ended.extend(rests);
                }
                Some(Cancelled::Running) => {
                    desk.journal.add(id, &Entry::plain(Stage::CancelRequested, message.clone())).await;
                    self.stopping.push((id, Box::new(message)));
                    is_chore_left = true;
                }
            }
        }
        // Not before they are gone, or the next attempt would begin.
        Queue::end_rests(&*desk.store, ended).await?;
        if !is_chore_left {
            desk.store.call_off(vec![chore]).await?;
        }
        match held_up {
            Some(task) => Err(StoreError::Settling { task, became: Vec::new() }.into()),
            None => Ok(()),
        }
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
            let mut doomed = Vec::new();
            for (id, message) in mem::take(&mut self.stopping) {
                match fate(desk, id, message).await? {
                    Fate::Stopping(message) => self.stopping.push((id, message)),
                    Fate::Ended(was_cancelled) => self.done += u64::from(was_cancelled),
                    Fate::Waiting(again) => doomed.push(again),
                }
            }
            self.call_off(desk, doomed).await?;
            if self.stopping.is_empty() {
                return Ok(self.done);
            }
            tokio::time::sleep(MOMENT).await;
        }
        // Whoever has these is slow, or gone: they were asked to stop, will not start again, and are buried later.
        Ok(self.done + self.stopping.len() as u64)
    }
}

/// What became of it. One that has stopped is buried.
async fn fate(desk: &Desk, id: TaskId, message: Box<Message>) -> Result<Fate, Problem> {
    // Whatever became of it, its run has ended.
    let is_of_run = message.head.part.as_ref().is_some_and(|part| part.role != Role::Failure);
    let look = desk.store.look_at_task(id).await?;
    Ok(match look.map(|look| look.state) {
        Some(TaskState::Held { .. }) => Fate::Stopping(message),
        Some(state) if was_stopped(&state) => {
            desk.bury(id, *message).await?;
            Fate::Ended(true)
        }
        Some(TaskState::Done { .. } | TaskState::Dead { .. }) => Fate::Ended(is_of_run),
        // It was delivered; or it was stopped, and whoever looks after it was quicker to bury it.
        None => Fate::Ended(is_of_run || was_cancelled(&logged(desk, id).await?)),
        Some(_) => {
            let rests = Queue::rests_for(id, &message);
            Fate::Waiting(Doomed { id, message: *message, is_of_ended_run: is_of_run, rests })
        }
    })
}

/// A run that has lost one of its messages would never end: it is cancelled with it. `false`: there is none, or it had ended.
async fn end_its_run(desk: &Desk, message: &Message) -> Result<bool, Problem> {
    match message.head.part.as_ref().filter(|part| part.role != Role::Failure) {
        Some(part) => Ok(desk.cancel_run(&part.run).await?),
        None => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use flowgate_tasks::store::Sqlite;

    use super::*;
    use crate::message::Head;

    #[tokio::test]
    async fn f4_what_somebody_else_has_buried_is_counted_as_cancelled() {
        // Seen to fail: with whatever is gone taken for delivered.
        let store = Arc::new(Sqlite::in_memory().expect("a store in memory"));
        let (desk, _log) = Desk::open(store, false).await.expect("a desk");
        for (stage, count) in [(Stage::Canceled, 1), (Stage::Delivered, 0)] {
            let head = Head { url: "http://127.0.0.1:9/".to_owned(), ..Head::default() };
            let message = Message { head: head.into(), body: Bytes::new() };
            let id = desk.accept(message.clone()).await.expect("a store").id;
            // It was under way when it was asked to stop, and is gone before it is looked at.
            desk.journal.add_now(id, &Entry::plain(stage, message.clone())).await;
            desk.store.call_off(vec![id]).await.expect("a store");
            let cancels = Cancels { stopping: vec![(id, Box::new(message))], ..Cancels::default() };
            assert_eq!(cancels.end(&desk).await.ok(), Some(count), "{stage:?}");
        }
    }
}
