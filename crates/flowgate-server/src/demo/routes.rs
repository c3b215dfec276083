//! The paths of the demo, and their handlers.
//!
//! Owns the table of routes and the page itself, which is one document that loads nothing from elsewhere.

use std::sync::Arc;

use axum::{
    Router,
    http::header,
    response::{Html, IntoResponse},
    routing::{get, post},
};

use super::{answer::Problem, app::App, control, figures, guarded, load};

const PAGE: &str = include_str!("page.html");
/// Nothing from elsewhere, and nobody may frame it: its buttons change gates.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn routes(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/figures", get(figures::figures))
        .route("/events", get(figures::events))
        .route("/work", get(guarded::work))
        .route("/tenant/{key}", get(guarded::tenant))
        .route("/gate/pause", post(control::pause))
        .route("/gate/resume", post(control::resume))
        .route("/gate/max/{n}", post(control::max))
        .route("/load", post(load::load))
        .method_not_allowed_fallback(async || Problem::Method)
        .fallback(async || Problem::Unknown)
        .with_state(app)
}

async fn page() -> impl IntoResponse {
    let headers = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Html(PAGE))
}
