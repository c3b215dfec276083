//! The work behind the gates.
//!
//! Owns the two guarded paths. The work is a nap; what matters is that nobody naps without a pass, and that the pass stays
//! with the response until its body has been sent.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    body::Body,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use flowgate::{Pass, Refusal, http::GatedBody};
use serde::Serialize;

use super::{
    answer::{Gauge, Problem, json},
    app::App,
    asked::{Span, TenantKey},
};

#[derive(Serialize)]
struct Done<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    waited_ms: u128,
    worked_ms: u128,
}

/// `GET /work`: in line first, then a nap.
///
/// Cancel safety: dropped, because the client is gone, it leaves the line or gives the slot back.
pub(super) async fn work(State(app): State<Arc<App>>, span: Span) -> Result<Response, Problem> {
    let asked = Instant::now();
    let entered = app.work.enter().await;
    nap(None, span, asked.elapsed(), entered, || Gauge::of(&app.work)).await
}

/// `GET /tenant/{key}`: the same in a lane of its own, and refused at once where it would wait.
///
/// Cancel safety: as [`work`].
pub(super) async fn tenant(
    State(app): State<Arc<App>>,
    TenantKey(key): TenantKey,
    span: Span,
) -> Result<Response, Problem> {
    let asked = Instant::now();
    let entered = app.tenants.enter_key(&key).await;
    nap(Some(&key), span, asked.elapsed(), entered, || Gauge::of_lane(&app.tenants, &key)).await
}

async fn nap(
    tenant: Option<&str>,
    Span(span): Span,
    waited: Duration,
    entered: Result<Pass, Refusal>,
    gauge: impl Fn() -> Option<Gauge>,
) -> Result<Response, Problem> {
    let pass = entered.map_err(|refusal| Problem::Refused(refusal, gauge()))?;
    tokio::time::sleep(span).await;
    let done = Done { tenant, waited_ms: waited.as_millis(), worked_ms: span.as_millis() };
    let mut response = json(StatusCode::OK, &done).map(|body| Body::new(GatedBody::new(body, Some(pass))));
    if let Some(gauge) = gauge() {
        gauge.write(&mut response);
    }
    Ok(response.into_response())
}
