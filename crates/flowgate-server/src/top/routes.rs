//! `GET /top`, with a token.

use axum::{Json, Router, extract::State, middleware, routing::get};
use serde_json::Value;

use super::view::Viewer;
use crate::{api, gateway::Handle, office::Desk};

/// The one path.
pub(crate) fn routes(desk: Desk, gateway: Option<Handle>) -> Router {
    let token = middleware::from_fn_with_state(desk.clone(), api::with_token);
    Router::new().route("/top", get(top)).layer(token).with_state(Viewer::new(desk, gateway))
}

async fn top(State(viewer): State<Viewer>) -> Json<Value> {
    Json(viewer.view().await)
}
