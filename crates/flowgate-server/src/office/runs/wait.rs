//! Events, and the runs that wait for them.
//!
//! Whether somebody waits and what came before is kept in the run's head, and changed only by who saw its last version: so no
//! event falls between the two. Who waits for an event is listed beside, as documents: a list that may name somebody who does
//! not wait any more, and never misses one who does.

use std::time::Duration;

use bytes::Bytes;
use flowgate_tasks::{
    TaskId,
    store::{Cancelled, Document, RunChange, RunOutcome, RunState, RunWrite, StoreError},
};
use serde_json::{Value, json};

use super::{Chore, RunRefused, chore::body_of, plan};
use crate::{
    message::{Role, read},
    office::Desk,
    workflow::{RunHead, Step, StoredEvent, Wait, WaitAsk, event_data, inherit},
};

/// More events, or larger ones, are not kept for a run.
const MOST_EVENTS: usize = 1000;
const MOST_BYTES: usize = 4 * 1024 * 1024;
/// More branches of a run do not wait at the same time.
const MOST_WAITS: usize = 1000;
const PAGE: u32 = 500;

/// Somebody who was told of an event.
#[derive(Clone, Debug)]
pub(crate) struct Notified {
    pub(crate) id: String,
    pub(crate) created: u64,
    /// The message that brings it. `None`: it is kept until somebody waits for it.
    pub(crate) task: Option<TaskId>,
    pub(crate) is_duplicate: bool,
    pub(crate) waiter: Value,
}

impl Desk {
    /// A run waits for an event, or has it at once if it came before.
    pub(crate) async fn wait_for_event(&self, id: &str, ask: WaitAsk) -> Result<(), RunRefused> {
        let WaitAsk { wait, timeout, name } = ask;
        loop {
            let (run, mut head) = self.live_run(id).await?;
            let is_known = head.waits.iter().any(|known| step_name(known) == name);
            // A step that is there has been waited for.
            let found = self.store.run(run.name.clone()).await?;
            let is_over = found.is_some_and(|(_, steps)| steps.iter().any(|step| step.name == name));
            if is_known || is_over {
                return Ok(());
            }
            if let Some(index) = head.events.iter().position(|event| event.event == wait.event) {
                let event = head.events.remove(index);
                if self.step_in(&run.name, run.version, &head, &wait, Some(&event.data)).await?.is_some() {
                    return Ok(());
                }
                continue;
            }
            if head.waits.len() >= MOST_WAITS {
                return Err(RunRefused::Full(id.to_owned()));
            }
            head.waits.push(wait.clone());
            let document = |body: Vec<u8>| Document {
                kind: kind(&wait.event),
                name: format!("{}/{name}", run.name),
                body,
                version: None,
            };
            self.store.put_document(document(Vec::new())).await?;
            let chore = Chore::TimeOut { run: run.name.clone(), step: name.clone() }.task()?;
            let mut planned = bare(&run.name, run.version, &head);
            planned.tasks.push(chore.delay(Duration::from_millis(timeout)));
            match self.runs.write(vec![planned]).await?.pop() {
                Some(RunOutcome::Written { tasks, .. }) => {
                    // So that whoever ends the wait can take its end by time out of the line.
                    let task = tasks.first().map_or(0, |task| task.0);
                    self.store.put_document(document(task.to_string().into_bytes())).await?;
                    return Ok(());
                }
                Some(RunOutcome::Stale) => {}
                _ => return Err(RunRefused::Over(id.to_owned())),
            }
        }
    }

    /// Tells everybody who waits for an event. With a run, that one alone, which keeps it if it does not wait yet.
    pub(crate) async fn notify(
        &self,
        event: &str,
        run: Option<&str>,
        data: &Bytes,
    ) -> Result<Vec<Notified>, RunRefused> {
        if let Some(id) = run {
            return self.notify_run(id, event, data).await;
        }
        let mut told = Vec::new();
        let mut after = String::new();
        loop {
            let page = self.store.documents(kind(event), after.clone(), PAGE).await?;
            for waiting in &page {
                let Some((run, step)) = waiting.name.split_once('/') else { continue };
                match self.wake(run, step, Some(data)).await {
                    Ok(notified) => told.extend(notified),
                    Err(RunRefused::Over(_)) => {
                        self.store.remove_document(kind(event), waiting.name.clone()).await?;
                    }
                    Err(refused) => return Err(refused),
                }
            }
            match page.last() {
                Some(last) if page.len() == PAGE as usize => after.clone_from(&last.name),
                _ => return Ok(told),
            }
        }
    }

    async fn notify_run(&self, id: &str, event: &str, data: &Bytes) -> Result<Vec<Notified>, RunRefused> {
        loop {
            let (run, mut head) = self.live_run(id).await?;
            let steps: Vec<String> =
                head.waits.iter().filter(|wait| wait.event == event).map(step_name).collect();
            if !steps.is_empty() {
                let mut told = Vec::new();
                for step in steps {
                    told.extend(self.wake(&run.name, &step, Some(data)).await?);
                }
                return Ok(told);
            }
            let kept: usize = head.events.iter().map(|event| event.data.len()).sum();
            if head.events.len() >= MOST_EVENTS || kept + data.len() > MOST_BYTES {
                return Err(RunRefused::Full(id.to_owned()));
            }
            head.events.push(StoredEvent { event: event.to_owned(), data: event_data(data) });
            match self.runs.write(vec![bare(&run.name, run.version, &head)]).await?.pop() {
                Some(RunOutcome::Written { .. }) => {
                    let waiter = json!({});
                    let created = head.created;
                    return Ok(vec![Notified {
                        id: run.id,
                        created,
                        task: None,
                        is_duplicate: false,
                        waiter,
                    }]);
                }
                Some(RunOutcome::Stale) => {}
                _ => return Err(RunRefused::Over(id.to_owned())),
            }
        }
    }

    /// Ends a wait of a run: by an event, or (`None`) by time. `None`: there is no such wait.
    pub(crate) async fn wake(
        &self,
        name: &str,
        step: &str,
        data: Option<&Bytes>,
    ) -> Result<Option<Notified>, RunRefused> {
        let data = data.map(|data| event_data(data));
        loop {
            let Some((run, _)) = self.store.run(name.to_owned()).await? else {
                return Err(RunRefused::Over(name.to_owned()));
            };
            if run.state != RunState::Live {
                return Err(RunRefused::Over(run.id));
            }
            let mut head = RunHead::from_bytes(&run.head);
            let Some(index) = head.waits.iter().position(|wait| step_name(wait) == step) else {
                return Ok(None);
            };
            let wait = head.waits.remove(index);
            let Some((task, is_duplicate)) =
                self.step_in(name, run.version, &head, &wait, data.as_deref()).await?
            else {
                continue;
            };
            self.forget_wait(&wait.event, name, step).await?;
            let (created, waiter) = (head.created, wait.view());
            return Ok(Some(Notified { id: run.id, created, task: Some(task), is_duplicate, waiter }));
        }
    }

    /// The step that ends a wait, stored with the head that has the wait no more. `None`: somebody was quicker.
    async fn step_in(
        &self,
        name: &str,
        version: i64,
        head: &RunHead,
        wait: &Wait,
        data: Option<&str>,
    ) -> Result<Option<(TaskId, bool)>, RunRefused> {
        let Some((run, _)) = self.store.run(name.to_owned()).await? else { return Ok(None) };
        let body = body_of(&wait.step_with(data));
        let spec = inherit(read(&wait.given())?, &head.spec, Step::read(&body)?.next());
        let message = self.message(&head.above, wait.url.clone(), spec, None);
        let mut planned = plan::go_on(&run, Role::Step, step_name(wait), message, body);
        planned.change.write = bare(name, version, head).write;
        match self.runs.write(vec![planned.change]).await?.pop() {
            Some(RunOutcome::Written { steps, .. }) => {
                let Some(sent) = steps.first().copied() else { return Ok(None) };
                self.accepted(sent, planned.message);
                Ok(Some((sent.id, sent.is_duplicate)))
            }
            Some(RunOutcome::Stale) => Ok(None),
            Some(RunOutcome::Full) => Err(RunRefused::Full(run.id)),
            _ => Err(RunRefused::Over(run.id)),
        }
    }

    /// Those who wait for an event.
    pub(crate) async fn waiters(&self, event: &str) -> Result<Vec<Value>, StoreError> {
        let page = self.store.documents(kind(event), String::new(), PAGE).await?;
        let mut told = Vec::new();
        for waiting in page {
            let Some((run, step)) = waiting.name.split_once('/') else { continue };
            let Some((run, _)) = self.store.run(run.to_owned()).await? else { continue };
            let head = RunHead::from_bytes(&run.head);
            told.extend(head.waits.iter().filter(|wait| step_name(wait) == step).map(Wait::view));
        }
        Ok(told)
    }

    /// Takes a wait out of the list, and its end by time out of the line.
    async fn forget_wait(&self, event: &str, run: &str, step: &str) -> Result<(), StoreError> {
        let name = format!("{run}/{step}");
        let Some(found) = self.store.document(kind(event), name.clone()).await? else { return Ok(()) };
        let task = String::from_utf8(found.body).ok().and_then(|text| text.parse().ok()).map(TaskId);
        // One that runs just now is who asks.
        let waiting = self.store.waiting(task.into_iter().collect()).await?;
        for task in waiting {
            if self.client.cancel(task).await? == Cancelled::Waiting {
                self.store.remove_dead(task).await?;
            }
        }
        self.store.remove_document(kind(event), name).await.map(drop)
    }

    /// The same for all waits of a run for this event.
    pub(super) async fn forget_waits(&self, event: &str, run: &str) -> Result<(), StoreError> {
        let page = self.store.documents(kind(event), format!("{run}/"), PAGE).await?;
        for waiting in page {
            let Some(step) = waiting.name.strip_prefix(run).and_then(|rest| rest.strip_prefix('/')) else {
                break;
            };
            self.forget_wait(event, run, step).await?;
        }
        Ok(())
    }
}

fn kind(event: &str) -> String {
    format!("wait/{event}")
}

fn step_name(wait: &Wait) -> String {
    let step = serde_json::to_vec(&wait.step).unwrap_or_default();
    Step::read(&step).map(|step| step.name()).unwrap_or_default()
}

/// Nothing but the head.
fn bare(name: &str, version: i64, head: &RunHead) -> RunChange {
    let write = RunWrite::Change {
        version: Some(version),
        head: Some(head.to_bytes()),
        state: None,
        even_ended: false,
    };
    RunChange { name: name.to_owned(), write, steps: Vec::new(), tasks: Vec::new() }
}
