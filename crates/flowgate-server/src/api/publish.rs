//! `POST /v2/publish/{destination}` and `POST /v2/enqueue/{queue}/{destination}`.

use std::net::SocketAddr;

use axum::{
    Json,
    body::Bytes,
    extract::{ConnectInfo, State},
    http::{HeaderMap, StatusCode, Uri},
    response::IntoResponse,
};
use serde::Serialize;
use serde_json::Value;

use super::{
    path::Path,
    reply::{Answer, Problem},
    runs,
    sent::Sent,
};
use crate::{
    message::{Destination, Given, Target, name},
    office::{Accepted, Desk, Sending},
};

pub(super) async fn publish(
    State(desk): State<Desk>,
    uri: Uri,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Sent(body): Sent,
) -> Answer {
    let target = target(&uri, "/v2/publish/").map_err(|problem| problem.in_run(runs::is_of_run(&headers)))?;
    send(&desk, target, None, &headers, body, peer).await
}

pub(super) async fn enqueue(
    State(desk): State<Desk>,
    uri: Uri,
    Path((queue, _)): Path<(String, String)>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Sent(body): Sent,
) -> Answer {
    let queue = name("the queue", &queue)?.to_owned();
    let target = target(&uri, &format!("/v2/enqueue/{queue}/"))?;
    send(&desk, target, Some(queue), &headers, body, peer).await
}

/// What follows the prefix in the request's target, as it came.
pub(super) fn target(uri: &Uri, prefix: &str) -> Result<Target, Problem> {
    let raw = uri.path_and_query().map_or("", |raw| raw.as_str());
    let raw =
        raw.strip_prefix(prefix).ok_or_else(|| Problem::bad("the destination follows the path as it is"))?;
    Ok(Target::read(raw)?)
}

/// The request's headers, over the settings in the destination's query.
pub(super) fn given(headers: &HeaderMap, settings: Vec<(String, String)>) -> Result<Given, Problem> {
    let (mut given, mut others) = (Given::default(), Vec::new());
    for (name, value) in headers {
        match std::str::from_utf8(value.as_bytes()) {
            Ok(text) => given.add(name.as_str(), text),
            Err(_) => others.push(name.as_str()),
        }
    }
    let given = given.over(&settings.into_iter().collect());
    // What is no text is nobody's concern, unless it is to go along.
    match others.into_iter().find(|name| given.takes(name)) {
        Some(name) => Err(Problem::bad(format!("the header {name} is not text; send UTF-8"))),
        None => Ok(given),
    }
}

async fn send(
    desk: &Desk,
    target: Target,
    queue: Option<String>,
    headers: &HeaderMap,
    body: Bytes,
    peer: SocketAddr,
) -> Answer {
    let is_of_run = runs::is_of_run(headers);
    let given = given(headers, target.settings).map_err(|problem| problem.in_run(is_of_run))?;
    let caller = Some(peer.ip().to_canonical().to_string());
    let is_group = matches!(target.destination, Destination::Group(_));
    if let Some(ask) = runs::asked_for(&given)? {
        let sending = Sending { destination: target.destination, given, body, queue, schedule: None, caller };
        let stored = runs::store_one(desk, runs::planned(desk, ask, sending).await?).await?;
        let status = if stored.is_duplicate { StatusCode::ACCEPTED } else { StatusCode::CREATED };
        return Ok((status, Json(runs::sent(desk, &stored))).into_response());
    }
    let sending = Sending { destination: target.destination, given, body, queue, schedule: None, caller };
    let mut messages = desk.read(sending).await?;
    let accepted = match (is_group, messages.pop()) {
        (false, Some(message)) => vec![desk.accept(message).await?],
        (_, last) => {
            messages.extend(last);
            desk.accept_all(messages).await?
        }
    };
    let is_duplicate = !is_group && accepted.iter().all(|accepted| accepted.is_duplicate);
    let status = if is_duplicate { StatusCode::ACCEPTED } else { StatusCode::CREATED };
    let mut views: Vec<View> =
        accepted.into_iter().map(|accepted| View::of(desk, accepted, is_group)).collect();
    let view = match views.pop() {
        Some(one) if !is_group => Told::One(one),
        last => Told::Many(views.into_iter().chain(last).collect()),
    };
    Ok((status, Json(view)).into_response())
}

/// A message that was taken in, as it is told to its sender.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct View {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    deduplicated: bool,
    message_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

/// What an entry of a request became, as it is told.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Told {
    One(View),
    /// Those of a URL group.
    Many(Vec<View>),
    /// A message of a run.
    Run(Value),
}

impl View {
    pub(super) fn of(desk: &Desk, accepted: Accepted, with_url: bool) -> Self {
        let Accepted { id, url, is_duplicate } = accepted;
        let url = with_url.then_some(url);
        View { deduplicated: is_duplicate, message_id: desk.numbers.message(id), url }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn f7_a_header_that_is_no_text_is_refused_only_where_it_would_go_along() {
        // Seen to fail: with every header read as text, one that a proxy had added kept its sender from publishing.
        let strange = HeaderValue::from_bytes(b"S\xe3o Paulo").expect("a value");
        let mut headers = HeaderMap::new();
        headers.insert("x-city", strange.clone());
        headers.insert("upstash-label", HeaderValue::from_static("one"));
        assert_eq!(
            given(&headers, Vec::new())
                .ok()
                .and_then(|given| given.last("upstash-label").map(str::to_owned))
                .as_deref(),
            Some("one")
        );
        headers.insert("upstash-header-forward", HeaderValue::from_static("true"));
        assert!(given(&headers, Vec::new()).is_err(), "all of them go along");
        for name in ["upstash-label", "content-type", "upstash-forward-x"] {
            let headers: HeaderMap = [(name.parse().expect("a name"), strange.clone())].into_iter().collect();
            assert!(given(&headers, Vec::new()).is_err(), "{name}");
        }
    }
}
