//! What a request may say.
//!
//! Owns the inputs as checked types: a handler that has one needs to ask no more, and what is not accepted is answered
//! before anything is touched.

use std::time::Duration;

use axum::{
    extract::{FromRequestParts, Path, Query},
    http::request::Parts,
};
use serde::Deserialize;

use super::answer::Problem;

const MOST_MILLIS: u32 = 10_000;
const DEFAULT_MILLIS: u32 = 100;
const MOST_KEY_BYTES: usize = 256;
const MOST_REQUESTS: u32 = 100;

/// How long the work takes: `?ms=`, 0 to 10,000, 100 if nothing is said.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span(pub(super) Duration);

/// The key of a tenant: the last part of the path, up to 256 bytes.
#[derive(Clone, Debug)]
pub(super) struct TenantKey(pub(super) String);

/// A load to make: `?requests=` and `ms=`, to `/work` or to a `tenant=`.
#[derive(Clone, Debug)]
pub(super) struct Burst {
    pub(super) requests: u32,
    pub(super) span: Span,
    pub(super) tenant: Option<TenantKey>,
}

/// Proof that a request which changes something comes from the demo's own page, or from someone who is no browser and
/// knows what they do: another web page can neither claim the first nor send the header of the second.
#[derive(Clone, Copy, Debug)]
pub(super) struct FromPage;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpanWords {
    ms: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BurstWords {
    requests: String,
    ms: Option<String>,
    tenant: Option<String>,
}

impl Span {
    fn parse(text: Option<&str>) -> Result<Self, Problem> {
        let millis = text.map_or(Ok(DEFAULT_MILLIS), |text| whole("ms", text, 0, MOST_MILLIS))?;
        Ok(Span(Duration::from_millis(millis.into())))
    }
}

impl TenantKey {
    fn parse(text: String) -> Result<Self, Problem> {
        if text.len() > MOST_KEY_BYTES {
            let value = format!("{} bytes long", text.len());
            return Err(Problem::input("key", value, format!("text of at most {MOST_KEY_BYTES} bytes")));
        }
        Ok(TenantKey(text))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Span {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::<SpanWords>::from_request_parts(parts, state).await;
        let Query(words) = query.map_err(|_| unread(parts, "`ms`, once, or nothing"))?;
        Span::parse(words.ms.as_deref())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Burst {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::<BurstWords>::from_request_parts(parts, state).await;
        let accepted = "`requests`, and `ms` and `tenant` if wanted, each once";
        let Query(words) = query.map_err(|_| unread(parts, accepted))?;
        Ok(Burst {
            requests: whole("requests", &words.requests, 1, MOST_REQUESTS)?,
            span: Span::parse(words.ms.as_deref())?,
            tenant: words.tenant.map(TenantKey::parse).transpose()?,
        })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for TenantKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path(text) = Path::<String>::from_request_parts(parts, state).await.map_err(|_| {
            Problem::input("key", shown(parts.uri.path()), "text in UTF-8, percent-encoded where needed")
        })?;
        TenantKey::parse(text)
    }
}

impl<S: Sync> FromRequestParts<S> for FromPage {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        let says = |name: &str, wanted: &str| parts.headers.get(name).map(|value| value == wanted);
        let is_ours =
            says("sec-fetch-site", "same-origin").or_else(|| says("x-flowgate", "console")).unwrap_or(false);
        if is_ours { Ok(FromPage) } else { Err(Problem::Foreign) }
    }
}

/// A whole number within bounds, or the problem that says so.
pub(super) fn whole(field: &'static str, text: &str, least: u32, most: u32) -> Result<u32, Problem> {
    text.parse()
        .ok()
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| Problem::input(field, shown(text), format!("a whole number from {least} to {most}")))
}

fn unread(parts: &Parts, accepted: &str) -> Problem {
    Problem::input("query", shown(parts.uri.query().unwrap_or_default()), accepted)
}

/// A value as it is told back: quoted, and short whatever was sent.
fn shown(text: &str) -> String {
    const LONG: usize = 64;
    match text.char_indices().nth(LONG) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}
