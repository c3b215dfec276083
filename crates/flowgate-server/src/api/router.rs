//! The paths of the API, and their handlers.

use std::time::Duration;

use axum::{
    Router,
    extract::Request,
    http::{StatusCode, request::Parts},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{any, delete, get, post},
};
use flowgate::{
    OptionError,
    gate::Look,
    http::{ConcurrencyLimit, ConcurrencyLimitBuilder, Scope},
};

use super::{
    auth::{self, DOCUMENT, Doors, HOOKS},
    batch, carried, caught, dlq, events, explain, flow_control, groups, keys, messages, openapi, publish,
    queues,
    reply::Problem,
    run_letters, runs, schedules, trigger, wait,
};
use crate::office::Desk;

/// So many times more requests wait, and for so long, and then are refused: the API sheds before it falls.
const IN_LINE: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(10);

/// One part in so many of the requests may be webhooks.
const OF_WEBHOOKS: u32 = 4;

/// The gates before the API.
#[derive(Clone, Debug)]
pub(crate) struct Gates {
    /// For all that a client asks of this server, by whatever way.
    pub(crate) requests: ConcurrencyLimit,
    /// For webhooks, before the other: they come without a token, so whoever floods them takes a share and not the whole.
    pub(crate) webhooks: ConcurrencyLimit,
}

impl Gates {
    pub(crate) fn new(at_once: u32) -> Result<Self, OptionError> {
        let is_other = |request: &Parts| !request.uri.path().starts_with(HOOKS);
        Ok(Gates {
            requests: bound(at_once).build()?,
            webhooks: bound((at_once / OF_WEBHOOKS).max(1)).exempt(is_other).build()?,
        })
    }

    /// Those that may pass, and those that wait, by the names that are told.
    pub(crate) fn look(&self) -> [(&'static str, Look); 2] {
        [("api", self.requests.look()), ("webhooks", self.webhooks.look())]
    }
}

fn bound(at_once: u32) -> ConcurrencyLimitBuilder {
    ConcurrencyLimit::builder()
        .max_concurrent(at_once)
        .max_queue(at_once * IN_LINE)
        .queue_timeout(PATIENCE)
        .scope(Scope::Global)
}

/// All paths of the API, for whoever has a token.
pub(crate) fn routes(desk: Desk, gates: Gates) -> Router {
    let check = middleware::from_fn_with_state(Doors::new(desk.clone()), auth::check);
    open()
        .layer(check)
        .layer(middleware::from_fn(carried::begin))
        .layer(middleware::from_fn(caught::caught))
        .layer(gates.requests)
        .layer(gates.webhooks)
        .layer(middleware::from_fn(carried::carry))
        .layer(middleware::from_fn(plain))
        .with_state(desk)
}

/// Refuses what no store can look up, before anybody looks: a zero byte is part of no name.
pub(crate) async fn plain(request: Request, next: Next) -> Response {
    let asked = request.uri().path_and_query().map_or("", |asked| asked.as_str());
    if asked.contains("%00") {
        return Problem::bad("the path or the query has a zero byte (%00); send it without").into_response();
    }
    next.run(request).await
}

/// The paths as one namespace has them.
pub(super) fn paths(desk: Desk) -> Router {
    open().with_state(desk)
}

/// All paths of the API, without asking who it is: whoever mounts them does.
pub(crate) fn open() -> Router<Desk> {
    Router::new()
        .route("/v2/publish/{*destination}", post(publish::publish))
        .route("/v2/enqueue/{queue}/{*destination}", post(publish::enqueue))
        .route("/v2/batch", post(batch::batch))
        .route("/v2/messages", delete(messages::cancel_many))
        .route("/v2/messages/{id}", get(messages::read).delete(messages::cancel))
        .route("/v2/flowControl", get(flow_control::list))
        .route("/v2/flowControl/{key}", get(flow_control::read))
        .route("/v2/flowControl/{key}/pause", post(flow_control::pause))
        .route("/v2/flowControl/{key}/resume", post(flow_control::resume))
        .route("/v2/flowControl/{key}/pin", post(flow_control::pin))
        .route("/v2/flowControl/{key}/unpin", post(flow_control::unpin))
        .route("/v2/flowControl/{key}/resetRate", post(flow_control::reset_rate))
        .route("/v2/flowControl/{key}/explain", get(explain::key))
        .route("/v2/messages/{id}/explain", get(explain::message))
        .route("/v2/explain", get(explain::any))
        .route("/v2/flowControl/{key}/mode", post(flow_control::mode))
        .route("/v2/globalParallelism", get(flow_control::global))
        .route("/v2/queues", get(queues::list).post(queues::put))
        .route("/v2/queues/{name}", get(queues::read).delete(queues::remove))
        .route("/v2/queues/{name}/pause", post(queues::pause))
        .route("/v2/queues/{name}/resume", post(queues::resume))
        .route("/v2/events", get(events::list))
        .route("/v2/logs", get(events::list))
        .route("/v2/dlq", get(dlq::list).delete(dlq::remove_many))
        .route("/v2/dlq/retry", post(dlq::retry_many))
        .route("/v2/dlq/retry/{id}", post(dlq::retry))
        .route("/v2/dlq/{id}", get(dlq::read).delete(dlq::remove))
        .route("/v2/schedules", get(schedules::list))
        .route("/v2/schedules/{*rest}", any(schedules::rest))
        .route("/v2/topics", get(groups::list))
        .route("/v2/topics/{name}", get(groups::read).delete(groups::remove).patch(groups::settings))
        .route("/v2/topics/{name}/endpoints", post(groups::add).delete(groups::take).put(groups::add))
        .route("/v2/keys", get(keys::read))
        .route("/v2/keys/rotate", post(keys::rotate))
        .route("/v2/trigger/{*destination}", post(trigger::trigger))
        .route("/v2/batch/trigger", post(trigger::trigger_many))
        .route("/v2/workflows/runs", delete(runs::cancel_many))
        .route("/v2/workflows/runs/{id}", get(runs::steps).delete(runs::end))
        .route("/v2/workflows/events", get(runs::list))
        .route("/v2/workflows/logs", get(runs::list))
        .route("/v2/workflows/dlq", delete(run_letters::remove))
        .route("/v2/workflows/dlq/resume", post(run_letters::resume))
        .route("/v2/workflows/dlq/restart", post(run_letters::restart))
        .route("/v2/workflows/dlq/callback/{id}", post(run_letters::callback))
        .route("/v2/workflows/hooks/{user}/{run}/{event}", any(wait::hook))
        .route("/v2/wait/{*event}", post(wait::wait))
        .route("/v2/notify/{*event}", post(wait::notify))
        .route("/v2/waiters/{*event}", get(wait::waiters))
        .route(DOCUMENT, get(openapi::read))
        .method_not_allowed_fallback(async || {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not support this method")
        })
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "there is nothing at this path"))
}
