//! The page's buttons: pause, resume, another max.
//!
//! Owns the live changes of the work gate. Each answers with the figures as they are then.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};

use super::{
    answer::{Problem, json},
    app::App,
    asked::{FromPage, whole},
    figures::Figures,
};

/// `POST /gate/pause`: nobody starts; newcomers wait.
pub(super) async fn pause(_: FromPage, State(app): State<Arc<App>>) -> Response {
    app.work.pause();
    json(StatusCode::OK, &Figures::of(&app))
}

/// `POST /gate/resume`: those in line start, within the limits.
pub(super) async fn resume(_: FromPage, State(app): State<Arc<App>>) -> Response {
    app.work.resume();
    json(StatusCode::OK, &Figures::of(&app))
}

/// `POST /gate/max/{n}`: another max, at once.
pub(super) async fn max(
    _: FromPage,
    State(app): State<Arc<App>>,
    Path(text): Path<String>,
) -> Result<Response, Problem> {
    let limits = app.work.limits();
    let max = whole("max", &text, 1, 1_000_000_000)?;
    app.work.set_limits(limits.with_max(max)?);
    Ok(json(StatusCode::OK, &Figures::of(&app)))
}
