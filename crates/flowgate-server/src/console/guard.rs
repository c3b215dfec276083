//! Who may use the console: whoever is logged in, and for a change only from the console's own page.
//!
//! Owns the cookie, the log-in and the two checks of a change: it comes from this origin, and it knows the
//! session's token.

use std::net::{IpAddr, SocketAddr};

use axum::{
    Json,
    extract::{ConnectInfo, Request, State},
    http::{
        HeaderMap, Method, StatusCode, Uri,
        header::{COOKIE, HOST, ORIGIN, RETRY_AFTER, SET_COOKIE},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use flowgate::Pass;
use serde::Deserialize;
use serde_json::json;

use super::{
    router::Console,
    session::{Opened, Session},
};
use crate::api::{Answer, Problem, Sent, ok};

const NAME: &str = "flowgate_console";
const CSRF: &str = "x-flowgate-csrf";
/// A token is a few dozen letters.
const MOST_OF_A_TOKEN: usize = 4096;
/// More of a log-in is not read: a token, and the JSON around it.
const MOST_OF_A_LOG_IN: usize = 8 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogIn {
    #[serde(default)]
    token: String,
}

/// Whose request it is, for what outlasts it.
#[derive(Clone)]
pub(super) struct SessionId(pub(super) String);

/// Lets a request through that belongs to a session, if it is a change only from the console's own page.
pub(super) async fn check(State(console): State<Console>, request: Request, next: Next) -> Response {
    let found = found(&console, request.headers()).await;
    checked(found, request, next).await
}

/// The same for what does not wait in the API's line.
pub(super) async fn check_at_the_door(
    State(console): State<Console>,
    request: Request,
    next: Next,
) -> Response {
    let found = found_at_the_door(&console, request.headers()).await;
    checked(found, request, next).await
}

async fn checked(found: Result<(String, Session), Problem>, mut request: Request, next: Next) -> Response {
    let (id, session) = match found {
        Ok(found) => found,
        Err(problem) => return problem.into_response(),
    };
    request.extensions_mut().insert(SessionId(id));
    if !matches!(*request.method(), Method::GET | Method::HEAD)
        && let Err(problem) = is_own_change(request.headers(), &session)
    {
        return problem.into_response();
    }
    next.run(request).await
}

/// `GET /console/session`: who is logged in, and what its page has to know.
pub(super) async fn read(State(console): State<Console>, headers: HeaderMap) -> Response {
    match found_at_the_door(&console, &headers).await {
        Ok((_, session)) => Json(view(&console, &session)).into_response(),
        Err(problem) if problem.status() != StatusCode::UNAUTHORIZED => problem.into_response(),
        Err(_) => {
            let text = "nobody is logged in here";
            let is_open = console.sessions.is_dev() && is_loopback(&headers);
            (StatusCode::UNAUTHORIZED, Json(json!({ "error": text, "isOpen": is_open }))).into_response()
        }
    }
}

/// `POST /console/session`: a token becomes a session. Its body is read when it may try at all, and before it takes a place at
/// the door: a slow one keeps nobody else out.
pub(super) async fn open(
    State(console): State<Console>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Answer {
    let headers = request.headers().clone();
    is_same_origin(&headers)?;
    if let Err(refusal) = console.log_ins.check_key(&peer.ip().to_canonical().to_string()) {
        let wait = refusal.retry_after.map_or(1, |wait| wait.as_secs() + 1);
        let text = format!("too many tries from this address; try again in {wait} s");
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, text).into_response();
        return Ok(([(RETRY_AFTER, wait.to_string())], problem).into_response());
    }
    let Sent(body) = Sent::within(request, MOST_OF_A_LOG_IN).await?;
    let _pass = at_the_door(&console).await?;
    let form = r#"send {"token": "…"}"#;
    // What was sent is not told: it may be a token.
    let asked: LogIn = serde_json::from_slice(&body)
        .map_err(|_| Problem::bad(format!("the body cannot be read; {form}")))?;
    let token = asked.token.trim();
    let opened = match token {
        "" if console.sessions.is_dev() && is_loopback(&headers) => console.sessions.open_dev().await?,
        "" => return Err(Problem::bad(format!("the token is missing; {form}"))),
        token if token.len() > MOST_OF_A_TOKEN => None,
        token => console.sessions.open(token).await?,
    };
    let Some(Opened { id, session }) = opened else {
        if token.len() <= MOST_OF_A_TOKEN && console.sessions.is_of_namespace(token) {
            let text = "this token is for a namespace, and the console shows the whole server; \
                flowgate token create, without --namespace, makes one for it";
            return Err(Problem::new(StatusCode::FORBIDDEN, text));
        }
        let text = "this server does not know this token; the command flowgate token create makes one";
        return Err(Problem::new(StatusCode::UNAUTHORIZED, text));
    };
    // Over TLS, by whatever stands before this server, the cookie stays with TLS.
    let is_tls = headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https:"));
    let cookie = cookie(&id, session.until.saturating_sub(crate::clock::now()) / 1000, is_tls);
    Ok(([(SET_COOKIE, cookie)], Json(view(&console, &session))).into_response())
}

/// `DELETE /console/session`: the log-out.
pub(super) async fn close(State(console): State<Console>, headers: HeaderMap) -> Answer {
    let (id, session) = found_at_the_door(&console, &headers).await?;
    is_own_change(&headers, &session)?;
    console.sessions.close(&id).await?;
    Ok(([(SET_COOKIE, cookie("", 0, false))], ok(json!({}))?).into_response())
}

fn view(console: &Console, session: &Session) -> serde_json::Value {
    json!({
        "csrf": session.csrf,
        "until": session.until,
        "isDev": console.sessions.is_dev(),
        "version": env!("CARGO_PKG_VERSION"),
        "store": &*console.store_name,
    })
}

fn cookie(id: &str, seconds: u64, is_tls: bool) -> String {
    let secure = if is_tls { "; Secure" } else { "" };
    format!("{NAME}={id}; Path=/console; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

async fn found(console: &Console, headers: &HeaderMap) -> Result<(String, Session), Problem> {
    let missing = || Problem::new(StatusCode::UNAUTHORIZED, "nobody is logged in here, or no longer");
    let id = id(headers).ok_or_else(missing)?;
    let session = console.sessions.find(&id).await?.ok_or_else(missing)?;
    Ok((id, session))
}

async fn found_at_the_door(console: &Console, headers: &HeaderMap) -> Result<(String, Session), Problem> {
    // Whoever names no session asks nothing of the store, and need not wait for it.
    let _pass = match id(headers) {
        Some(_) => Some(at_the_door(console).await?),
        None => None,
    };
    found(console, headers).await
}

/// A place among those who ask the store and have shown nothing yet.
async fn at_the_door(console: &Console) -> Result<Pass, Problem> {
    console.door.enter().await.map_err(|refusal| {
        let text = format!("too many ask for the console at once: {refusal}");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, text)
    })
}

fn id(headers: &HeaderMap) -> Option<String> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == NAME).map(|(_, id)| id.to_owned())
}

fn is_own_change(headers: &HeaderMap, session: &Session) -> Result<(), Problem> {
    is_same_origin(headers)?;
    let csrf = headers.get(CSRF).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match session.is_from_its_page(csrf) {
        true => Ok(()),
        false => Err(foreign(&format!("send the header {CSRF} with what GET /console/session says"))),
    }
}

/// Whether a browser sent it from a page of this server. A browser says where a change comes from, and no page can keep
/// it from that.
fn is_same_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text("sec-fetch-site") {
        return match site {
            "same-origin" => Ok(()),
            _ => Err(foreign("it comes from another page")),
        };
    }
    let origin = text(ORIGIN.as_str()).and_then(|origin| origin.split_once("://"));
    match (origin, text(HOST.as_str())) {
        (Some((_, origin)), Some(host)) if origin.eq_ignore_ascii_case(host) => Ok(()),
        _ => Err(foreign("it does not come from a page of this server")),
    }
}

fn foreign(why: &str) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, format!("only the console's own page may do this: {why}"))
}

/// Whether this machine is asked by one of its own names: a foreign page that was led here has another.
fn is_loopback(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let uri: Option<Uri> = host.and_then(|host| host.parse().ok());
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn s3_a_change_comes_from_this_origin_or_is_refused() {
        // Seen to fail: with a request that says nothing of where it comes from let through.
        let host = ("host", "flow.example:8080");
        for (given, is_own) in [
            (vec![host], false),
            (vec![host, ("origin", "http://flow.example:8080")], true),
            (vec![host, ("origin", "https://FLOW.example:8080")], true),
            (vec![host, ("origin", "http://flow.example")], false),
            (vec![host, ("origin", "http://evil.example:8080")], false),
            (vec![host, ("origin", "null")], false),
            (vec![host, ("sec-fetch-site", "same-origin")], true),
            (vec![host, ("sec-fetch-site", "same-site"), ("origin", "http://flow.example:8080")], false),
            (vec![host, ("sec-fetch-site", "cross-site")], false),
            (vec![host, ("sec-fetch-site", "none")], false),
        ] {
            assert_eq!(is_same_origin(&headers(&given)).is_ok(), is_own, "{given:?}");
        }
    }

    #[test]
    fn s3_only_this_machines_own_names_are_loopback() {
        // Seen to fail: with a name that merely begins with `localhost`.
        for (host, is_own) in [
            ("localhost:8080", true),
            ("LOCALHOST", true),
            ("127.0.0.1:8080", true),
            ("127.9.9.9", true),
            ("[::1]:8080", true),
            ("localhost.evil.example:8080", false),
            ("evil.example", false),
            ("10.0.0.1:8080", false),
            ("", false),
        ] {
            assert_eq!(is_loopback(&headers(&[("host", host)])), is_own, "{host}");
        }
    }

    #[test]
    fn s3_the_cookie_is_for_no_script_and_no_other_site() {
        // Seen to fail: without `HttpOnly`.
        let text = cookie("abc", 60, true);
        assert_eq!(
            text,
            "flowgate_console=abc; Path=/console; Max-Age=60; HttpOnly; SameSite=Strict; Secure"
        );
        let given = headers(&[("cookie", "a=b; flowgate_console=xyz; c=d")]);
        assert_eq!(id(&given).as_deref(), Some("xyz"));
        assert_eq!(id(&headers(&[("cookie", "not_flowgate_console=xyz")])), None);
    }
}
