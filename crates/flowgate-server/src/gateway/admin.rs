//! What the program's own server says of its gateway, and does to it.
//!
//! Owns two paths: the figures, for whoever has a token or for everybody, and the reload, which is for whoever may send a header that no
//! foreign page can send.

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    middleware,
    response::IntoResponse,
    routing::{get, post},
};
use serde_json::json;

use super::reload::{Reloader, said};
use crate::{api, office::Desk};

/// As the demo's page has it: a page from elsewhere cannot send it without being asked first, and is not.
const CONSOLE: (&str, &str) = ("x-flowgate", "console");

/// Where a reload is asked for.
pub(crate) const RELOAD: &str = "/gateway/reload";

/// `GET /gateway` and `POST /gateway/reload`. The figures are for whoever has a token of this desk; `None`: for everybody.
pub(crate) fn routes(reloader: Reloader, desk: Option<Desk>) -> Router {
    let mut paths = Router::new().route("/gateway", get(figures));
    if let Some(desk) = desk {
        paths = paths.layer(middleware::from_fn_with_state(desk, api::with_token));
    }
    paths.route(RELOAD, post(reload)).with_state(reloader)
}

async fn figures(State(reloader): State<Reloader>) -> impl IntoResponse {
    Json(reloader.gateway().figures().await)
}

async fn reload(State(reloader): State<Reloader>, headers: HeaderMap) -> impl IntoResponse {
    let (name, value) = CONSOLE;
    if headers.get(name).is_none_or(|given| given != value) {
        let said = format!("send the header {name}: {value}");
        return (StatusCode::FORBIDDEN, Json(json!({ "reloaded": false, "said": said })));
    }
    let outcome = reloader.reload().await;
    let status = if outcome.is_ok() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    (status, Json(json!({ "reloaded": outcome.is_ok(), "said": said(&outcome) })))
}
