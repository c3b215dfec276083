//! Which dead letters are meant: first by what stands in them, and then by what has to be looked up for each.
//!
//! Never looks anything up itself.

use super::{
    asked::Asked,
    filter::{self, Filter},
    reply::Problem,
};
use crate::{message::Message, workflow::RunHead};

/// What is asked of letters beside what is asked of every message.
pub(super) const OWN: [&str; 13] = [
    "cursor",
    "dlqIds",
    "dlqId",
    "messageId",
    "responseStatus",
    "source",
    "workflowRunId",
    "workflowUrl",
    "workflowUrlExactMatch",
    "workflowCreatedAt",
    "failureFunctionState",
    "all",
    "count",
];

/// A filter of dead letters: any of the values of a name, and all of the names. Without anything in it, it lets all through.
#[derive(Default)]
pub(super) struct Letters {
    filter: Filter,
    messages: Vec<String>,
    /// Which answers are meant; 0 is none at all.
    statuses: Vec<u16>,
    /// Those of runs alone, or all others alone.
    is_of_runs: Option<bool>,
    runs: Vec<String>,
    urls: Vec<String>,
    is_exact_url: bool,
    created: Option<u64>,
    states: Vec<String>,
}

impl Letters {
    pub(super) fn read(asked: &Asked) -> Result<Self, Problem> {
        asked.only(&[&OWN[..], &filter::NAMES[..]].concat())?;
        let is_of_runs = match asked.one("source") {
            None => None,
            Some("workflow") => Some(true),
            Some("qstash") => Some(false),
            Some(source) => {
                let text = format!("source is {source:?}; send workflow or qstash, or none for both");
                return Err(Problem::bad(text));
            }
        };
        Ok(Letters {
            filter: Filter::read(asked)?,
            messages: asked.all("messageId"),
            statuses: statuses(asked)?,
            is_of_runs,
            runs: asked.all("workflowRunId"),
            urls: asked.each("workflowUrl"),
            is_exact_url: asked.flag("workflowUrlExactMatch")?.unwrap_or(true),
            created: asked.moment("workflowCreatedAt")?,
            states: asked.all("failureFunctionState"),
        })
    }

    /// Whether a letter can be meant whose stored head these bytes are.
    pub(super) fn may_match(&self, head: &[u8]) -> bool {
        self.filter.may_match(head)
    }

    /// Whether a letter can be meant, by what stands in it. If [`Self::asks_more`] is false, it is.
    pub(super) fn matches(&self, name: &str, message: &Message) -> bool {
        let is_of_source = match &message.head.part {
            Some(part) => {
                self.is_of_runs != Some(false) && (self.runs.is_empty() || self.runs.contains(&part.id))
            }
            None => self.is_of_runs != Some(true) && self.runs.is_empty() && !self.asks_of_runs(),
        };
        is_of_source
            && (self.messages.is_empty() || self.messages.iter().any(|wanted| wanted == name))
            && self.filter.matches(message, message.head.created)
    }

    /// Whether something is asked that a letter does not know by itself.
    pub(super) fn asks_more(&self) -> bool {
        !self.statuses.is_empty() || self.asks_of_runs()
    }

    /// Whether something is asked that only a run knows.
    fn asks_of_runs(&self) -> bool {
        !self.urls.is_empty() || self.created.is_some() || !self.states.is_empty()
    }

    /// Whether a letter that can be meant is, with this answer (0: none) and the run that it ended.
    pub(super) fn means(&self, status: u16, run: Option<&RunHead>) -> bool {
        let state = run.and_then(|run| run.failure_call.as_ref()).map(|call| &call.state);
        let is_url = |run: &RunHead, url: &String| match self.is_exact_url {
            true => run.url == *url,
            false => run.url.starts_with(url),
        };
        let has_url = |run: &RunHead| self.urls.iter().any(|url| is_url(run, url));
        (self.statuses.is_empty() || self.statuses.contains(&status))
            && (self.urls.is_empty() || run.is_some_and(has_url))
            && self.created.is_none_or(|created| run.is_some_and(|run| run.created == created))
            && (self.states.is_empty() || state.is_some_and(|state| self.states.contains(state)))
    }
}

fn statuses(asked: &Asked) -> Result<Vec<u16>, Problem> {
    let read = |text: &String| {
        let status = text.parse().ok().filter(|status| matches!(status, 0 | 100..=999));
        let wrong = || format!("responseStatus is {text:?}; send a status of an answer, or 0 for no answer");
        status.ok_or_else(|| Problem::bad(wrong()))
    };
    asked.all("responseStatus").iter().map(read).collect()
}
