//! `POST /v2/trigger/{url}` and `POST /v2/batch/trigger`: runs begun with nothing but HTTP.

use std::net::SocketAddr;

use axum::{
    extract::{ConnectInfo, State},
    http::{HeaderMap, StatusCode, Uri},
};
use serde_json::{Value, json};

use super::{
    batch::{self, One},
    publish::{given, target},
    reply::{Answer, Problem, ok},
    runs::{self, begun},
    sent::Sent,
};
use crate::{
    delivery::{BY_REST, UNKNOWN_SDK},
    message::Destination,
    office::{Desk, InRun, Planned, RunRefused, Sending, random_text},
    workflow::{Ask, Kind, run_id},
};

const FEATURES: [&str; 4] = ["LazyFetch", "InitialBody", "WF_DetectTrigger", "WF_TriggerOnConfig"];

pub(super) async fn trigger(
    State(desk): State<Desk>,
    uri: Uri,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Sent(body): Sent,
) -> Answer {
    let target = target(&uri, "/v2/trigger/")?;
    let given = given(&headers, target.settings)?;
    let caller = Some(peer.ip().to_canonical().to_string());
    let sending =
        Sending { destination: target.destination, given, body, queue: None, schedule: None, caller };
    let planned = plan(&desk, sending).await?;
    let stored = runs::store_one(&desk, planned).await?;
    begun(view(&stored))
}

pub(super) async fn trigger_many(
    State(desk): State<Desk>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Sent(body): Sent,
) -> Answer {
    let caller = peer.ip().to_canonical().to_string();
    let (mut planned, mut known) = (Vec::new(), None);
    for (index, one) in batch::read(&body)?.into_iter().enumerate() {
        let sending = One::sending(one, &caller, &mut known).map_err(|problem| problem.at(index))?;
        let next = plan(&desk, sending).await;
        planned.push(next.map_err(|problem| problem.at(index))?);
    }
    let stored = desk.commit(planned).await?;
    ok(stored.iter().map(view).collect::<Vec<Value>>())
}

/// The same settings that a client sends for itself.
async fn plan(desk: &Desk, mut sending: Sending) -> Result<Planned, Problem> {
    let given = &mut sending.given;
    let Destination::Url(url) = &sending.destination else {
        return Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "send the URL of a workflow behind /v2/trigger/",
        ));
    };
    let id = match given.last("upstash-workflow-runid") {
        Some(id) if id.starts_with("wfr_") => id.to_owned(),
        Some(id) => format!("wfr_{id}"),
        None => format!("wfr_{}", random_text(21)),
    };
    let id = run_id(&id).map_err(RunRefused::Fault)?;
    let url = url.clone();
    let forwarded: Vec<(String, String)> = given
        .pairs()
        .filter_map(|(name, value)| Some((name.strip_prefix("upstash-forward-")?.to_owned(), value)))
        .collect();
    // An endpoint that may be of any version is asked first.
    let is_known =
        given.last("upstash-workflow-unknown-sdk").is_none_or(|value| !value.eq_ignore_ascii_case("true"));
    let (mark, told) = match is_known {
        true => (BY_REST, ("sdk-version", "1")),
        false => (UNKNOWN_SDK, ("unknown-sdk", "true")),
    };
    given.add(&format!("upstash-forward-upstash-workflow-{}", told.0), told.1);
    if given.last("upstash-failure-callback").is_none() {
        given.add("upstash-failure-callback", url.as_str());
        given.add("upstash-failure-callback-forward-upstash-workflow-is-failure", "true");
        given.add("upstash-failure-callback-forward-upstash-workflow-failure-callback", "true");
        for (name, value) in forwarded {
            given.add(&format!("upstash-failure-callback-forward-{name}"), value);
        }
        for name in ["retries", "retry-delay", "flow-control-key", "flow-control-value"] {
            if let Some(value) = given.last(&format!("upstash-{name}")).map(str::to_owned) {
                given.add(&format!("upstash-failure-callback-{name}"), value);
            }
        }
    }
    if let Some(label) = given.last("upstash-label").map(str::to_owned) {
        given.add("upstash-forward-upstash-label", label);
    }
    let features = FEATURES.iter().chain(&[mark]).map(|&name| name.to_owned()).collect();
    let ask = Ask { id, kind: Kind::Start, features };
    runs::planned(desk, ask, sending).await
}

fn view(stored: &InRun) -> Value {
    let mut view = json!({ "workflowRunId": stored.id, "workflowCreatedAt": stored.created });
    if stored.is_duplicate {
        view["deduplicated"] = json!(true);
    }
    view
}
