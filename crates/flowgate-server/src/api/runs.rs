//! `/v2/workflows/runs` and `/v2/workflows/events`: runs of workflows, one or many.

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
};
use flowgate_tasks::store::{RunQuery, RunState};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

use super::{
    asked::{Asked, bounded, listed},
    path::Path,
    reply::{Answer, Problem, done, ok},
    sent::Sent,
};
use crate::{
    message::{Destination, Given},
    office::{Desk, FULL, InRun, Planned, RunFilter, RunRefused, Sending},
    workflow::{Ask, RUN_ID, RunHead, Slice, is_own_name, run_id, slice, state_name},
};

const STATES: [RunState; 4] = [RunState::Live, RunState::Done, RunState::Failed, RunState::Cancelled];
const DEFAULT_COUNT: usize = 10;
const MOST: usize = 1000;
const PAGE: u32 = 200;
/// So many runs that a filter in the query means are cancelled by a call that does not say how many: what the clients promise
/// theirs. A URL in the body means all of its runs: so older clients ask, which say no bound, and ask once.
const CANCELLED: u64 = 100;
/// So many runs are looked at for one page; then the cursor goes on from there.
const LOOKED_AT: usize = 10_000;
/// So many bytes are on one page, and one run more; then the cursor goes on.
const LARGEST: usize = 4 * 1024 * 1024;
/// By what runs are cancelled: the filters, and how many.
pub(super) const CANCEL_BY: [&str; 13] = [
    "workflowRunIds",
    "workflowRunId",
    "workflowUrl",
    "workflowUrlExactMatch",
    "label",
    "flowControlKey",
    "callerIp",
    "host",
    "path",
    "fromDate",
    "toDate",
    "all",
    "count",
];
const FILTERS: &[&str] = CANCEL_BY.split_at(11).0;

impl From<RunRefused> for Problem {
    /// 400 says to a client that the run has ended, and nothing else does; 412 that no attempt can help.
    fn from(refused: RunRefused) -> Self {
        match refused {
            RunRefused::Fault(fault) => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, fault.to_string()),
            RunRefused::Over(id) => Problem::bad(format!("the run {id:?} has ended, or there is none")),
            RunRefused::Full(id) => Problem::new(StatusCode::PRECONDITION_FAILED, format!("{id:?}: {FULL}")),
            RunRefused::Store(error) => Problem::from(error).in_run(true),
        }
    }
}

/// Whether a request is about a run, whatever else it says.
pub(super) fn is_of_run(headers: &HeaderMap) -> bool {
    headers.contains_key(RUN_ID)
}

/// What a message asks for in a run, if it is of one.
pub(super) fn asked_for(given: &Given) -> Result<Option<Ask>, Problem> {
    Ask::read(given).map_err(|fault| Problem::from(RunRefused::Fault(fault)))
}

/// The change that it asks for. Nothing is stored yet.
pub(super) async fn planned(desk: &Desk, ask: Ask, sending: Sending) -> Result<Planned, Problem> {
    if sending.queue.is_some() {
        return Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "a run cannot go through a queue; send it without one",
        ));
    }
    if let Destination::Group(name) = &sending.destination {
        let text = format!("a run needs a URL, and {name:?} is a URL group");
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, text));
    }
    Ok(desk.plan(ask, sending).await?)
}

/// A message of a run, as it is told to its sender.
pub(super) fn sent(desk: &Desk, sent: &InRun) -> Value {
    let mut view = json!({ "messageId": desk.numbers.message(sent.task) });
    if let Some(created) = sent.created {
        view["workflowRunId"] = json!(sent.id);
        view["workflowCreatedAt"] = json!(created);
    }
    if sent.is_duplicate {
        view["deduplicated"] = json!(true);
    }
    view
}

/// The steps of a live run.
pub(super) async fn steps(State(desk): State<Desk>, Path(id): Path<String>) -> Answer {
    let missing = || Problem::missing("live run", &id);
    let run = match desk.live_run(&id).await {
        Ok((run, _)) => run,
        Err(RunRefused::Over(_)) => return Err(missing()),
        Err(refused) => return Err(refused.into()),
    };
    let (_, steps) = desk.store.run(run.name).await?.ok_or_else(missing)?;
    let body = slice(&steps, Slice::All, |task| desk.numbers.message(task));
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// Ends a run: with its result, or because it is cancelled.
pub(super) async fn end(
    State(desk): State<Desk>,
    Path(id): Path<String>,
    asked: Asked,
    Sent(result): Sent,
) -> Answer {
    asked.only(&["cancel"])?;
    match asked.one("cancel").unwrap_or("true") {
        "false" => match desk.finish_run(&id, &result).await? {
            true => done(),
            false => Err(RunRefused::Over(id).into()),
        },
        "true" => match desk.live_run(&id).await {
            Ok((run, _)) => {
                desk.cancel_run(&run.name).await?;
                done()
            }
            Err(RunRefused::Over(_)) => Err(Problem::missing("live run", &id)),
            Err(refused) => Err(refused.into()),
        },
        other => Err(Problem::bad(format!("cancel is {other:?}; send true or false"))),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Body {
    #[serde(default, deserialize_with = "listed")]
    workflow_run_ids: Option<Vec<String>>,
    #[serde(default)]
    workflow_url: Option<String>,
}

/// Cancels many runs, by id or by filter.
pub(super) async fn cancel_many(State(desk): State<Desk>, asked: Asked, sent: Sent) -> Answer {
    asked.only(&CANCEL_BY)?;
    asked.means_what_it_names()?;
    let mut filter = filter(&asked, false)?;
    let mut is_named = !filter.ids.is_empty();
    let form = r#"send {"workflowRunIds": ["wfr_…"]}, or nothing for all"#;
    if let Some(body) = sent.object_if_any::<Body>(form)? {
        if body.workflow_url.as_ref().is_some_and(|url| url.trim().is_empty()) {
            return Err(Problem::bad(format!("workflowUrl is empty; {form}")));
        }
        is_named |= body.workflow_run_ids.is_some();
        filter.ids.extend(bounded(body.workflow_run_ids.unwrap_or_default())?);
        if let Some(url) = body.workflow_url {
            filter.urls = vec![url];
        }
    }
    let mut cancelled = 0;
    if is_named {
        for id in &filter.ids {
            match desk.live_run(id).await {
                Ok((run, head)) if filter.matches(&run, &head) => {
                    cancelled += u64::from(desk.cancel_run(&run.name).await?);
                }
                Ok(_) | Err(RunRefused::Over(_)) => {}
                Err(refused) => return Err(refused.into()),
            }
        }
        return ok(json!({ "cancelled": cancelled }));
    }
    let is_filtered = FILTERS.iter().any(|name| !asked.each(name).is_empty());
    let most = asked.bound()?.unwrap_or(if is_filtered { CANCELLED } else { u64::MAX });
    let mut before = None;
    while cancelled < most {
        let query = RunQuery { before: before.clone(), is_live: true, id: None, most: PAGE };
        let page = desk.store.runs(query).await?;
        let Some(last) = page.last() else { break };
        before = Some(last.name.clone());
        for run in &page {
            if cancelled < most && filter.matches(run, &RunHead::from_bytes(&run.head)) {
                cancelled += u64::from(desk.cancel_run(&run.name).await?);
            }
        }
    }
    ok(json!({ "cancelled": cancelled }))
}

#[derive(Serialize)]
struct Runs {
    runs: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

/// Runs with their steps, newest first.
pub(super) async fn list(State(desk): State<Desk>, asked: Asked) -> Answer {
    let own = ["count", "cursor", "groupBy", "state", "workflowCreatedAt", "messageId", "order", "trimBody"];
    asked.only(&[&own[..], FILTERS].concat())?;
    asked.newest_first()?;
    let mut filter = filter(&asked, true)?;
    filter.created = asked.moment("workflowCreatedAt")?;
    filter.states = states(&asked.all("state"))?;
    let count = asked.count(DEFAULT_COUNT, MOST)?;
    let messages = asked.all("messageId");
    let id = (filter.ids.len() == 1).then(|| filter.ids[0].clone());
    let mut before = asked.one("cursor").map(cursor).transpose()?;
    if id.as_ref().is_some_and(|id| run_id(id).is_err()) {
        return ok(json!({ "runs": [] }));
    }
    let (mut runs, mut looked_at, mut is_end, mut size) = (Vec::new(), 0, false, 0);
    // Whoever has a full page looks on for one more that is meant: without one, it was the last.
    'pages: while !is_end && looked_at < LOOKED_AT {
        let query = RunQuery { before: before.clone(), id: id.clone(), is_live: false, most: PAGE };
        let page = desk.store.runs(query).await?;
        is_end = page.len() < PAGE as usize;
        looked_at += page.len();
        for run in page {
            let name = run.name.clone();
            let is_meant = filter.matches(&run, &RunHead::from_bytes(&run.head));
            let log = if is_meant { desk.run_log(&name, &messages).await? } else { None };
            if let Some(log) = log {
                if runs.len() == count || size >= LARGEST {
                    is_end = false;
                    break 'pages;
                }
                size += log.get().len();
                runs.push(log);
            }
            before = Some(name);
        }
    }
    ok(Runs { runs, cursor: before.filter(|_| !is_end) })
}

/// A cursor, if it can be one of ours.
fn cursor(text: &str) -> Result<String, Problem> {
    is_own_name(text).then(|| text.to_owned()).ok_or_else(|| {
        let text: String = text.chars().take(100).collect();
        Problem::bad(format!("cursor is {text:?}; send the one from the previous page"))
    })
}

/// Which runs are meant. What a URL is where nothing is said of it, the whole of it or its beginning, the clients know:
/// in the log it is the whole, and for those that are cancelled its beginning.
fn filter(asked: &Asked, is_exact_url: bool) -> Result<RunFilter, Problem> {
    let mut ids = asked.all("workflowRunIds");
    ids.extend(asked.all("workflowRunId"));
    Ok(RunFilter {
        ids,
        urls: asked.each("workflowUrl"),
        is_exact_url: asked.flag("workflowUrlExactMatch")?.unwrap_or(is_exact_url),
        labels: asked.all("label"),
        keys: asked.all("flowControlKey"),
        callers: asked.all("callerIp"),
        hosts: asked.all("host"),
        paths: asked.paths("path"),
        from: asked.moment("fromDate")?,
        to: asked.moment("toDate")?,
        ..RunFilter::default()
    })
}

fn states(names: &[String]) -> Result<Vec<RunState>, Problem> {
    let read = |name: &String| {
        let known = STATES.iter().find(|state| state_name(**state).eq_ignore_ascii_case(name));
        known.copied().ok_or_else(|| {
            let known: Vec<&str> = STATES.iter().map(|state| state_name(*state)).collect();
            Problem::bad(format!("state is {name:?}; send one of {}", known.join(", ")))
        })
    };
    names.iter().map(read).collect()
}

/// 201 and what was begun.
pub(super) fn begun(view: Value) -> Answer {
    Ok((StatusCode::CREATED, Json(view)).into_response())
}

/// Stores one.
pub(super) async fn store_one(desk: &Desk, planned: Planned) -> Result<InRun, Problem> {
    let stored = desk.commit(vec![planned]).await?.pop();
    stored.ok_or_else(|| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "nothing was stored"))
}
