//! The gates in figures.
//!
//! Owns the JSON of `/figures` and the stream of it at `/events`. It looks and never touches.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::StatusCode,
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
};
use flowgate::{
    Overflow,
    gate::{Allowance, LaneLook, Look},
};
use futures_util::stream;
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use super::{
    answer::{Problem, json},
    app::App,
    tally::Tally,
};

const BEAT: Duration = Duration::from_millis(250);
/// More lanes than this are counted and not shown.
const MOST_LANES_SHOWN: usize = 64;

#[derive(Debug, Serialize)]
pub(super) struct Figures {
    work: GateFigures,
    tenants: GateFigures,
}

#[derive(Debug, Serialize)]
struct GateFigures {
    /// As the gate says them.
    limits: String,
    max: Option<u32>,
    queue: Option<u32>,
    phase: String,
    in_use: u64,
    /// The most that were in use at once, over all lanes.
    peak: u64,
    waiting: u64,
    oldest_wait_ms: Option<u128>,
    admitted: u64,
    refused: u64,
    refusals: BTreeMap<&'static str, u64>,
    /// How many lanes there are.
    lanes: usize,
    /// Some of them, in order of their keys.
    shown: Vec<LaneFigures>,
}

#[derive(Debug, Serialize)]
struct LaneFigures {
    key: String,
    max: Option<u32>,
    in_use: u32,
    waiting: u32,
    oldest_wait_ms: Option<u128>,
    rate: Option<RateFigures>,
}

#[derive(Debug, Serialize)]
struct RateFigures {
    limit: u32,
    remaining: u32,
    resets_in_ms: u128,
}

impl Figures {
    pub(super) fn of(app: &App) -> Self {
        let mut lanes = app.tenants.lanes(MOST_LANES_SHOWN);
        lanes.sort_by(|one, other| one.key.cmp(&other.key));
        let tenants = GateFigures::new(&app.tenants.look(), &app.tenants_tally);
        Figures {
            work: GateFigures::new(&app.work.look(), &app.work_tally),
            tenants: GateFigures { shown: lanes.iter().map(LaneFigures::new).collect(), ..tenants },
        }
    }
}

impl GateFigures {
    fn new(look: &Look, tally: &Tally) -> Self {
        let queue = match look.limits.overflow() {
            Overflow::Queue { max, .. } => max.map(u32::from),
            Overflow::Reject => None,
        };
        GateFigures {
            limits: look.limits.to_string(),
            max: look.limits.max(),
            queue,
            phase: look.phase.to_string(),
            in_use: look.in_use,
            peak: tally.peak(),
            waiting: look.waiting,
            oldest_wait_ms: look.oldest_wait.map(|wait| wait.as_millis()),
            admitted: tally.admitted(),
            refused: look.refusals.total(),
            refusals: look.refusals.iter().map(|(reason, count)| (reason.as_str(), count)).collect(),
            lanes: look.lanes,
            shown: Vec::new(),
        }
    }
}

impl LaneFigures {
    fn new(lane: &LaneLook) -> Self {
        LaneFigures {
            key: lane.key.to_string(),
            max: lane.limits.max(),
            in_use: lane.in_use,
            waiting: lane.waiting,
            oldest_wait_ms: lane.oldest_wait.map(|wait| wait.as_millis()),
            rate: lane.rate.map(RateFigures::new),
        }
    }
}

impl RateFigures {
    fn new(Allowance { limit, remaining, resets_in }: Allowance) -> Self {
        RateFigures { limit, remaining, resets_in_ms: resets_in.as_millis() }
    }
}

/// `GET /figures`: both gates right now.
pub(super) async fn figures(State(app): State<Arc<App>>) -> Response {
    json(StatusCode::OK, &Figures::of(&app))
}

/// `GET /events`: the same, four times a second, until the client leaves or the server stops.
pub(super) async fn events(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    // The pass lives in the stream: a page counts for as long as it watches.
    let pass = app.watchers.try_enter().map_err(|refusal| Problem::Refused(refusal, None))?;
    let mut beats = interval(BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let stream = stream::unfold((app, beats, pass), |(app, mut beats, pass)| async move {
        tokio::select! {
            () = app.closing() => None,
            _ = beats.tick() => {
                let text = serde_json::to_string(&Figures::of(&app)).expect("figures are numbers and text");
                Some((Ok::<_, Infallible>(Event::default().data(text)), (app, beats, pass)))
            }
        }
    });
    Ok(Sse::new(stream).into_response())
}
