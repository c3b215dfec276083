//! Who may read what: `/metrics` with a token, unless it was opened; `/health` and `/ready` without.

use axum::{
    Router,
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{any, get},
};
use tokio::sync::watch;

use super::{figures::Watch, page::page};
use crate::{api, gateway::Handle, office::Desk};

/// What is watched.
#[derive(Clone)]
pub(crate) struct Watched {
    pub(crate) desk: Desk,
    pub(crate) gateway: Option<Handle>,
    /// Whether the server stops.
    pub(crate) closing: watch::Receiver<bool>,
    /// Whether `/metrics` is for everybody.
    pub(crate) is_open: bool,
}

#[derive(Clone)]
struct Shown {
    watched: Watched,
    store: Watch,
}

/// `/metrics`, `/health` and `/ready`; and `api`, whose answers are counted.
pub(crate) fn routes(watched: Watched, api: Router) -> Router {
    let (desk, is_open) = (watched.desk.clone(), watched.is_open);
    let shown = Shown { store: Watch::new(&desk), watched };
    let mut metrics = Router::new().route("/metrics", get(metrics));
    if !is_open {
        metrics = metrics.layer(middleware::from_fn_with_state(desk.clone(), api::with_token));
    }
    let api = api.layer(middleware::from_fn_with_state(desk, count));
    metrics.route("/health", any(async || "well\n")).route("/ready", any(ready)).with_state(shown).merge(api)
}

async fn count(State(desk): State<Desk>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    desk.meter.answered(response.status());
    response
}

async fn metrics(State(shown): State<Shown>) -> impl IntoResponse {
    let gateway = match &shown.watched.gateway {
        Some(gateway) => Some(gateway.look().await),
        None => None,
    };
    let figures = shown.store.figures().await;
    let text = page(&shown.watched.desk.meter, gateway.as_ref(), figures.as_deref());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

async fn ready(State(shown): State<Shown>) -> (StatusCode, String) {
    if *shown.watched.closing.borrow() {
        return (StatusCode::SERVICE_UNAVAILABLE, "not ready: the server stops\n".to_owned());
    }
    match shown.store.ready().await {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")),
    }
}
