//! `GET /console/live`: what changes, as it changes, until the page leaves, its session ends or the server stops.

use std::{convert::Infallible, time::Duration};

use axum::{
    Extension,
    extract::State,
    http::{HeaderName, HeaderValue, StatusCode},
    response::{
        IntoResponse,
        sse::{Event, KeepAlive, Sse},
    },
};
use flowgate::Pass;
use futures_util::{StreamExt as _, stream};
use serde_json::Value;
use tokio::sync::watch;

use super::{guard::SessionId, hub::Viewer, router::Console, session::Sessions};
use crate::{
    api::{Answer, Asked, Problem},
    clock::Stopwatch,
};

/// Something is sent at least this often, so that whoever stands in between keeps the connection.
const KEEP: Duration = Duration::from_secs(15);

/// What nginx has to be told, or it keeps what is sent until some kilobytes are together.
const UNBUFFERED: [(HeaderName, HeaderValue); 1] =
    [(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"))];

/// A page may watch for days: whether it still may is asked so often.
const CHECK: Duration = Duration::from_secs(5);

struct Watching {
    viewer: Viewer,
    sessions: Sessions,
    session: SessionId,
    checked: Stopwatch,
    closed: watch::Receiver<bool>,
    /// The page counts for as long as it watches.
    _pass: Pass,
}

impl Watching {
    /// Whether whoever watches has logged out, or their token was revoked. Asked of a store that is away, nobody has.
    async fn is_over(&mut self) -> bool {
        if self.checked.elapsed() < CHECK {
            return false;
        }
        self.checked = Stopwatch::start();
        matches!(self.sessions.find(&self.session.0).await, Ok(None))
    }
}

pub(super) async fn live(
    State(console): State<Console>,
    Extension(session): Extension<SessionId>,
    asked: Asked,
) -> Answer {
    asked.only(&["key"])?;
    let pass = console.streams.try_enter().map_err(|refusal| {
        let text = format!("too many pages watch at once: {refusal}");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, text)
    })?;
    let viewer = console.hub.watch(asked.each("key"));
    let first = stream::iter([Ok::<_, Infallible>(event("history", &viewer.history()))]);
    let watching = Watching {
        viewer,
        sessions: console.sessions.clone(),
        session,
        checked: Stopwatch::start(),
        closed: console.closed.clone(),
        _pass: pass,
    };
    let rest = stream::unfold(watching, |mut watching| async move {
        let seen = tokio::select! {
            _ = watching.closed.wait_for(|is_closed| *is_closed) => return None,
            seen = watching.viewer.told.changed() => seen,
        };
        seen.ok()?;
        if watching.is_over().await {
            return None;
        }
        let sample = watching.viewer.told.borrow_and_update().clone();
        let told = event("sample", &watching.viewer.sample(&sample));
        Some((Ok(told), watching))
    });
    let stream = Sse::new(first.chain(rest)).keep_alive(KeepAlive::new().interval(KEEP));
    Ok((UNBUFFERED, stream).into_response())
}

fn event(name: &str, value: &Value) -> Event {
    Event::default().event(name).data(value.to_string())
}
