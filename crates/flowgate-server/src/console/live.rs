//! `GET /console/live`: what changes, as it changes, until the page leaves or the server stops.

use std::{convert::Infallible, time::Duration};

use axum::{
    extract::State,
    http::StatusCode,
    response::{
        IntoResponse,
        sse::{Event, KeepAlive, Sse},
    },
};
use flowgate::Pass;
use futures_util::{StreamExt as _, stream};
use serde_json::Value;
use tokio::sync::watch;

use super::{hub::Viewer, router::Console};
use crate::api::{Answer, Asked, Problem};

/// Something is sent at least this often, so that whoever stands in between keeps the connection.
const KEEP: Duration = Duration::from_secs(15);

struct Watching {
    viewer: Viewer,
    closed: watch::Receiver<bool>,
    /// The page counts for as long as it watches.
    _pass: Pass,
}

pub(super) async fn live(State(console): State<Console>, asked: Asked) -> Answer {
    asked.only(&["key"])?;
    let pass = console.streams.try_enter().map_err(|refusal| {
        let text = format!("too many pages watch at once: {refusal}");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, text)
    })?;
    let viewer = console.hub.watch(asked.each("key"));
    let first = stream::iter([Ok::<_, Infallible>(event("history", &viewer.history()))]);
    let watching = Watching { viewer, closed: console.closed.clone(), _pass: pass };
    let rest = stream::unfold(watching, |mut watching| async move {
        let seen = tokio::select! {
            _ = watching.closed.wait_for(|is_closed| *is_closed) => return None,
            seen = watching.viewer.told.changed() => seen,
        };
        seen.ok()?;
        let sample = watching.viewer.told.borrow_and_update().clone();
        let told = event("sample", &watching.viewer.sample(&sample));
        Some((Ok(told), watching))
    });
    Ok(Sse::new(first.chain(rest)).keep_alive(KeepAlive::new().interval(KEEP)).into_response())
}

fn event(name: &str, value: &Value) -> Event {
    Event::default().event(name).data(value.to_string())
}
