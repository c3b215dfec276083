//! A step: what a client says of it, and the name by which it is stored once.

use serde::Deserialize;
use serde_json::Value;

use crate::message::{Fault, from_json_object};

const FORM: &str =
    r#"a step like {"stepId": 1, "stepName": "charge", "stepType": "Run", "out": "…", "concurrent": 1}"#;
/// No step has a higher number, and no group more branches: a run has far fewer.
const MOST: u64 = 1_000_000;

/// What tells one step of a run from another, and what is told of it. Everything else stays in its body.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Step {
    /// 0 for the plan of a branch.
    pub(crate) step_id: u64,
    #[serde(default)]
    pub(crate) step_name: String,
    #[serde(default)]
    pub(crate) step_type: String,
    #[serde(default)]
    pub(crate) out: Option<Value>,
    #[serde(default = "one")]
    pub(crate) concurrent: u64,
    #[serde(default)]
    pub(crate) target_step: Option<u64>,
    #[serde(default)]
    pub(crate) sleep_for: Option<Value>,
    #[serde(default)]
    pub(crate) sleep_until: Option<Value>,
    #[serde(default)]
    pub(crate) wait_event_id: Option<String>,
    #[serde(default)]
    pub(crate) wait_timeout: Option<bool>,
    #[serde(default)]
    pub(crate) timeout: Option<Value>,
    /// What this server adds where it ends a wait, or brings the result of an invocation.
    #[serde(default)]
    pub(crate) wait_timeout_deadline: Option<Value>,
    #[serde(default)]
    pub(crate) invoked_workflow_run_id: Option<Value>,
    #[serde(default)]
    pub(crate) invoked_workflow_url: Option<Value>,
    #[serde(default)]
    pub(crate) invoked_workflow_created_at: Option<Value>,
}

fn one() -> u64 {
    1
}

impl Step {
    /// A step is an object: its fields in a list are none, for what it brings is added to it later. Its name may have halves of
    /// letters: whoever is told of it here reads another sign for them, and its run gets it back as it is written.
    pub(crate) fn read(body: &[u8]) -> Result<Self, Fault> {
        let step: Step = from_json_object(body).map_err(|_| {
            let start = &body[..body.len().min(400)];
            Fault::new("the step", &String::from_utf8_lossy(start), FORM)
        })?;
        let numbers = [
            ("stepId", step.step_id),
            ("targetStep", step.target_step.unwrap_or(0)),
            ("concurrent", step.concurrent),
        ];
        for (field, number) in numbers {
            check_number(field, number)?;
        }
        Ok(step)
    }

    /// The one name of this step in its run.
    pub(crate) fn name(&self) -> String {
        match (self.step_id, self.target_step) {
            (0, Some(target)) => format!("plan/{target}"),
            (id, _) => format!("step/{id}"),
        }
    }

    /// The number of the step that the delivery of this one will run, where that is known: after several branches it is not.
    pub(crate) fn next(&self) -> Option<u64> {
        match (self.step_id, self.target_step) {
            (0, target) => target,
            (id, _) => (self.concurrent == 1).then(|| id.saturating_add(1)),
        }
    }

    /// Whether it is the plan of a branch, which its delivery will run.
    pub(crate) fn is_plan(&self) -> bool {
        self.step_id == 0
    }
}

/// The number of a step, if it can be one.
pub(super) fn check_number(field: &str, number: u64) -> Result<u64, Fault> {
    let wrong = || Fault::new(field, &number.to_string(), &format!("a whole number up to {MOST}"));
    (number <= MOST).then_some(number).ok_or_else(wrong)
}

/// What a step is to the client that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallType {
    /// The payload: the first of all.
    Init,
    Step,
    /// A call to somebody else.
    To,
    /// That call's answer.
    From,
}

impl CallType {
    /// As the protocol writes it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            CallType::Init | CallType::Step => "step",
            CallType::To => "toCallback",
            CallType::From => "fromCallback",
        }
    }
}

/// A step as it is stored: what it is, and its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept<'a> {
    pub(crate) call_type: CallType,
    pub(crate) body: &'a [u8],
}

impl<'a> Kept<'a> {
    pub(crate) fn to_bytes(call_type: CallType, body: &[u8]) -> Vec<u8> {
        let code = match call_type {
            CallType::Init => b'i',
            CallType::Step => b's',
            CallType::To => b't',
            CallType::From => b'f',
        };
        [&[code], body].concat()
    }

    pub(crate) fn from_bytes(bytes: &'a [u8]) -> Self {
        let (code, body) = bytes.split_first().unwrap_or((&b's', &[]));
        let call_type = match code {
            b'i' => CallType::Init,
            b't' => CallType::To,
            b'f' => CallType::From,
            _ => CallType::Step,
        };
        Kept { call_type, body }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_one_name_whatever_it_brings() {
        let table = [
            (r#"{"stepId":3,"stepName":"a","concurrent":1,"out":"1"}"#, "step/3"),
            (r#"{"stepId":3,"stepName":"b","concurrent":2}"#, "step/3"),
            (r#"{"stepId":0,"stepName":"b","concurrent":2,"targetStep":3}"#, "plan/3"),
            (r#"{"stepId":0}"#, "step/0"),
        ];
        for (body, name) in table {
            assert_eq!(Step::read(body.as_bytes()).expect("a step").name(), name);
        }
        for body in ["", "[]", "null", r#"{"stepId":-1}"#, r#"{"stepId":"1"}"#, "{\"stepName\":\"a\"}"] {
            let fault = Step::read(body.as_bytes()).expect_err(body).to_string();
            assert!(fault.contains("stepId"), "{fault}");
        }
        let list = r#" [5, "n", "Wait", null, 1, null, null, null, null, null, null]"#;
        assert!(Step::read(list.as_bytes()).is_err(), "the fields of a step in a list are no step");
        for (body, field) in [
            (r#"{"stepId":18446744073709551615}"#, "stepId"),
            (r#"{"stepId":0,"targetStep":1000001}"#, "targetStep"),
            (r#"{"stepId":1,"concurrent":1000001}"#, "concurrent"),
        ] {
            let fault = Step::read(body.as_bytes()).expect_err(body).to_string();
            assert!(fault.starts_with(field) && fault.contains("up to 1000000"), "{fault}");
        }
    }

    #[test]
    fn a_kept_step_comes_back() {
        for call_type in [CallType::Init, CallType::Step, CallType::To, CallType::From] {
            let bytes = Kept::to_bytes(call_type, b"body");
            assert_eq!(Kept::from_bytes(&bytes), Kept { call_type, body: b"body" });
        }
    }
}
