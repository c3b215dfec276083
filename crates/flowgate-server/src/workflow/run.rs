//! What is kept of a run beside its steps.

use bytes::Bytes;
use flowgate_tasks::TaskId;
use serde::{Deserialize, Serialize};

use super::{StoredEvent, Wait, Written};
use crate::{message::Spec, office::Answered, traces::Above};

/// A run's head: what it was started with, whom it waits for, and how it ended. Moments are milliseconds since the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RunHead {
    pub(crate) url: String,
    pub(crate) created: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) features: Vec<String>,
    /// What it was started with: it holds for every later message of the run that does not bring its own.
    pub(crate) spec: Spec,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) caller: Option<String>,
    /// Its first message's place in a trace, which the others hang below unless they bring their own.
    #[serde(skip_serializing_if = "Above::is_none")]
    pub(crate) above: Above,
    /// Whose step it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) invoker: Option<Invoker>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) waits: Vec<Wait>,
    /// Events that came before anybody waited for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) events: Vec<StoredEvent>,
    /// What it returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<Failed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure_call: Option<FailureCall>,
}

/// The run that gets the result of this one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Invoker {
    /// Its own name.
    pub(crate) run: String,
    pub(crate) id: String,
    pub(crate) url: String,
    pub(crate) created: u64,
    /// The headers that its step is sent with.
    pub(crate) headers: Vec<(String, String)>,
    /// The step, without its result.
    pub(crate) step: Written,
}

impl Invoker {
    /// The run and its step: it invokes once.
    pub(crate) fn origin(&self) -> String {
        let name = self.step.step().map(|step| step.name()).unwrap_or_default();
        format!("{}/{name}", self.run)
    }
}

/// The message that no attempt was left for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Failed {
    /// 0 where no delivery ended the run, and its letter is on its way.
    pub(crate) task: i64,
    pub(crate) error: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) answer: Option<Answered>,
    /// Whether it is a dead letter. Runs that an older version gave up have none.
    #[serde(default = "yes")]
    pub(crate) has_letter: bool,
    /// The message behind which nothing could follow, where that is another one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) behind: Option<i64>,
}

impl Failed {
    /// Whether the run ended with this message, or behind it.
    pub(crate) fn is_at(&self, task: TaskId) -> bool {
        self.task == task.0 || self.behind == Some(task.0)
    }

    /// Its dead letter, once there is one.
    pub(crate) fn letter(&self) -> Option<TaskId> {
        (self.has_letter && self.task != 0).then_some(TaskId(self.task))
    }
}

fn yes() -> bool {
    true
}

/// The state of a failure function while it is told.
pub(crate) const CALLED: &str = "CALLBACK_INPROGRESS";

/// How far the run's failure function was told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FailureCall {
    pub(crate) url: String,
    /// The last message that told it, once one was sent.
    #[serde(default)]
    pub(crate) task: i64,
    /// [`CALLED`], `CALLBACK_SUCCESS`, `CALLBACK_FAIL` or `CALLBACK_CANCELED`.
    pub(crate) state: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) answer: Option<Answered>,
}

impl RunHead {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a head is plain data")
    }

    /// A head that cannot be read is an empty one: then nothing is inherited, and nothing is lost but that.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    /// Whether this is the dead letter of its end.
    pub(crate) fn has_letter(&self, task: TaskId) -> bool {
        self.failed.as_ref().and_then(Failed::letter) == Some(task)
    }

    pub(crate) fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|known| known == feature)
    }
}

/// A name for a run that nobody had before. Names of later runs come behind it.
pub(crate) fn own_name(created: u64, random: &str) -> String {
    format!("{created:012x}-{random}")
}

/// Whether a text can be such a name.
pub(crate) fn is_own_name(text: &str) -> bool {
    let Some((created, random)) = text.split_once('-') else { return false };
    let is_moment = created.len() >= 12
        && created.len() <= 16
        && created.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_moment && (1..=64).contains(&random.len()) && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// A result as its caller sent it: text.
pub(crate) fn result_text(body: &Bytes) -> Option<String> {
    (!body.is_empty()).then(|| String::from_utf8_lossy(body).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_runs_have_later_names() {
        let names =
            [own_name(1_700_000_000_000, "z"), own_name(1_700_000_000_001, "a"), own_name(1 << 47, "0")];
        assert!(names.is_sorted(), "{names:?}");
    }

    #[test]
    fn a_head_comes_back_and_a_broken_one_is_empty() {
        let head =
            RunHead { url: "https://e.com".into(), features: vec!["LazyFetch".into()], ..RunHead::default() };
        assert_eq!(RunHead::from_bytes(&head.to_bytes()), head);
        assert!(head.has("LazyFetch") && !head.has("lazyfetch"));
        assert_eq!(RunHead::from_bytes(b"?"), RunHead::default());
    }
}
