//! A run as it is told: its state, and its steps in groups.

use std::collections::HashMap;

use flowgate_tasks::{
    TaskId,
    store::{Run, RunState, RunStep},
};
use serde_json::{Map, Value, json};

use super::{CALLED, CallType, Failed, Kept, RunHead, Step};
use crate::{
    message::{header_map, hidden},
    office::Answered,
};

/// By it an endpoint says which step it was at when it failed.
const FAILING: &str = "upstash-error-step-name";

/// What the log has of one message of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) is_delivered: bool,
    pub(crate) is_retried: bool,
    pub(crate) next: Option<u64>,
    /// The attempts that failed, the oldest first: when, why, and what was answered.
    pub(crate) errors: Vec<(u64, String, Option<Answered>)>,
    /// What it was sent with.
    pub(crate) headers: Value,
    pub(crate) retries: u32,
    pub(crate) call: Option<Value>,
}

/// All that a run's log is made of.
pub(crate) struct RunLog<'a> {
    pub(crate) run: &'a Run,
    pub(crate) head: &'a RunHead,
    pub(crate) steps: &'a [RunStep],
    pub(crate) seen: &'a HashMap<TaskId, Seen>,
    pub(crate) message: &'a dyn Fn(TaskId) -> String,
    pub(crate) dead: &'a dyn Fn(TaskId) -> String,
}

/// A group of steps, before it is told.
enum Group {
    One(Value),
    /// The first step it has, and a place for each.
    Parallel(u64, Vec<Value>),
}

impl RunLog<'_> {
    pub(crate) fn view(&self) -> Value {
        let RunLog { run, head, .. } = self;
        let mut view = json!({
            "workflowRunId": run.id,
            "workflowUrl": head.url,
            "workflowState": state(run.state),
            "workflowRunCreatedAt": head.created,
            "steps": self.groups(),
        });
        let mut put = |name: &str, value: Value| view[name] = value;
        if let Some(ended) = run.ended {
            put("workflowRunCompletedAt", json!(ended.as_nanos() / 1_000_000));
        }
        if let Some(result) = &head.result {
            put("workflowRunResponse", self.shown(json!(result)));
        }
        if let Some(first) = head.spec.labels.first() {
            put("label", json!(first));
            put("labels", json!(head.spec.labels));
        }
        if let Some(flow) = &head.spec.flow {
            put("flowControlKey", json!(flow.key));
        }
        if let Some(failed) = &head.failed {
            put("reason", json!(failed.error));
        }
        if let Some(letter) = head.failed.as_ref().and_then(Failed::letter) {
            put("dlqId", json!((self.dead)(letter)));
        }
        if let Some(invoker) = &head.invoker {
            let told = json!({
                "workflowRunId": invoker.id,
                "workflowUrl": invoker.url,
                "workflowRunCreatedAt": invoker.created,
            });
            put("invoker", told);
        }
        if let Some(told) = self.failure_function() {
            put("failureFunction", told);
        }
        view
    }

    fn groups(&self) -> Vec<Value> {
        let mut groups: Vec<Group> = Vec::new();
        let mut last = None;
        // Every branch of a group has its plan among the steps: there are no more places than steps, whatever they say.
        let mut room = self.steps.len();
        let calls = self.calls();
        for step in self.steps {
            let kept = Kept::from_bytes(&step.body);
            match kept.call_type {
                CallType::Init => groups.push(Group::One(self.init(step, kept.body))),
                CallType::Step => self.add(&mut groups, &mut room, step, (kept.body, &calls)),
                // What a call brought is told by the step that it becomes.
                CallType::To | CallType::From => {}
            }
            last = Some((step, kept.call_type));
        }
        let mut told: Vec<Value> = Vec::with_capacity(groups.len() + 1);
        let is_parallel = matches!(groups.last(), Some(Group::Parallel(_, places))
            if places.iter().any(|place| place["state"] != "STEP_SUCCESS"));
        for group in groups {
            told.push(match group {
                Group::One(step) => json!({ "type": "sequential", "steps": [step] }),
                Group::Parallel(_, steps) => json!({ "type": "parallel", "steps": steps }),
            });
        }
        for wait in self.head.waits.iter().filter(|_| !is_parallel) {
            told.push(json!({ "type": "sequential", "steps": [self.waiting(wait)] }));
        }
        if let Some((step, call_type)) = last.filter(|_| !is_parallel && self.head.waits.is_empty())
            && let Some(next) = self.next(step, call_type)
        {
            told.push(json!({ "type": "next", "steps": [next] }));
        }
        told
    }

    /// What is shown of a payload, a result or a body: a digest, if the run was started so.
    fn shown(&self, value: Value) -> Value {
        match &value {
            _ if !self.head.spec.redact.body => value,
            Value::String(text) => json!(hidden(text.as_bytes())),
            other => json!(hidden(other.to_string().as_bytes())),
        }
    }

    fn init(&self, step: &RunStep, payload: &[u8]) -> Value {
        let mut view = self.base(step, CallType::Init);
        view.insert("stepId".into(), json!(0));
        view.insert("stepName".into(), json!("init"));
        view.insert("stepType".into(), json!("Initial"));
        view.insert("out".into(), self.shown(json!(String::from_utf8_lossy(payload))));
        view.insert("concurrent".into(), json!(1));
        view.insert("state".into(), json!("STEP_SUCCESS"));
        Value::Object(view)
    }

    fn add(
        &self,
        groups: &mut Vec<Group>,
        room: &mut usize,
        row: &RunStep,
        (body, calls): (&[u8], &HashMap<&str, TaskId>),
    ) {
        let Ok(step) = Step::read(body) else { return };
        let view = self.step(row, &step, calls);
        if step.concurrent <= 1 && !step.is_plan() {
            groups.push(Group::One(view));
            return;
        }
        let number = if step.is_plan() { step.target_step.unwrap_or(0) } else { step.step_id };
        let fits = |first: u64, places: &[Value]| {
            (first..first.saturating_add(places.len() as u64)).contains(&number)
        };
        let found = groups.iter_mut().rev().find_map(|group| match group {
            Group::Parallel(first, places) if fits(*first, places) => {
                places.get_mut((number - *first) as usize)
            }
            _ => None,
        });
        match found {
            Some(place) => *place = view,
            None => {
                let count = usize::try_from(step.concurrent).unwrap_or(usize::MAX).min(*room).max(1);
                *room = room.saturating_sub(count);
                let mut places = vec![json!({ "state": "STEP_PROGRESS" }); count];
                places[0] = view;
                groups.push(Group::Parallel(number, places));
            }
        }
    }

    fn base(&self, step: &RunStep, call_type: CallType) -> Map<String, Value> {
        let seen = self.seen.get(&step.task);
        let mut view = Map::new();
        view.insert("messageId".into(), json!((self.message)(step.task)));
        view.insert("callType".into(), json!(call_type.as_str()));
        view.insert("createdAt".into(), json!(step.at.as_nanos() / 1_000_000));
        view.insert("retries".into(), json!(seen.map_or(self.head.spec.retries(), |seen| seen.retries)));
        self.put_retry_delay(&mut view);
        let headers = seen.map(|seen| seen.headers.clone()).filter(Value::is_object);
        view.insert("headers".into(), headers.unwrap_or_else(|| json!({})));
        view
    }

    fn step(&self, row: &RunStep, step: &Step, calls: &HashMap<&str, TaskId>) -> Value {
        let mut view = self.base(row, CallType::Step);
        let number = if step.is_plan() { step.target_step.unwrap_or(0) } else { step.step_id };
        let texts = [
            ("stepId", json!(number)),
            ("stepName", json!(step.step_name)),
            ("stepType", json!(step.step_type)),
            ("concurrent", json!(step.concurrent)),
        ];
        view.extend(texts.map(|(name, value)| (name.to_owned(), value)));
        let has_waited = step.wait_event_id.as_ref().filter(|_| !step.is_plan()).map(|_| false);
        let optional = [
            ("out", step.out.clone().map(|out| self.shown(out))),
            ("sleepFor", step.sleep_for.clone()),
            ("sleepUntil", step.sleep_until.clone()),
            ("waitEventId", step.wait_event_id.clone().map(Value::from)),
            ("waitTimeoutDuration", step.timeout.clone()),
            ("waitTimeoutDeadline", step.wait_timeout_deadline.clone()),
            ("waitTimeout", step.wait_timeout.or(has_waited).map(Value::from)),
            ("invokedWorkflowRunId", step.invoked_workflow_run_id.clone()),
            ("invokedWorkflowUrl", step.invoked_workflow_url.clone()),
            ("invokedWorkflowCreatedAt", step.invoked_workflow_created_at.clone()),
        ];
        view.extend(optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        if step.is_plan() {
            view.insert("state".into(), json!(self.pending(row.task)));
            self.put_errors(&mut view, row.task);
        } else {
            view.insert("state".into(), json!("STEP_SUCCESS"));
            if let Some(Value::Object(call)) = self.call_of(number, calls) {
                view.extend(call);
                view.extend(answered(step.out.as_ref()));
                for name in ["callBody", "callResponseBody"] {
                    if let Some(body) = view.get_mut(name) {
                        *body = self.shown(body.take());
                    }
                }
            }
        }
        Value::Object(view)
    }

    /// The calls among the steps, by what they are called. Looked for one by one, a run of many steps would be gone
    /// through for each.
    fn calls(&self) -> HashMap<&str, TaskId> {
        let mut calls = HashMap::new();
        for step in self.steps.iter().filter(|step| step.name.starts_with("call/")) {
            calls.entry(step.name.as_str()).or_insert(step.task);
        }
        calls
    }

    /// What is known of the call that a step was.
    fn call_of(&self, number: u64, calls: &HashMap<&str, TaskId>) -> Option<Value> {
        let call = calls.get(format!("call/{number}").as_str())?;
        self.seen.get(call)?.call.clone()
    }

    fn waiting(&self, wait: &super::Wait) -> Value {
        let mut view = wait.step.fields();
        let more = [
            ("state", json!("STEP_PROGRESS")),
            ("callType", json!("step")),
            ("messageId", json!("")),
            ("retries", json!(self.head.spec.retries())),
            ("headers", json!({})),
            ("createdAt", json!(wait.since)),
            ("waitEventId", json!(wait.event)),
            ("waitTimeoutDuration", json!(wait.timeout)),
            ("waitTimeoutDeadline", json!(wait.deadline)),
            ("waitTimeout", json!(false)),
        ];
        view.extend(more.map(|(name, value)| (name.to_owned(), value)));
        Value::Object(view)
    }

    /// The delivery that is pending or failed, after the last step.
    fn next(&self, step: &RunStep, call_type: CallType) -> Option<Value> {
        let is_delivered = self.seen.get(&step.task).is_some_and(|seen| seen.is_delivered);
        let is_failed = self.head.failed.as_ref().is_some_and(|failed| failed.is_at(step.task));
        if self.run.state == RunState::Done || is_delivered && !is_failed && call_type != CallType::To {
            return None;
        }
        let mut view = Map::new();
        view.insert("messageId".into(), json!((self.message)(step.task)));
        view.insert("state".into(), json!(self.pending(step.task)));
        let seen = self.seen.get(&step.task);
        view.insert("retries".into(), json!(seen.map_or(self.head.spec.retries(), |seen| seen.retries)));
        self.put_retry_delay(&mut view);
        let answers = seen.into_iter().flat_map(|seen| seen.errors.iter().rev());
        if let Some(name) = answers.filter_map(|(_, _, answer)| answer.as_ref()?.header(FAILING)).next() {
            view.insert("stepName".into(), json!(name));
        }
        if let Some(Value::Object(call)) = seen.and_then(|seen| seen.call.clone()) {
            view.extend(call);
            if let Some(body) = view.get_mut("callBody") {
                *body = self.shown(body.take());
            }
        }
        if let Some(next) = seen.and_then(|seen| seen.next) {
            view.insert("nextDeliveryTime".into(), json!(next));
        }
        self.put_errors(&mut view, step.task);
        Some(Value::Object(view))
    }

    fn put_retry_delay(&self, view: &mut Map<String, Value>) {
        if let Some(expression) = &self.head.spec.retry_delay {
            view.insert("retryDelay".into(), json!(expression.to_string()));
        }
    }

    fn pending(&self, task: TaskId) -> &'static str {
        let is_failed = self.head.failed.as_ref().is_some_and(|failed| failed.is_at(task));
        match (self.run.state, self.seen.get(&task)) {
            _ if is_failed => "STEP_FAILED",
            (RunState::Cancelled | RunState::Failed, _) => "STEP_CANCELED",
            (_, Some(seen)) if seen.is_retried && !seen.is_delivered => "STEP_RETRY",
            _ => "STEP_PROGRESS",
        }
    }

    fn put_errors(&self, view: &mut Map<String, Value>, task: TaskId) {
        let Some(seen) = self.seen.get(&task).filter(|seen| !seen.errors.is_empty()) else { return };
        let error = |(at, error, answer): &(u64, String, Option<Answered>)| {
            let (status, headers, body) = told(answer.as_ref());
            json!({ "error": error, "body": body, "headers": headers, "status": status, "time": at })
        };
        view.insert("errors".into(), seen.errors.iter().map(error).collect());
    }

    fn failure_function(&self) -> Option<Value> {
        let call = self.head.failure_call.as_ref()?;
        let failed = self.head.failed.as_ref()?;
        let (status, headers, body) = told(failed.answer.as_ref());
        let mut view = json!({
            "messageId": (self.message)(TaskId(call.task)),
            "url": call.url,
            "state": call.state,
            "failHeaders": headers,
            "failStatus": status,
            "failResponse": body,
        });
        if let Some(letter) = failed.letter() {
            view["dlqId"] = json!((self.dead)(letter));
        }
        if let Some(answer) = &call.answer {
            let (status, headers, body) = told(Some(answer));
            view["responseStatus"] = json!(status);
            view["responseHeaders"] = headers;
            view["responseBody"] = json!(body);
        }
        let mut view = view.as_object().cloned()?;
        self.put_errors(&mut view, TaskId(call.task));
        let next = self.seen.get(&TaskId(call.task)).and_then(|seen| seen.next);
        if let Some(next) = next.filter(|_| call.state == CALLED) {
            view.insert("nextDeliveryTime".into(), json!(next));
        }
        Some(Value::Object(view))
    }
}

/// The status, headers and text of an answer.
fn told(answer: Option<&Answered>) -> (u16, Value, String) {
    let Some(answer) = answer else { return (0, json!({}), String::new()) };
    let headers = answer.headers.iter().map(|(name, value)| (name.as_str(), value.clone()));
    (answer.status, header_map(headers), answer.text())
}

/// What a call brought, from the step that it became.
fn answered(out: Option<&Value>) -> Map<String, Value> {
    let out: Option<Value> = out.and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok());
    let names =
        [("status", "callResponseStatus"), ("body", "callResponseBody"), ("header", "callResponseHeaders")];
    let each =
        names.iter().filter_map(|(from, to)| Some(((*to).to_owned(), out.as_ref()?.get(from)?.clone())));
    each.collect()
}

/// As the protocol writes it.
pub(crate) fn state(state: RunState) -> &'static str {
    match state {
        RunState::Live => "RUN_STARTED",
        RunState::Done => "RUN_SUCCESS",
        RunState::Failed => "RUN_FAILED",
        RunState::Cancelled => "RUN_CANCELED",
    }
}

#[cfg(test)]
mod tests {
    use flowgate_core::Tick;

    use super::*;
    use crate::{message::read, workflow::Failed};

    fn told(state: RunState, failed: Option<i64>, steps: &[(&str, &str)], seen: &[(i64, Seen)]) -> Value {
        let failed = failed.map(|task| Failed {
            task,
            error: "no".into(),
            answer: None,
            has_letter: true,
            behind: None,
        });
        told_of(state, &RunHead { failed, ..RunHead::default() }, steps, seen)
    }

    fn told_of(state: RunState, head: &RunHead, steps: &[(&str, &str)], seen: &[(i64, Seen)]) -> Value {
        let run = Run {
            name: "r".into(),
            id: "wfr_1".into(),
            state,
            version: 1,
            created: Tick::ZERO,
            ended: None,
            head: Vec::new(),
        };
        let row = |(number, (name, body)): (usize, &(&str, &str))| {
            let call_type = match name.split('/').next() {
                Some("init") => CallType::Init,
                Some("call") => CallType::To,
                _ => CallType::Step,
            };
            let body = Kept::to_bytes(call_type, body.as_bytes());
            RunStep { name: (*name).into(), task: TaskId(number as i64 + 1), at: Tick::ZERO, body }
        };
        let steps: Vec<RunStep> = steps.iter().enumerate().map(row).collect();
        let seen = seen.iter().map(|(task, seen)| (TaskId(*task), seen.clone())).collect();
        let (message, dead) = (|task| format!("msg_{task}"), |task| format!("dlq_{task}"));
        RunLog { run: &run, head, steps: &steps, seen: &seen, message: &message, dead: &dead }.view()
    }

    /// The groups as `type:state,state`.
    fn shape(log: &Value) -> Vec<String> {
        let states = |group: &Value| {
            let each = group["steps"].as_array().expect("steps").iter();
            each.map(|step| step["state"].as_str().expect("a state").to_owned()).collect::<Vec<_>>().join(",")
        };
        let groups = log["steps"].as_array().expect("groups").iter();
        groups.map(|group| format!("{}:{}", group["type"].as_str().expect("a type"), states(group))).collect()
    }

    const INIT: (&str, &str) = ("init", "{}");
    const FIRST: (&str, &str) = ("step/1", r#"{"stepId":1,"stepName":"a","concurrent":1,"out":"1"}"#);
    const PLANS: [(&str, &str); 2] = [
        ("plan/1", r#"{"stepId":0,"targetStep":1,"stepName":"a","concurrent":2}"#),
        ("plan/2", r#"{"stepId":0,"targetStep":2,"stepName":"b","concurrent":2}"#),
    ];

    #[test]
    fn steps_are_told_in_groups_with_what_is_next() {
        let delivered = Seen { is_delivered: true, ..Seen::default() };
        let retried = Seen { is_retried: true, errors: vec![(1, "no".into(), None)], ..Seen::default() };
        let live = told(RunState::Live, None, &[INIT, FIRST], &[(1, delivered.clone()), (2, retried)]);
        assert_eq!(shape(&live), ["sequential:STEP_SUCCESS", "sequential:STEP_SUCCESS", "next:STEP_RETRY"]);
        assert_eq!(live["steps"][2]["steps"][0]["messageId"], "msg_2");
        let failed = told(RunState::Failed, Some(2), &[INIT, FIRST], &[(1, delivered)]);
        assert_eq!(shape(&failed)[2], "next:STEP_FAILED");
        assert_eq!((&failed["dlqId"], &failed["workflowState"]), (&json!("dlq_2"), &json!("RUN_FAILED")));
        assert!(failed["reason"].is_string() && live["reason"].is_null(), "why, where it failed");
        let done = told(RunState::Done, None, &[INIT, FIRST], &[]);
        assert_eq!(shape(&done), ["sequential:STEP_SUCCESS", "sequential:STEP_SUCCESS"]);
    }

    #[test]
    fn f5_what_is_known_of_a_step_beside_its_result_is_told() {
        // Seen to fail: with the fields that a client knows left out of `step` and `next`.
        let waited = r#"{"stepId":1,"waitEventId":"e","timeout":"1m","waitTimeoutDeadline":7,"out":"1"}"#;
        let invoked = r#"{"stepId":2,"invokedWorkflowRunId":"wfr_2","invokedWorkflowCreatedAt":9,"out":"1"}"#;
        let headers = vec![("upstash-error-step-name".to_owned(), "charge".to_owned())];
        let answer = Answered { status: 500, headers, body: String::new() };
        let tried = Seen {
            errors: vec![(1, "no".into(), Some(answer)), (2, "late".into(), None)],
            ..Seen::default()
        };
        let spec = read(&[("Upstash-Retry-Delay", "10")].into_iter().collect()).expect("headers");
        let head = RunHead { spec, ..RunHead::default() };
        let steps = [INIT, ("step/1", waited), ("step/2", invoked)];
        let log = told_of(RunState::Live, &head, &steps, &[(3, tried)]);
        let step = |group: usize| &log["steps"][group]["steps"][0];
        let told =
            ["waitTimeoutDuration", "waitTimeoutDeadline", "waitTimeout"].map(|name| step(1)[name].clone());
        assert_eq!(told, [json!("1m"), json!(7), json!(false)], "an event came in time");
        assert_eq!((step(2).get("waitTimeout"), &step(2)["invokedWorkflowRunId"]), (None, &json!("wfr_2")));
        assert_eq!(
            (&step(3)["stepName"], &step(3)["retryDelay"]),
            (&json!("charge"), &json!("10")),
            "the last that said it"
        );
        assert_eq!(step(1)["retryDelay"], "10");
    }

    #[test]
    fn s4_there_are_no_more_places_than_steps_whatever_a_step_says() {
        // Seen to fail: with as many places for each group as its first step says, up to 10,000.
        let name = |number: u64| format!("step/{}", number * 1000);
        let body = |number: u64| format!(r#"{{"stepId":{},"concurrent":10000}}"#, number * 1000);
        let steps: Vec<(String, String)> = (1..=60).map(|number| (name(number), body(number))).collect();
        let steps: Vec<(&str, &str)> =
            steps.iter().map(|(name, body)| (name.as_str(), body.as_str())).collect();
        let log = told(RunState::Live, None, &steps, &[]);
        let groups = log["steps"].as_array().expect("groups").iter();
        let places: usize = groups.map(|group| group["steps"].as_array().expect("steps").len()).sum();
        assert!((60..=120).contains(&places), "{places}");
    }

    #[test]
    fn s3_a_pending_call_of_a_run_that_hides_its_bodies_shows_none() {
        // Seen to fail: with the call as it was sent among what is next.
        let spec = read(&[("Upstash-Redact-Fields", "body")].into_iter().collect()).expect("headers");
        let head = RunHead { spec, ..RunHead::default() };
        let call = Some(json!({ "callUrl": "https://e.com", "callBody": "secret" }));
        let seen = [(2, Seen { call, ..Seen::default() })];
        let log = told_of(RunState::Live, &head, &[INIT, ("call/1", "")], &seen);
        assert_eq!(log["steps"][1]["steps"][0]["callUrl"], "https://e.com", "{log}");
        assert!(!log.to_string().contains("secret"), "{log}");
    }

    #[test]
    fn a_branch_that_fails_is_marked_in_its_group() {
        let result = ("step/1", r#"{"stepId":1,"stepName":"a","concurrent":2,"out":"1"}"#);
        let live = told(RunState::Live, None, &[INIT, PLANS[0], PLANS[1], result], &[]);
        assert_eq!(shape(&live), ["sequential:STEP_SUCCESS", "parallel:STEP_SUCCESS,STEP_PROGRESS"]);
        let failed = told(RunState::Failed, Some(3), &[INIT, PLANS[0], PLANS[1], result], &[]);
        assert_eq!(shape(&failed)[1], "parallel:STEP_SUCCESS,STEP_FAILED");
        let cancelled = told(RunState::Cancelled, None, &[INIT, PLANS[0], PLANS[1]], &[]);
        assert_eq!(shape(&cancelled)[1], "parallel:STEP_CANCELED,STEP_CANCELED");
    }
}
