//! `/v2/wait`, `/v2/notify`, `/v2/waiters` and webhooks: events, and the runs that wait for them.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::{
    extract::{FromRequest, Request, State},
    http::{HeaderMap, Method, Uri, Version, header::HOST, uri::Authority},
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
    delivery::ends_in_number,
    message::{bytes_as_letters, decode},
    office::{Desk, Notified, RunRefused},
    workflow::{Ask, WaitAsk, event_id},
};

/// What a client refuses to make a request of (the Fetch standard), in upper or lower case.
const NOT_FETCHED: [&str; 3] = ["CONNECT", "TRACE", "TRACK"];

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
    let given = given(&headers, Vec::new()).map_err(|problem| problem.in_run(true))?;
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
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let is_fetched = !NOT_FETCHED.iter().any(|refused| method.as_str().eq_ignore_ascii_case(refused));
    let Some(host) = host.filter(|host| is_fetched && is_host(host)) else {
        let text = "send a valid Host, a URL without a user, and any method except TRACE and TRACK";
        return Err(Problem::bad(text));
    };
    // Each that passes it on may add what it got; the first is what was called.
    let proto = headers.get("x-forwarded-proto").and_then(|proto| proto.to_str().ok()?.split(',').next());
    let is_secure = proto.is_some_and(|proto| proto.trim().eq_ignore_ascii_case("https"));
    let data = json!({
        "method": method.as_str(),
        "header": bytes_as_letters(&headers),
        "body": STANDARD.encode(&body),
        "proto": if is_secure { "https" } else { "http" },
        "host": host,
        "url": uri.path_and_query().map_or("/", |path| path.as_str()),
        "version": format!("{version:?}"),
    });
    let told = desk.notify(event(&name)?, Some(&run), &data.to_string().into()).await;
    match told {
        Err(RunRefused::Over(_)) => Err(missing()),
        told => told.map(drop).map_err(Problem::from).and_then(|()| done()),
    }
}

/// Whether a client can make a URL of it that it may ask: with no user, with a port that is one, and with a number at
/// its end only as an address.
fn is_host(text: &str) -> bool {
    let Ok(authority) = text.parse::<Authority>() else { return false };
    let host = authority.host();
    let is_port = |port: &str| {
        port.bytes().all(|digit| digit.is_ascii_digit()) && (port.is_empty() || port.parse::<u16>().is_ok())
    };
    // Behind a user there would be more than a port.
    let is_alone = text
        .strip_prefix(host)
        .is_some_and(|rest| rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port));
    let name = host.strip_suffix('.').unwrap_or(host);
    let is_known = match host.strip_prefix('[') {
        Some(address) => address.strip_suffix(']').is_some_and(|address| address.parse::<Ipv6Addr>().is_ok()),
        None => !ends_in_number(name) || name.parse::<Ipv4Addr>().is_ok(),
    };
    is_alone && is_known && !host.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f5_a_host_is_what_a_client_can_make_a_url_of() {
        // Seen to fail: with whatever `http` takes for an authority; of all but the last, Node's `new Request` throws.
        for host in [
            "me@a",
            "me:word@a",
            "a@a",
            "a:b",
            "a:+1",
            "a:99999",
            "256.1.1.1",
            "1.2.3.4.5",
            "1.2.3.09",
            "a.256",
            "[::zz]",
            "[::1",
            "[::1]x",
            "[v1.a]",
            "a[b",
            "a]",
            "a%00",
            ":80",
            "",
        ] {
            assert!(!is_host(host), "{host}");
        }
        for host in [
            "a",
            "a.example:8080",
            "A.example.",
            "a_b",
            "127.0.0.1",
            "127.0.0.1:0",
            "[::1]:65535",
            "[::ffff:1.2.3.4]",
            "xn--mnchen-3ya.example",
            "7.0x.example",
        ] {
            assert!(is_host(host), "{host}");
        }
    }
}
