//! What is left to do after a run changed, as tasks: stored with the change, so that no crash loses it.

use std::time::Duration;

use flowgate_tasks::{
    NewTask, Retry, TaskId,
    store::{Cancelled, NewStep, RunOutcome, RunState, RunWrite, StoreError},
    worker::Failure,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{RunRefused, plan, refused::FULL};
use crate::{
    delivery::QUEUE,
    message::{Given, Role, Space, read},
    office::{Desk, Entry, Stage},
    workflow::{CallType, Kept, RunHead, Step, inherit},
};

/// The kind of these tasks.
pub(crate) const CHORE: &str = "run-chore";
const BROUGHT: &str = "the run that it invoked has ended";

/// Something to do for a run, by its own name, or for messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Chore {
    /// Brings the result of a run to the one that invoked it.
    Resolve { run: String },
    /// Takes what is left of an ended run out of its lines.
    Sweep { run: String, waits: Vec<String> },
    /// Ends a wait that no event has ended.
    TimeOut { run: String, step: String },
    /// Sees to messages that were cancelled, by their numbers, until all of them have stopped; and for each that is gone, to the
    /// queues that rested for it, and the numbers of those rests.
    Bury {
        tasks: Vec<i64>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        rests: Vec<(i64, String, u32)>,
    },
}

/// A chore as it is stored: with its namespace, unless that has no name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Errand {
    Within { space: Space, chore: Chore },
    Plain(Chore),
}

impl Errand {
    /// The body of a chore's task, with its namespace.
    pub(in crate::office) fn stamped(body: Vec<u8>, space: &Space) -> Vec<u8> {
        let Ok(chore) = serde_json::from_slice::<Chore>(&body) else { return body };
        serde_json::to_vec(&Errand::Within { space: space.clone(), chore }).expect("a chore is plain data")
    }

    /// The namespace, and what to do there.
    pub(crate) fn apart(self) -> (Space, Chore) {
        match self {
            Errand::Within { space, chore } => (space, chore),
            Errand::Plain(chore) => (Space::default(), chore),
        }
    }
}

impl Chore {
    pub(in crate::office) fn task(&self) -> Result<NewTask, StoreError> {
        let retry = Retry { max_attempts: 1000, max_backoff: Duration::from_secs(60), ..Retry::default() };
        Ok(NewTask::json(CHORE, self)?.queue(QUEUE).retry(retry))
    }

    /// Does it. Done twice, it changes nothing.
    pub(crate) async fn run(self, desk: &Desk) -> Result<(), Failure> {
        match self {
            Chore::Resolve { run } => resolve(desk, &run).await?,
            Chore::Sweep { run, waits } => sweep(desk, &run, &waits).await?,
            Chore::TimeOut { run, step } => {
                let woken = desk.wake(&run, &step, None).await;
                gone_on(desk, &run, "its wait is over", woken.map(drop)).await?;
            }
            Chore::Bury { tasks, rests } => {
                if !desk.bury_stopped(&tasks, &rests).await? {
                    return Err(Failure::new("messages that were cancelled are still under way"));
                }
            }
        }
        Ok(())
    }
}

/// What came of the next step of a run. One that cannot be stored, now or later, ends the run: nothing else would.
async fn gone_on(desk: &Desk, run: &str, what: &str, done: Result<(), RunRefused>) -> Result<(), StoreError> {
    let why = match done {
        Ok(()) | Err(RunRefused::Over(_)) => return Ok(()),
        Err(RunRefused::Store(StoreError::Option(error))) => error.to_string(),
        Err(RunRefused::Store(error)) => return Err(error),
        Err(RunRefused::Fault(fault)) => fault.to_string(),
        Err(RunRefused::Full(_)) => FULL.to_owned(),
    };
    desk.give_up(run, format!("{what}, and the step that follows cannot be stored: {why}")).await
}

async fn resolve(desk: &Desk, child: &str) -> Result<(), StoreError> {
    let Some((run, _)) = desk.store.run(child.to_owned()).await? else { return Ok(()) };
    let head = RunHead::from_bytes(&run.head);
    let Some(invoker) = head.invoker else { return Ok(()) };
    let Some((parent, _)) = desk.store.run(invoker.run.clone()).await? else { return Ok(()) };
    let mut out = json!({
        "isCanceled": run.state == RunState::Cancelled,
        "isFailed": run.state == RunState::Failed,
    });
    if let Some(result) = head.result.filter(|_| run.state == RunState::Done) {
        out["body"] = json!(result);
    }
    let body = invoker.step.with([
        ("out", json!(out.to_string())),
        ("invokedWorkflowRunId", json!(run.id)),
        ("invokedWorkflowUrl", json!(head.url)),
        ("invokedWorkflowCreatedAt", json!(head.created)),
    ]);
    let read_step = match Step::read(&body) {
        Ok(step) => step,
        Err(fault) => return gone_on(desk, &invoker.run, BROUGHT, Err(fault.into())).await,
    };
    let name = read_step.name();
    let given: Given = invoker.headers.iter().map(|(name, value)| (name, value.as_str())).collect();
    let head = RunHead::from_bytes(&parent.head);
    let spec = inherit(read(&given).unwrap_or_default(), &head.spec, read_step.next());
    let message = desk.message(&head.above, invoker.url, spec, None);
    let planned = plan::go_on(&parent, Role::Step, name.clone(), message, body.clone());
    let mut late = planned.change.clone();
    match desk.commit(vec![planned]).await {
        Err(RunRefused::Over(_)) => {
            // Nobody goes on with it any more, but it happened.
            late.write = RunWrite::Change { version: None, head: None, state: None, even_ended: true };
            late.steps = vec![NewStep { name, body: Kept::to_bytes(CallType::Step, &body), task: None }];
            let _: Vec<RunOutcome> = desk.runs.write(vec![late]).await?;
            Ok(())
        }
        done => gone_on(desk, &parent.name, BROUGHT, done.map(drop)).await,
    }
}

async fn sweep(desk: &Desk, name: &str, waits: &[String]) -> Result<(), StoreError> {
    let Some((_, steps)) = desk.store.run(name.to_owned()).await? else { return Ok(()) };
    let tasks: Vec<TaskId> = steps.iter().map(|step| step.task).collect();
    for task in desk.store.waiting(tasks).await? {
        let message = desk.store.look_at_task(task).await?.and_then(|look| desk.message_of(&look));
        let gone = desk.store.call_off(vec![task]).await? == [Cancelled::Waiting];
        if let Some(message) = message.filter(|_| gone) {
            desk.journal.add(task, &Entry::plain(Stage::Canceled, message.without_body())).await;
        }
    }
    for event in waits {
        desk.forget_waits(event, name).await?;
    }
    Ok(())
}
