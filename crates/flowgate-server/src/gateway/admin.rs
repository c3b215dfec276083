//! What the program's own server says of its gateway, and does to it.
//!
//! Owns two paths: the figures, with a token or open to everybody, and the reload, which always needs a
//! token.

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    middleware,
    response::IntoResponse,
    routing::{get, post},
};
use serde_json::json;

use super::reload::{Reloader, said};
use crate::{api, office::Desk};

/// Where a reload is asked for.
pub(crate) const RELOAD: &str = "/gateway/reload";

/// `GET /gateway` and `POST /gateway/reload`, for whoever has a token of this desk; the figures, if they are open, for everybody.
pub(crate) fn routes(reloader: Reloader, desk: Desk, is_open: bool) -> Router {
    let token = middleware::from_fn_with_state(desk, api::with_token);
    let mut shown = Router::new().route("/gateway", get(figures));
    if !is_open {
        shown = shown.layer(token.clone());
    }
    Router::new().route(RELOAD, post(reload)).layer(token).merge(shown).with_state(reloader)
}

async fn figures(State(reloader): State<Reloader>) -> impl IntoResponse {
    Json(reloader.gateway().figures().await)
}

async fn reload(State(reloader): State<Reloader>) -> impl IntoResponse {
    let outcome = reloader.reload().await;
    let status = if outcome.is_ok() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    (status, Json(json!({ "reloaded": outcome.is_ok(), "said": said(&outcome) })))
}
