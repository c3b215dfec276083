//! The page and its parts, in the binary.
//!
//! Owns their headers: nothing from elsewhere is loaded, nothing inline runs, nobody frames it.

use std::sync::LazyLock;

use axum::{
    extract::Path,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{api::Problem, office::kept_as};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
const PAGE: &str = include_str!("assets/index.html");
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A file, with its type.
type File = (&'static str, &'static str, &'static str);

macro_rules! files {
    ($($kind:expr => [$($name:literal),* $(,)?]),* $(,)?) => {
        [$($(($name, $kind, include_str!(concat!("assets/", $name)))),*),*]
    };
}

const FILES: &[File] = &files! {
    "text/css; charset=utf-8" => ["style.css"],
    "image/svg+xml" => ["icon.svg"],
    SCRIPT => [
        "address.js",
        "app.js",
        "charts.js",
        "dialogs.js",
        "dom.js",
        "explain.js",
        "format.js",
        "icons.js",
        "keyboard.js",
        "list.js",
        "live.js",
        "notes.js",
        "server.js",
        "theme.js",
        "page-gateway.js",
        "page-keys.js",
        "page-key.js",
        "page-letters.js",
        "page-login.js",
        "page-messages.js",
        "page-queues.js",
        "page-runs.js",
        "page-schedules.js",
    ],
};

/// The same for as long as the program is the same.
static MARKS: LazyLock<Vec<String>> = LazyLock::new(|| FILES.iter().map(|(_, _, text)| mark(text)).collect());
static PAGE_MARK: LazyLock<String> = LazyLock::new(|| mark(PAGE));

fn mark(text: &str) -> String {
    format!("\"{}\"", &kept_as(text)[..20])
}

/// The page: whatever follows `/console` is told apart by its script.
pub(super) async fn page(headers: HeaderMap) -> Response {
    file(&headers, "text/html; charset=utf-8", PAGE, &PAGE_MARK)
}

pub(super) async fn asset(headers: HeaderMap, Path(name): Path<String>) -> Response {
    let found = FILES.iter().zip(&*MARKS).find(|((known, _, _), _)| *known == name);
    match found {
        Some(((_, kind, text), mark)) => file(&headers, kind, text, mark),
        None => Problem::missing("file of the console", &name).into_response(),
    }
}

fn file(asked: &HeaderMap, kind: &'static str, text: &'static str, mark: &'static str) -> Response {
    let told = [(header::ETAG, mark), (header::CACHE_CONTROL, "no-cache"), (header::CONTENT_TYPE, kind)];
    if asked.get(header::IF_NONE_MATCH).is_some_and(|known| known == mark) {
        return (StatusCode::NOT_MODIFIED, told).into_response();
    }
    (told, text).into_response()
}

/// What every answer of the console says to a browser.
pub(super) async fn headers(request: axum::extract::Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    for name in ["cross-origin-opener-policy", "cross-origin-resource-policy"] {
        headers.insert(name, HeaderValue::from_static("same-origin"));
    }
    // What is told is true for this moment, and for whoever is logged in.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
