//! Failed runs, once more: from the step that failed, or from the beginning.

use bytes::Bytes;
use flowgate_tasks::{
    TaskId,
    store::{NewStep, RunChange, RunStep, RunWrite},
};
use serde_json::Value;

use super::{InRun, Planned, RunRefused, plan::Beginning};
use crate::{
    clock,
    message::{Flow, Message, Part, Role, Spec, Start},
    office::{Desk, posting, random_text, traced::below},
    workflow::{CallType, Kept, RunHead, Step, from_init, own_name},
};

/// No branch sleeps longer, in milliseconds, or until later, in seconds since 1970: what a step says of itself is not checked.
const LONGEST: f64 = 366.0 * 24.0 * 60.0 * 60.0 * 1000.0;
const LATEST: f64 = 10_000_000_000.0;

/// What holds for the new run instead of what held for the old one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    pub(crate) retries: Option<u32>,
    pub(crate) flow: Option<Flow>,
}

impl Overrides {
    fn over(&self, mut spec: Spec) -> Spec {
        spec.retries = self.retries.or(spec.retries);
        spec.flow = self.flow.clone().or(spec.flow);
        spec.start = None;
        spec
    }
}

impl Desk {
    /// A new run with the payload and the settings of the one that this dead letter ended.
    pub(crate) async fn restart_run(
        &self,
        letter: TaskId,
        part: &Part,
        overrides: &Overrides,
    ) -> Result<InRun, RunRefused> {
        let (head, steps) = self.failed_run(part).await?;
        let payload = from_init(&steps)
            .first()
            .map(|step| Kept::from_bytes(&step.body).body.to_vec())
            .unwrap_or_default();
        let planned = self.begin(Beginning {
            id: new_id(),
            url: head.url,
            spec: overrides.over(head.spec),
            payload: Bytes::from(payload),
            features: head.features,
            caller: head.caller,
            above: head.above,
            invoker: None,
            origin: Some(format!("letter/{letter}")),
        });
        self.one(planned).await
    }

    /// A new run that has the steps of the one that this dead letter ended, and goes on where it failed.
    pub(crate) async fn resume_run(
        &self,
        letter: TaskId,
        message: &Message,
        overrides: &Overrides,
    ) -> Result<InRun, RunRefused> {
        let part = message.head.part.clone().ok_or_else(|| RunRefused::Over(letter.to_string()))?;
        // Where no delivery ended it, the last one that was made is made again.
        let role = if part.role == Role::Letter { Role::Step } else { part.role };
        let (mut head, steps) = self.failed_run(&part).await?;
        head.spec = overrides.over(head.spec);
        head.created = clock::now();
        (head.failed, head.failure_call, head.invoker) = (None, None, None);
        let (name, id) = (own_name(head.created, &random_text(10)), new_id());
        // All that it sends at once is sent by one: by whoever resumes it.
        let sent_by = self.traced(&head.above, message.head.clone());
        head.above = below(&sent_by);
        let again = |step: &str, role: Role, start: Option<Start>| {
            let mut message = Message { head: sent_by.clone(), body: message.body.clone() };
            message.head.created = head.created;
            message.head.spec = overrides.over(message.head.spec);
            message.head.spec.start = start;
            message.head.part = Some(Part { run: name.clone(), id: id.clone(), role, step: step.to_owned() });
            message
        };
        let mut sent = Vec::new();
        let mut copies = Vec::with_capacity(steps.len());
        for step in from_init(&steps) {
            let kept = Kept::from_bytes(&step.body);
            let is_failed = step.name == part.step;
            let is_open = kept.call_type == CallType::Step && is_open(&steps, step, kept.body);
            if !matches!(kept.call_type, CallType::Init | CallType::Step) && !is_failed {
                continue;
            }
            let message = match (is_failed, is_open) {
                (true, _) => Some(again(&step.name, role, None)),
                (false, true) => Some(again(&step.name, Role::Step, pause(kept.body))),
                (false, false) => None,
            };
            let task = message.as_ref().map(posting::task);
            copies.push(NewStep { name: step.name.clone(), body: step.body.clone(), task });
            sent.push(message);
        }
        let write = RunWrite::Start {
            id: id.clone(),
            origin: Some(format!("letter/{letter}")),
            head: head.to_bytes(),
        };
        let change = RunChange { name, write, steps: copies, tasks: Vec::new() };
        let message = sent.into_iter().flatten().next().unwrap_or_else(|| message.clone());
        self.one(Planned { change, message, id, created: Some(head.created) }).await
    }

    async fn failed_run(&self, part: &Part) -> Result<(RunHead, Vec<RunStep>), RunRefused> {
        let found = self.store.run(part.run.clone()).await?;
        let (run, steps) = found.ok_or_else(|| RunRefused::Over(part.id.clone()))?;
        Ok((RunHead::from_bytes(&run.head), steps))
    }

    async fn one(&self, planned: Planned) -> Result<InRun, RunRefused> {
        let id = planned.id.clone();
        self.commit(vec![planned]).await?.pop().ok_or(RunRefused::Over(id))
    }
}

fn new_id() -> String {
    format!("wfr_{}", random_text(21))
}

/// Whether it is the plan of a branch that has no result: its message was taken out of the line when the run failed.
fn is_open(steps: &[RunStep], step: &RunStep, body: &[u8]) -> bool {
    let Ok(plan) = Step::read(body) else { return false };
    let result = format!("step/{}", plan.target_step.unwrap_or(0));
    plan.is_plan() && step.name.starts_with("plan/") && !steps.iter().any(|step| step.name == result)
}

/// How long the branch of a plan sleeps.
fn pause(body: &[u8]) -> Option<Start> {
    let plan = Step::read(body).ok()?;
    let seconds = |value: Option<Value>| match value? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => crate::message::seconds(&text).map(|span| span.as_secs_f64()),
        _ => None,
    };
    let until = seconds(plan.sleep_until).map(|at| Start::At(at.clamp(0.0, LATEST) as u64));
    until.or_else(|| {
        seconds(plan.sleep_for).map(|span| Start::After((span * 1000.0).clamp(0.0, LONGEST) as u64))
    })
}
