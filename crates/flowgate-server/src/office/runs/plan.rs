//! What begins a run or goes on with it becomes a change of the run: planned first, stored together.

use bytes::Bytes;
use flowgate_tasks::{
    TaskId,
    store::{NewStep, Run, RunChange, RunOutcome, RunQuery, RunWrite},
};
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::RunRefused;
use crate::{
    clock,
    delivery::UNKNOWN_SDK,
    message::{
        Destination, Fault, Given, Head, Message, Part, Role, Spec, from_json, from_json_object, read,
    },
    office::{
        Desk, Sending, posting, random_text,
        traced::{above, below},
    },
    traces::Above,
    workflow::{
        Ask, CallType, Invoker, Kept, Kind, RunHead, SDK_INIT, Step, Written, check_own_limits, headers_of,
        inherit, own_limits, own_name, run_id,
    },
};

const INVOCATION: &str = r#"{"body": "…", "headers": {"Name": ["value"]}, "workflowRunId": "wfr_…", "workflowUrl": "https://…", "step": {"stepId": 1}}"#;

/// A change that is ready to be stored.
pub(crate) struct Planned {
    pub(super) change: RunChange,
    /// The message it sends, as the log shows it.
    pub(super) message: Message,
    pub(super) id: String,
    /// When the run began, if this begins it.
    pub(super) created: Option<u64>,
}

/// A message of a run that was taken in, or that had been.
#[derive(Clone, Debug)]
pub(crate) struct InRun {
    pub(crate) id: String,
    pub(crate) task: TaskId,
    pub(crate) created: Option<u64>,
    pub(crate) is_duplicate: bool,
}

/// A run that is to begin.
pub(super) struct Beginning {
    pub(super) id: String,
    pub(super) url: String,
    pub(super) spec: Spec,
    pub(super) payload: Bytes,
    pub(super) features: Vec<String>,
    pub(super) caller: Option<String>,
    pub(super) above: Above,
    pub(super) invoker: Option<Invoker>,
    pub(super) origin: Option<String>,
}

/// Who invokes a run, and with what.
struct Invoked {
    invoker: Invoker,
    payload: Bytes,
    /// What keeps the same step from invoking twice.
    origin: String,
    /// Where the invoker's run stands in a trace.
    above: Above,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Invocation {
    #[serde(default)]
    body: Option<Box<RawValue>>,
    #[serde(default)]
    headers: Map<String, Value>,
    workflow_run_id: String,
    #[serde(default)]
    workflow_run_created_at: Option<f64>,
    workflow_url: String,
    step: Written,
}

impl Desk {
    /// Reads what a message asks for in a run. Nothing is stored yet.
    pub(crate) async fn plan(&self, ask: Ask, sending: Sending) -> Result<Planned, RunRefused> {
        let Sending { destination, given, body, caller, .. } = sending;
        let Destination::Url(url) = destination else {
            return Err(Fault::text("a run needs a URL, and a URL group has none of its own").into());
        };
        let mut spec = read(&given)?;
        spec.dedupe = None;
        check_own_limits(&spec)?;
        let Ask { id, kind, features } = ask;
        let above = above(&given);
        let beginning = |payload, above: Above, invoker: Option<Invoker>, origin| Beginning {
            id: id.clone(),
            url: url.clone(),
            spec: spec.clone(),
            payload,
            features: features.clone(),
            caller: caller.clone(),
            above,
            invoker,
            origin,
        };
        match kind {
            Kind::Start => match self.asked_for(&id, &given).await? {
                Some((run, head)) => {
                    let spec = inherit(spec, &head.spec, Some(1));
                    Ok(answer(&run, self.message(&above.or(&head.above), url, spec, caller), body))
                }
                None => Ok(self.begin(beginning(body, above, None, None))),
            },
            Kind::Invoke => {
                let Invoked { invoker, payload, origin, above: of_invoker } = self.invocation(&body).await?;
                Ok(self.begin(beginning(payload, above.or(&of_invoker), Some(invoker), Some(origin))))
            }
            Kind::Step => {
                let (run, head) = self.live_run(&id).await?;
                let step = Step::read(&body)?;
                let spec = inherit(spec, &head.spec, step.next());
                let message = self.message(&above.or(&head.above), url, spec, caller);
                Ok(go_on(&run, Role::Step, step.name(), message, body))
            }
            Kind::Call(number) => {
                let (run, head) = self.live_run(&id).await?;
                if spec.redact.is_empty() {
                    spec.redact.clone_from(&head.spec.redact);
                }
                let message = self.message(&above.or(&head.above), url, spec, caller);
                Ok(go_on(&run, Role::Call, format!("call/{number}"), message, body))
            }
        }
    }

    /// The run whose endpoint was asked which version it is of, if this is its answer.
    async fn asked_for(&self, id: &str, given: &Given) -> Result<Option<(Run, RunHead)>, RunRefused> {
        if given
            .last("upstash-workflow-trigger-by-sdk")
            .is_none_or(|value| !value.eq_ignore_ascii_case("true"))
        {
            return Ok(None);
        }
        match self.live_run(id).await {
            Ok((run, head)) => Ok(Some((run, head)).filter(|(_, head)| head.has(UNKNOWN_SDK))),
            Err(RunRefused::Over(_)) => Ok(None),
            Err(refused) => Err(refused),
        }
    }

    /// Stores what was planned, in one transaction, and gives what came of each.
    pub(crate) async fn commit(&self, planned: Vec<Planned>) -> Result<Vec<InRun>, RunRefused> {
        let changes = planned.iter().map(|planned| planned.change.clone()).collect();
        let outcomes = self.runs.write(changes).await?;
        let mut all = Vec::with_capacity(planned.len());
        for (planned, outcome) in planned.into_iter().zip(outcomes) {
            let Planned { change, message, id, created } = planned;
            match outcome {
                RunOutcome::Written { steps, .. } => {
                    // Steps that were copied have no message.
                    let index = change.steps.iter().position(|step| step.task.is_some()).unwrap_or(0);
                    let Some(sent) = steps.get(index).copied() else { continue };
                    self.accepted(sent, message);
                    all.push(InRun { id, task: sent.id, created, is_duplicate: sent.is_duplicate });
                }
                RunOutcome::Taken { name } => all.push(self.taken(&name, &change.write).await?),
                RunOutcome::Full => return Err(RunRefused::Full(id)),
                RunOutcome::Unknown | RunOutcome::Ended(_) | RunOutcome::Stale => {
                    return Err(RunRefused::Over(id));
                }
            }
        }
        Ok(all)
    }

    /// The answer of a call goes to the workflow, once.
    pub(crate) async fn bring_back(
        &self,
        run: &Run,
        step: String,
        mut message: Message,
    ) -> Result<(), RunRefused> {
        let body = std::mem::take(&mut message.body);
        self.commit(vec![go_on(run, Role::Back, step, message, body)]).await.map(drop)
    }

    /// The run that has been there before.
    async fn taken(&self, name: &str, asked: &RunWrite) -> Result<InRun, RunRefused> {
        let gone = || RunRefused::Over(name.to_owned());
        let (run, steps) = self.store.run(name.to_owned()).await?.ok_or_else(gone)?;
        let task = steps.first().map_or(TaskId(0), |step| step.task);
        let head = RunHead::from_bytes(&run.head);
        let created = Some(head.created);
        // Somebody else's run ends without telling the step that asked for one: it would wait for ever.
        if let RunWrite::Start { origin: Some(origin), head: asked, .. } = asked
            && RunHead::from_bytes(asked).invoker.is_some()
            && head.invoker.as_ref().map(Invoker::origin).as_deref() != Some(origin.as_str())
        {
            let accepted = "an id that no other live run has: this step did not invoke that one";
            return Err(Fault::new("Upstash-Workflow-RunId", &run.id, accepted).into());
        }
        Ok(InRun { id: run.id, task, created, is_duplicate: true })
    }

    /// The live run of this id.
    pub(crate) async fn live_run(&self, id: &str) -> Result<(Run, RunHead), RunRefused> {
        if run_id(id).is_err() {
            // Nobody has a run of this name, and not every store can be asked for it.
            return Err(RunRefused::Over(id.chars().take(100).collect()));
        }
        let query = RunQuery { id: Some(id.to_owned()), is_live: true, most: 1, before: None };
        let run = self.store.runs(query).await?.pop().ok_or_else(|| RunRefused::Over(id.to_owned()))?;
        let head = RunHead::from_bytes(&run.head);
        Ok((run, head))
    }

    /// Who invokes, as the body says it.
    async fn invocation(&self, body: &Bytes) -> Result<Invoked, RunRefused> {
        let wrong =
            |error| Fault::text(format!("the body is not an invocation ({error}); send {INVOCATION}"));
        let body: Invocation = from_json_object(body).map_err(wrong)?;
        let payload = body.body.map(|text| from_json::<String>(text.get().as_bytes()));
        let payload = payload.transpose().map_err(wrong)?.unwrap_or_default();
        body.step.step()?;
        let url = Destination::url("workflowUrl", &body.workflow_url)?;
        let headers = headers_of(&body.headers)?;
        // Whoever brings the result cannot tell anybody that they cannot be.
        read(&headers).map_err(|fault| Fault::text(format!("headers: {fault}")))?;
        let (run, head) = self.live_run(&body.workflow_run_id).await?;
        let invoker = Invoker {
            run: run.name,
            id: run.id,
            url,
            created: body.workflow_run_created_at.map_or(head.created, |at| at as u64),
            headers: headers.pairs().collect(),
            step: body.step,
        };
        let origin = invoker.origin();
        Ok(Invoked { invoker, payload: payload.into(), origin, above: head.above })
    }

    /// A message of a run, without its body.
    pub(super) fn message(&self, above: &Above, url: String, spec: Spec, caller: Option<String>) -> Message {
        let head = Head { url, created: clock::now(), spec, caller, ..Head::default() };
        Message { head: self.traced(above, head), body: Bytes::new() }
    }

    /// A run begins: its payload is its first step, and its first message brings that.
    pub(super) fn begin(&self, beginning: Beginning) -> Planned {
        let Beginning { id, url, spec, payload, features, caller, above, invoker, origin } = beginning;
        let mut first = spec.clone();
        first.flow = own_limits(&spec, 1).or(first.flow);
        let mut message = self.message(&above, url.clone(), first, caller.clone());
        let created = message.head.created;
        let name = own_name(created, &random_text(10));
        message.head.part =
            Some(Part { run: name.clone(), id: id.clone(), role: Role::Step, step: "init".to_owned() });
        let above = below(&message.head);
        let head = RunHead { url, created, features, spec, caller, above, invoker, ..RunHead::default() };
        let body = Kept::to_bytes(CallType::Init, &payload);
        let step = NewStep { name: "init".to_owned(), body, task: Some(posting::task(&message)) };
        let write = RunWrite::Start { id: id.clone(), origin, head: head.to_bytes() };
        let change = RunChange { name, write, steps: vec![step], tasks: Vec::new() };
        message.body = payload;
        Planned { change, message, id, created: Some(created) }
    }
}

/// The payload as the endpoint sent it again: the first step that counts.
fn answer(run: &Run, message: Message, payload: Bytes) -> Planned {
    let mut planned = go_on(run, Role::Step, SDK_INIT.to_owned(), message, Bytes::new());
    for step in &mut planned.change.steps {
        step.body = Kept::to_bytes(CallType::Init, &payload);
    }
    planned.message.body = payload;
    planned
}

/// A run goes on with one more step.
pub(super) fn go_on(run: &Run, role: Role, step: String, mut message: Message, body: Bytes) -> Planned {
    let part = Part { run: run.name.clone(), id: run.id.clone(), role, step: step.clone() };
    message.head.part = Some(part);
    // What a step says is in the run; what is for others, or from them, is in the message.
    let kept = match role {
        Role::Step => Kept::to_bytes(CallType::Step, &body),
        Role::Call => Kept::to_bytes(CallType::To, &[]),
        Role::Back | Role::Failure | Role::Letter => Kept::to_bytes(CallType::From, &[]),
    };
    if role != Role::Step {
        message.body = body.clone();
    }
    let task = Some(posting::task(&message));
    message.body = body;
    let change = RunChange {
        name: run.name.clone(),
        write: RunWrite::append(),
        steps: vec![NewStep { name: step, body: kept, task }],
        tasks: Vec::new(),
    };
    Planned { change, message, id: run.id.clone(), created: None }
}
