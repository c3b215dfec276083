//! The steps that a delivery carries: all up to its own, as the clients read them.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowgate_tasks::{TaskId, store::RunStep};

use super::{CallType, Kept, Step};

/// Which steps are wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slice<'a> {
    All,
    /// Up to the one of this name, itself included.
    UpTo(&'a str),
}

/// The name of the first step as an endpoint sent it that was asked which version it is of. It stands in place of the one that
/// asked it.
pub(crate) const SDK_INIT: &str = "init/sdk";

/// The steps from the first that counts on.
pub(crate) fn from_init(steps: &[RunStep]) -> &[RunStep] {
    match steps {
        [_, second, ..] if second.name == SDK_INIT => &steps[1..],
        _ => steps,
    }
}

/// The steps as a JSON list. Calls and their answers are there by name only: no client reads more of them.
pub(crate) fn slice(steps: &[RunStep], slice: Slice<'_>, message: impl Fn(TaskId) -> String) -> Vec<u8> {
    let steps = from_init(steps);
    let end = match slice {
        Slice::All => steps.len(),
        Slice::UpTo(name) => {
            steps.iter().position(|step| step.name == name).map_or(steps.len(), |index| index + 1)
        }
    };
    let steps = &steps[..end];
    let size: usize = steps.iter().map(|step| step.body.len() * 4 / 3 + 80).sum();
    let mut text = String::with_capacity(size + 2);
    text.push('[');
    for step in steps {
        let kept = Kept::from_bytes(&step.body);
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str("{\"messageId\":\"");
        text.push_str(&message(step.task));
        text.push_str("\",\"body\":\"");
        if matches!(kept.call_type, CallType::Init | CallType::Step) {
            STANDARD.encode_string(kept.body, &mut text);
        }
        text.push_str("\",\"callType\":\"");
        text.push_str(kept.call_type.as_str());
        text.push_str("\"}");
    }
    text.push(']');
    text.into_bytes()
}

/// Whether what a delivery would bring about is there already: it came, and only its answer was lost. Then it is not made
/// again, and no step runs twice for it.
pub(crate) fn is_superseded(steps: &[RunStep], name: &str) -> bool {
    let has = |name: String| steps.iter().any(|step| step.name == name);
    let next = match name.split_once('/') {
        None if name == "init" && has(SDK_INIT.to_owned()) => return true,
        None if name == "init" => 1,
        _ if name == SDK_INIT => 1,
        Some(("plan", target)) => return has(format!("step/{target}")),
        Some(("step", number)) => {
            let own = steps.iter().find(|step| step.name == name);
            let own = own.and_then(|own| Step::read(Kept::from_bytes(&own.body).body).ok());
            // Of several branches the last to end goes on, and which one that is nobody knows here.
            match (number.parse::<u64>(), own) {
                (Ok(number), Some(own)) if own.concurrent == 1 => number.saturating_add(1),
                _ => return false,
            }
        }
        _ => return false,
    };
    ["step", "plan", "call"].iter().any(|kind| has(format!("{kind}/{next}")))
}

#[cfg(test)]
mod tests {
    use flowgate_core::Tick;

    use super::*;

    fn step(name: &str, task: i64, call_type: CallType, body: &str) -> RunStep {
        let body = Kept::to_bytes(call_type, body.as_bytes());
        RunStep { name: name.into(), task: TaskId(task), at: Tick::ZERO, body }
    }

    fn steps() -> Vec<RunStep> {
        vec![
            step("init", 1, CallType::Init, "{}"),
            step("step/1", 2, CallType::Step, r#"{"stepId":1,"concurrent":1}"#),
            step("call/2", 3, CallType::To, "secret"),
        ]
    }

    #[test]
    fn a_delivery_carries_the_steps_up_to_its_own() {
        // Seen to fail: with all steps in every slice.
        let told = |at| String::from_utf8(slice(&steps(), at, |task| format!("m{task}"))).expect("text");
        let first = r#"{"messageId":"m1","body":"e30=","callType":"step"}"#;
        assert_eq!(told(Slice::UpTo("init")), format!("[{first}]"));
        assert!(told(Slice::UpTo("step/1")).starts_with(&format!("[{first},{{\"messageId\":\"m2\"")));
        assert!(told(Slice::All).ends_with(r#",{"messageId":"m3","body":"","callType":"toCallback"}]"#));
        serde_json::from_str::<serde_json::Value>(&told(Slice::All)).expect("JSON");
        let mut sent_again = steps();
        sent_again.insert(1, step(SDK_INIT, 7, CallType::Init, "[]"));
        let told = slice(&sent_again, Slice::UpTo(SDK_INIT), |task| format!("m{task}"));
        assert_eq!(told, br#"[{"messageId":"m7","body":"W10=","callType":"step"}]"#);
        assert!(is_superseded(&sent_again, "init") && is_superseded(&sent_again, SDK_INIT));
    }

    #[test]
    fn a_delivery_whose_step_is_there_is_not_made_again() {
        let mut steps = steps();
        assert!(is_superseded(&steps, "init"));
        assert!(is_superseded(&steps, "step/1"), "its call was made");
        steps.pop();
        assert!(!is_superseded(&steps, "step/1"));
        steps.push(step("plan/2", 4, CallType::Step, r#"{"stepId":0,"targetStep":2,"concurrent":2}"#));
        assert!(is_superseded(&steps, "step/1") && !is_superseded(&steps, "plan/2"));
        steps.push(step("step/2", 5, CallType::Step, r#"{"stepId":2,"concurrent":2}"#));
        steps.push(step("step/3", 6, CallType::Step, r#"{"stepId":3,"concurrent":2}"#));
        assert!(is_superseded(&steps, "plan/2") && !is_superseded(&steps, "step/2"));
    }
}
