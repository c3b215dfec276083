//! The page's load maker.
//!
//! Owns a burst of requests made inside the server, because a browser opens only six connections to it and
//! could never fill a line. They take the same way as those from outside, handler and all. When the page that
//! asked for them hangs up, all of them do.

use std::{collections::BTreeMap, sync::Arc};

use axum::{extract::State, http::StatusCode, response::Response};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde::Serialize;

use super::{
    answer::{Problem, json},
    app::App,
    asked::{Burst, FromPage},
    guarded,
};

#[derive(Serialize)]
struct Made {
    requests: u32,
    /// How many were done (`done`) or refused, by reason.
    answers: BTreeMap<&'static str, u32>,
}

/// `POST /load`: makes the requests at once, waits for all, and counts the answers.
///
/// Cancel safety: dropped, it drops every request still under way: they leave the line or give their slots back.
pub(super) async fn load(
    _: FromPage,
    State(app): State<Arc<App>>,
    burst: Burst,
) -> Result<Response, Problem> {
    let _pass = app.loads.try_enter().map_err(|refusal| Problem::Refused(refusal, None))?;
    // In this one task: in tasks of their own they would be dropped one after the other, and those in line be let in meanwhile.
    let all = (0..burst.requests).map(|_| request(Arc::clone(&app), burst.clone()));
    let mut under_way: FuturesUnordered<_> = all.collect();
    let mut answers = BTreeMap::new();
    while let Some(answer) = under_way.next().await {
        *answers.entry(answer).or_default() += 1;
    }
    Ok(json(StatusCode::OK, &Made { requests: burst.requests, answers }))
}

async fn request(app: Arc<App>, Burst { span, tenant, .. }: Burst) -> &'static str {
    let answer = match tenant {
        Some(key) => guarded::tenant(State(app), key, span).await,
        None => guarded::work(State(app), span).await,
    };
    match answer {
        Ok(_) => "done",
        Err(Problem::Refused(refusal, _)) => refusal.reason.as_str(),
        Err(_) => "not accepted",
    }
}
