//! A store as one namespace sees it.
//!
//! Owns the one place where names change: on the way in, keys, dedupe ids, documents and runs get the
//! namespace's mark, and messages are stamped with it; on the way out, other namespaces' names are not there.
//! A task that is asked for by its number is not checked here: the reader of its message sees whose it is
//! ([`super::Desk::message_of`]).

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use flowgate_core::Tick;
use flowgate_tasks::{
    NewTask, TaskId,
    store::{
        Among, Arrears, Cancelled, Census, Document, Holder, Kept, KeyChange, KeyLook, KeyPage, KeyQuery,
        KeySpent, KindOf, NewNote, NewWorker, Note, NoteQuery, Of, Offer, Offered, QueueLimits, QueueLook,
        Reply, Run, RunChange, RunOutcome, RunQuery, RunStep, RunWrite, Sent, Shelf, Standing, Store,
        StoreError, TaskLook, Turn, Turned, Wake, WorkerId, WorkerLook,
    },
};

use super::{CHORE, Errand, TICK, Tick as Due};
use crate::{
    delivery::KIND,
    message::{Message, Space},
    metrics::Meter,
};

/// Stands for a task of another namespace, which is not named. No task has this number.
pub(crate) const NOBODY: TaskId = TaskId(0);
/// So many holders without a key are looked at; more are counted as others'.
const MOST_LOOKS: u32 = 200;

/// The store, for one namespace.
pub(super) struct Scoped {
    inner: Arc<dyn Shelf>,
    space: Space,
    meter: Arc<Meter>,
}

impl Scoped {
    pub(super) fn new(inner: Arc<dyn Shelf>, space: Space, meter: Arc<Meter>) -> Self {
        Scoped { inner, space, meter }
    }

    /// Something that is written in any case, whatever the store has.
    fn write<'a, T: Send + 'a>(&'a self, reply: Reply<'a, T>) -> Reply<'a, T> {
        Box::pin(async move {
            let answer = reply.await;
            self.meter.writes.answered(&answer);
            answer
        })
    }

    fn of(&self, of: Of) -> Of {
        match of {
            Of::Key(key) => Of::Key(self.space.put(key)),
            of => of,
        }
    }

    /// A task of this namespace, as it is stored.
    fn task(&self, task: NewTask) -> NewTask {
        let task = task.renamed(|name| self.space.put(name));
        if self.space.is_root() {
            return task;
        }
        match task.kind() {
            KIND => task.with_body(|body| match Message::from_bytes(&Bytes::from(body.clone())) {
                Ok(mut message) => {
                    message.head.space = self.space.clone();
                    message.to_bytes()
                }
                Err(_) => body,
            }),
            TICK => task.with_body(|body| Due::stamped(body, &self.space)),
            CHORE => task.with_body(|body| Errand::stamped(body, &self.space)),
            _ => task,
        }
    }

    /// A task as it is told, unless its key is another namespace's.
    fn told(&self, mut look: TaskLook) -> Option<TaskLook> {
        if let Some(key) = &look.key {
            look.key = Some(self.space.take(key)?);
        }
        Some(look)
    }

    /// Whether a task carries a message of this namespace.
    fn is_own(&self, look: &TaskLook) -> bool {
        let record = look.record.as_ref().filter(|record| record.kind == KIND);
        let message = record.and_then(|record| Message::from_bytes(&Bytes::from(record.body.clone())).ok());
        message.is_some_and(|message| message.head.space == self.space)
    }

    /// A holder as it is told here. Whose one without a key is, its message says: so many of those are looked at.
    async fn holder_told(&self, mut holder: Holder, looks: &mut u32) -> Result<Holder, StoreError> {
        let own = match &holder.key {
            Some(key) => self.space.take(key).map(Some),
            None if *looks == 0 => None,
            None => {
                *looks -= 1;
                let look = self.inner.look_at_task(holder.id).await?;
                look.filter(|look| self.is_own(look)).map(|_| None)
            }
        };
        match own {
            Some(key) => holder.key = key,
            None => (holder.id, holder.key, holder.kind) = (NOBODY, None, String::new()),
        }
        Ok(holder)
    }

    /// Up to `most` of a list in the order of names, whoever has the others.
    async fn page<'a, T>(
        &'a self,
        after: String,
        most: u32,
        ask: impl Fn(String) -> Reply<'a, Vec<T>>,
        name: impl Fn(&mut T) -> &mut String,
    ) -> Result<Vec<T>, StoreError> {
        let mut found = Vec::new();
        let mut after = Some(self.space.list_from(after));
        while let Some(from) = after.filter(|_| found.len() < most as usize) {
            let page = ask(from).await?;
            let is_last = page.len() < most as usize;
            after = None;
            for mut one in page {
                let stored = name(&mut one).clone();
                after = self.space.list_on(&stored);
                if let Some(own) = self.space.take(&stored) {
                    *name(&mut one) = own;
                    found.push(one);
                }
            }
            after = after.filter(|_| !is_last);
        }
        found.truncate(most as usize);
        Ok(found)
    }

    fn spent_told(&self, mut spent: KeySpent) -> Option<KeySpent> {
        spent.key.key = self.space.take(&spent.key.key)?;
        Some(spent)
    }

    fn run_change(&self, change: RunChange) -> RunChange {
        let write = match change.write {
            RunWrite::Start { id, origin, head } => RunWrite::Start {
                id: self.space.put(id),
                origin: origin.map(|origin| self.space.put(origin)),
                head,
            },
            write => write,
        };
        let steps = change.steps.into_iter().map(|mut step| {
            step.task = step.task.map(|task| self.task(task));
            step
        });
        RunChange {
            name: self.space.put(change.name),
            write,
            steps: steps.collect(),
            tasks: change.tasks.into_iter().map(|task| self.task(task)).collect(),
        }
    }

    fn run_told(&self, mut run: Run) -> Option<Run> {
        run.name = self.space.take(&run.name)?;
        run.id = self.space.take(&run.id)?;
        Some(run)
    }

    async fn own_runs(&self, mut query: RunQuery) -> Result<Vec<Run>, StoreError> {
        let most = query.most as usize;
        query.id = query.id.map(|id| self.space.put(id));
        let end = (!self.space.is_root()).then(|| self.space.end());
        query.before = query.before.map(|before| self.space.put(before)).or(end);
        let mut found = Vec::new();
        loop {
            let page = self.inner.runs(query.clone()).await?;
            let is_last = page.len() < most;
            let before = page.last().and_then(|last| self.space.list_back(&last.name));
            found.extend(page.into_iter().filter_map(|run| self.run_told(run)));
            if is_last || found.len() >= most || before.is_none() {
                found.truncate(most);
                return Ok(found);
            }
            query.before = before;
        }
    }
}

impl Store for Scoped {
    fn send(&self, tasks: Vec<NewTask>) -> Reply<'_, Vec<Sent>> {
        self.write(self.inner.send(tasks.into_iter().map(|task| self.task(task)).collect()))
    }

    fn register(&self, worker: NewWorker) -> Reply<'_, WorkerId> {
        self.write(self.inner.register(worker))
    }

    fn beat(&self, worker: WorkerId) -> Reply<'_, bool> {
        self.write(self.inner.beat(worker))
    }

    fn turn(&self, worker: WorkerId, turn: Turn) -> Reply<'_, Turned> {
        self.inner.turn(worker, turn)
    }

    fn offer(&self, offer: Offer) -> Option<Offered> {
        self.inner.offer(offer)
    }

    fn gathers_sends(&self) -> bool {
        self.inner.gathers_sends()
    }

    fn reconcile(&self, worker: WorkerId, known: Vec<i64>) -> Reply<'_, u32> {
        self.inner.reconcile(worker, known)
    }

    fn leave(&self, worker: WorkerId) -> Reply<'_, ()> {
        self.inner.leave(worker)
    }

    fn upkeep(&self) -> Reply<'_, Kept> {
        self.inner.upkeep()
    }

    fn wake_rested(&self) -> Reply<'_, Option<Duration>> {
        self.inner.wake_rested()
    }

    fn set_cluster_cap(&self, cap: Option<u32>) -> Reply<'_, ()> {
        self.inner.set_cluster_cap(cap)
    }

    fn set_latest(&self, is_latest: bool) -> Reply<'_, ()> {
        self.inner.set_latest(is_latest)
    }

    fn set_queue(&self, queue: QueueLimits) -> Reply<'_, ()> {
        self.inner.set_queue(queue)
    }

    fn pause_queue(&self, name: String, is_paused: bool) -> Reply<'_, bool> {
        self.inner.pause_queue(name, is_paused)
    }

    fn change_key(&self, key: String, change: KeyChange) -> Reply<'_, ()> {
        self.inner.change_key(self.space.put(key), change)
    }

    fn look_at_key(&self, key: String) -> Reply<'_, Option<KeyLook>> {
        Box::pin(async move {
            let found = self.inner.look_at_key(self.space.put(key.clone())).await?;
            Ok(found.map(|look| KeyLook { key, ..look }))
        })
    }

    fn queues_counted(&self, most: u32) -> Reply<'_, Vec<QueueLook>> {
        self.inner.queues_counted(most)
    }

    fn cluster(&self) -> Reply<'_, (u32, Option<u32>)> {
        self.inner.cluster()
    }

    fn look_at_task(&self, id: TaskId) -> Reply<'_, Option<TaskLook>> {
        Box::pin(async move { Ok(self.inner.look_at_task(id).await?.and_then(|look| self.told(look))) })
    }

    fn cancel_all(&self, ids: Vec<TaskId>) -> Reply<'_, Vec<Cancelled>> {
        self.inner.cancel_all(ids)
    }

    fn cancelled(&self, among: Vec<TaskId>) -> Reply<'_, Vec<TaskId>> {
        self.inner.cancelled(among)
    }

    /// Others' are among them: a page that is short is the last one, and none must become short here.
    fn dead(&self, before: Option<TaskId>, most: u32) -> Reply<'_, Vec<TaskLook>> {
        self.inner.dead(before, most)
    }

    fn revive(&self, id: TaskId) -> Reply<'_, bool> {
        self.inner.revive(id)
    }

    /// Others' are counted among them, and are [`NOBODY`].
    fn holders(&self, of: Of, most: u32) -> Reply<'_, Vec<Holder>> {
        Box::pin(async move {
            let found = self.inner.holders(self.of(of), most).await?;
            if self.space.is_root() {
                return Ok(found);
            }
            let (mut told, mut looks) = (Vec::with_capacity(found.len()), MOST_LOOKS);
            for holder in found {
                told.push(self.holder_told(holder, &mut looks).await?);
            }
            Ok(told)
        })
    }

    /// Of what is not a key's, others' are left out.
    fn line(&self, of: Of, most: u32) -> Reply<'_, Vec<TaskLook>> {
        Box::pin(async move {
            let found = self.inner.line(self.of(of), most).await?;
            if self.space.is_root() {
                return Ok(found);
            }
            let own = found.into_iter().filter_map(|look| self.told(look));
            Ok(own.filter(|look| look.key.is_some() || self.is_own(look)).collect())
        })
    }

    fn standing(&self, id: TaskId) -> Reply<'_, Option<Standing>> {
        self.inner.standing(id)
    }

    fn workers(&self) -> Reply<'_, Vec<WorkerLook>> {
        self.inner.workers()
    }

    fn audit(&self) -> Reply<'_, Vec<String>> {
        self.inner.audit()
    }

    fn wakes(&self) -> tokio::sync::broadcast::Receiver<Wake> {
        self.inner.wakes()
    }
}

impl Shelf for Scoped {
    fn now(&self) -> Reply<'_, Tick> {
        self.inner.now()
    }

    fn write_notes(&self, notes: Arc<[NewNote]>) -> Reply<'_, ()> {
        self.inner.write_notes(notes)
    }

    /// Others' are among them, as in [`Scoped::dead`].
    fn notes(&self, query: NoteQuery) -> Reply<'_, Vec<Note>> {
        self.inner.notes(query)
    }

    fn put_document(&self, document: Document) -> Reply<'_, bool> {
        let name = self.space.put(document.name);
        self.write(self.inner.put_document(Document { name, ..document }))
    }

    fn document(&self, kind: String, name: String) -> Reply<'_, Option<Document>> {
        Box::pin(async move {
            let found = self.inner.document(kind, self.space.put(name.clone())).await?;
            Ok(found.map(|found| Document { name, ..found }))
        })
    }

    fn documents(&self, kind: String, after: String, most: u32) -> Reply<'_, Vec<Document>> {
        let ask = move |after| self.inner.documents(kind.clone(), after, most);
        Box::pin(self.page(after, most, ask, |document| &mut document.name))
    }

    fn remove_document(&self, kind: String, name: String) -> Reply<'_, bool> {
        self.inner.remove_document(kind, self.space.put(name))
    }

    fn remove_document_at(&self, kind: String, name: String, version: i64) -> Reply<'_, bool> {
        self.inner.remove_document_at(kind, self.space.put(name), version)
    }

    /// Others' are among them, as in [`Scoped::dead`].
    fn live_tasks(&self, after: TaskId, most: u32) -> Reply<'_, Vec<TaskLook>> {
        self.inner.live_tasks(after, most)
    }

    fn newest_task(&self) -> Reply<'_, TaskId> {
        self.inner.newest_task()
    }

    fn keys(&self, after: String, most: u32) -> Reply<'_, Vec<KeySpent>> {
        let ask = move |after| self.inner.keys(after, most);
        Box::pin(self.page(after, most, ask, |spent| &mut spent.key.key))
    }

    fn key_spent(&self, key: String) -> Reply<'_, Option<KeySpent>> {
        Box::pin(async move {
            let mut found = self.inner.key_spent(self.space.put(key.clone())).await?;
            if let Some(found) = &mut found {
                found.key.key = key;
            }
            Ok(found)
        })
    }

    fn busiest_keys(&self, most: u32) -> Reply<'_, Vec<KeySpent>> {
        Box::pin(async move {
            let found = self.inner.busiest_keys(most).await?;
            Ok(found.into_iter().filter_map(|spent| self.spent_told(spent)).collect())
        })
    }

    fn find_keys(&self, query: KeyQuery) -> Reply<'_, KeyPage> {
        Box::pin(async move {
            let wanted = query.search.to_ascii_lowercase();
            let without = Some(query.without.clone()).filter(|without| !without.is_empty());
            let without = without.map(|without| self.space.put(without)).unwrap_or_default();
            let after = self.space.list_from(query.after.clone());
            let page = self.inner.find_keys(KeyQuery { without, after, ..query }).await?;
            let own = page.keys.into_iter().filter_map(|spent| self.spent_told(spent));
            // The mark is no part of a name that is searched.
            let own = own.filter(|spent| spent.key.key.to_ascii_lowercase().contains(&wanted));
            let next = page.next.and_then(|next| self.space.list_on(&next));
            let next =
                next.and_then(|next| if self.space.is_root() { Some(next) } else { self.space.take(&next) });
            Ok(KeyPage { keys: own.collect(), next })
        })
    }

    fn keys_named(&self, names: Vec<String>) -> Reply<'_, Vec<KeySpent>> {
        Box::pin(async move {
            let names = names.into_iter().map(|name| self.space.put(name)).collect();
            let found = self.inner.keys_named(names).await?;
            Ok(found.into_iter().filter_map(|spent| self.spent_told(spent)).collect())
        })
    }

    /// Of dead tasks, and in a namespace of keys, others' are among them. What is nobody's but a namespace's does not
    /// count beside it.
    fn census(&self, without: Vec<String>) -> Reply<'_, Census> {
        let mut without: Vec<String> = without.into_iter().map(|name| self.space.put(name)).collect();
        if self.space.is_root() {
            without.push(Space::all_named());
        }
        self.inner.census(without)
    }

    /// Of this namespace's messages.
    fn count_of(&self, kind: KindOf, among: Among) -> Reply<'_, u64> {
        let (from, stamp) = (Message::HEAD_AT, self.space.stamp());
        let kind = match self.space.is_root() {
            true => KindOf { from, without: stamp, ..kind },
            false => KindOf { from, with: stamp, ..kind },
        };
        self.inner.count_of(kind, among)
    }

    fn arrears(&self, queue: String) -> Reply<'_, Arrears> {
        self.inner.arrears(queue)
    }

    fn call_off(&self, ids: Vec<TaskId>) -> Reply<'_, Vec<Cancelled>> {
        self.inner.call_off(ids)
    }

    fn remove_all_dead(&self, ids: Vec<TaskId>) -> Reply<'_, u64> {
        self.inner.remove_all_dead(ids)
    }

    fn change_runs(&self, changes: Vec<RunChange>) -> Reply<'_, Vec<RunOutcome>> {
        let changes = changes.into_iter().map(|change| self.run_change(change)).collect();
        Box::pin(async move {
            let outcomes = self.inner.change_runs(changes).await?;
            let told = |outcome| match outcome {
                RunOutcome::Taken { name } => {
                    RunOutcome::Taken { name: self.space.take(&name).unwrap_or_default() }
                }
                outcome => outcome,
            };
            Ok(outcomes.into_iter().map(told).collect())
        })
    }

    fn run(&self, name: String) -> Reply<'_, Option<(Run, Vec<RunStep>)>> {
        Box::pin(async move {
            let found = self.inner.run(self.space.put(name)).await?;
            Ok(found.and_then(|(run, steps)| Some((self.run_told(run)?, steps))))
        })
    }

    fn runs(&self, query: RunQuery) -> Reply<'_, Vec<Run>> {
        Box::pin(self.own_runs(query))
    }

    fn waiting(&self, tasks: Vec<TaskId>) -> Reply<'_, Vec<TaskId>> {
        self.inner.waiting(tasks)
    }

    fn prune(&self, notes_before: Tick, dead_before: Tick) -> Reply<'_, u64> {
        self.inner.prune(notes_before, dead_before)
    }
}
