//! `/v2/wait`, `/v2/notify`, `/v2/waiters` and webhooks: events, and the runs that wait for them.

use axum::{
    extract::{FromRequest, Request, State},
    http::{HeaderMap, Method, Uri, Version, header::HOST},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    path::Path,
    publish::given,
    reply::{Answer, Problem, done, ok},
    sent::Sent,
};
use crate::{
    clock,
    message::{decode, header_map},
    office::{Desk, Notified, RunRefused},
    workflow::{Ask, WaitAsk, event_id},
};

/// What follows the prefix in the path, decoded.
fn behind(uri: &Uri, prefix: &str) -> String {
    let rest = uri.path().strip_prefix(prefix).unwrap_or_default();
    decode(rest).unwrap_or_else(|| rest.to_owned())
}

fn event(text: &str) -> Result<&str, Problem> {
    event_id(text).map_err(|fault| RunRefused::Fault(fault).into())
}

pub(super) async fn wait(State(desk): State<Desk>, uri: Uri, headers: HeaderMap, Sent(body): Sent) -> Answer {
    let name = behind(&uri, "/v2/wait/");
    let given = given(&headers, Vec::new())?;
    let ask = Ask::read(&given).map_err(RunRefused::Fault)?;
    let missing = || {
        RunRefused::Fault(crate::message::Fault::text("send the run that waits in Upstash-Workflow-RunId"))
    };
    let ask = ask.ok_or_else(missing)?;
    let wait = WaitAsk::read(&name, &body, clock::now()).map_err(RunRefused::Fault)?;
    desk.wait_for_event(&ask.id, wait).await?;
    done()
}

pub(super) async fn notify(State(desk): State<Desk>, uri: Uri, Sent(body): Sent) -> Answer {
    let name = behind(&uri, "/v2/notify/");
    // A run's id has no slash; an event's may.
    let told = match name.split_once('/') {
        Some((run, rest)) if run.starts_with("wfr_") => {
            match desk.notify(event(rest)?, Some(run), &body).await {
                Err(RunRefused::Over(id)) => return Err(Problem::missing("live run", &id)),
                told => told?,
            }
        }
        _ => desk.notify(event(&name)?, None, &body).await?,
    };
    ok(told.iter().map(|notified| view(&desk, notified)).collect::<Vec<Value>>())
}

fn view(desk: &Desk, notified: &Notified) -> Value {
    let mut view = json!({
        "waiter": notified.waiter,
        "messageId": notified.task.map(|task| desk.numbers.message(task)).unwrap_or_default(),
        "error": notified.error.as_deref().unwrap_or_default(),
        "workflowRunId": notified.id,
        "workflowCreatedAt": notified.created,
    });
    if notified.is_duplicate {
        view["deduplicated"] = json!(true);
    }
    view
}

pub(super) async fn waiters(State(desk): State<Desk>, uri: Uri) -> Answer {
    let name = behind(&uri, "/v2/waiters/");
    ok(desk.waiters(event(&name)?).await?)
}

/// Whoever knows the URL may call it: it has the run's id in it, which nobody guesses.
pub(super) async fn hook(
    State(desk): State<Desk>,
    Path((_, run, name)): Path<(String, String, String)>,
    method: Method,
    uri: Uri,
    version: Version,
    headers: HeaderMap,
    request: Request,
) -> Answer {
    let missing = || Problem::missing("live run", &run);
    // Whoever calls needs no token: so nothing of a body is read that is for nobody.
    match desk.live_run(&run).await {
        Err(RunRefused::Over(_)) => return Err(missing()),
        found => drop(found.map_err(Problem::from)?),
    }
    let Sent(body) = Sent::from_request(request, &()).await?;
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let said = |name: &str| headers.get(name).map(text);
    let secure = said("x-forwarded-proto").unwrap_or_else(|| "http".to_owned());
    let data = json!({
        "method": method.as_str(),
        "header": header_map(headers.iter().map(|(name, value)| (name.as_str(), text(value)))),
        "body": STANDARD.encode(&body),
        "proto": secure,
        "host": said(HOST.as_str()).unwrap_or_default(),
        "url": uri.path_and_query().map_or("/", |path| path.as_str()),
        "version": format!("{version:?}"),
    });
    let told = desk.notify(event(&name)?, Some(&run), &data.to_string().into()).await;
    match told {
        Err(RunRefused::Over(_)) => Err(missing()),
        told => told.map(drop).map_err(Problem::from).and_then(|()| done()),
    }
}
