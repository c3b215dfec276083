//! The paths of the console, and their handlers.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::FromRef,
    http::StatusCode,
    middleware,
    response::Redirect,
    routing::{get, post},
};
use flowgate::{Gate, KeyedGate, OptionError, http::ConcurrencyLimit};
use tokio::sync::watch;

use super::{assets, busiest::Busiest, gates, guard, hub::Hub, keys, live, queues, session::Sessions};
use crate::{api, gateway, office::Desk};

/// Tries to log in, from one address.
const TRIES: (u32, &str) = (30, "1m");
const MOST_ADDRESSES: u32 = 10_000;
/// How many sessions are looked up, opened or closed at once for whoever comes without a place in the API's line, how many more
/// wait, and for how long: nobody has shown yet who they are.
const AT_THE_DOOR: (u32, u32, Duration) = (32, 128, Duration::from_secs(10));
/// How many pages may watch at once.
const MOST_STREAMS: u32 = 64;

/// What the console's handlers share.
#[derive(Clone)]
pub(crate) struct Console {
    pub(super) desk: Desk,
    pub(super) sessions: Sessions,
    pub(super) hub: Arc<Hub>,
    pub(super) busiest: Arc<Busiest>,
    pub(super) log_ins: KeyedGate,
    /// What asks the store for those who have shown nothing yet passes it, so that they take no places of the API.
    pub(super) door: Gate,
    pub(super) streams: Gate,
    /// The gate of the API, which this page's own requests go through as well.
    pub(super) requests: ConcurrencyLimit,
    pub(super) gateway: Option<gateway::Handle>,
    /// Where messages are kept, without what is nobody's business.
    pub(super) store_name: Arc<str>,
    /// Becomes `true` when the server stops.
    pub(super) closed: watch::Receiver<bool>,
}

/// What a console needs of its server.
pub(crate) struct Parts {
    pub(crate) desk: Desk,
    pub(crate) requests: ConcurrencyLimit,
    pub(crate) gateway: Option<gateway::Handle>,
    pub(crate) store_name: String,
    pub(crate) closed: watch::Receiver<bool>,
}

impl FromRef<Console> for Desk {
    fn from_ref(console: &Console) -> Self {
        console.desk.clone()
    }
}

impl Console {
    pub(crate) fn new(parts: Parts) -> Result<Self, OptionError> {
        let Parts { desk, requests, gateway, store_name, closed } = parts;
        let (tries, period) = TRIES;
        let (at_once, in_line, patience) = AT_THE_DOOR;
        let door = Gate::builder().name("console door").max(at_once).queue(in_line).timeout(patience);
        let log_ins = Gate::builder().name("console log-ins").rate(tries, period).reject();
        Ok(Console {
            sessions: Sessions::new(desk.store.clone(), Arc::clone(&desk.secrets)),
            busiest: Arc::default(),
            hub: Hub::new(desk.clone()),
            desk,
            log_ins: log_ins.keyed().max_keys(MOST_ADDRESSES).build()?,
            door: door.build()?,
            streams: Gate::builder().name("console streams").max(MOST_STREAMS).reject().build()?,
            requests,
            gateway,
            store_name: store_name.into(),
            closed,
        })
    }
}

impl Console {
    /// The one that looks at the store for all who watch: to be run beside the server.
    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }
}

/// What is sent to a page, or to a path of the API that there is none of.
async fn nowhere() -> api::Problem {
    api::Problem::new(StatusCode::NOT_FOUND, "there is nothing at this path")
}

/// All paths below `/console`.
pub(crate) fn routes(console: Console) -> Router {
    let check = middleware::from_fn_with_state(console.clone(), guard::check);
    let asked = Router::new()
        .route("/console/data/keys", get(keys::list))
        .route("/console/data/key", get(keys::read).post(keys::change))
        .route("/console/data/queues", get(queues::list))
        .route("/console/data/queues/{name}", post(queues::change))
        .route("/console/data/cluster", post(queues::change_cluster))
        .route("/console/data/gates", get(gates::read))
        .nest("/console/api", api::open().with_state(console.desk.clone()))
        .layer(check)
        .layer(middleware::from_fn(api::begin))
        .layer(middleware::from_fn(api::caught))
        .layer(console.requests.clone())
        .layer(middleware::from_fn(api::carry))
        .layer(middleware::from_fn(api::plain));
    // A stream holds no slot of the API for as long as it lasts: it has a gate of its own.
    let check_alone = middleware::from_fn_with_state(console.clone(), guard::check_at_the_door);
    let watched = Router::new().route("/console/live", get(live::live)).layer(check_alone);
    let open = Router::new()
        // What one opens who has only the address.
        .route("/", get(async || Redirect::to("/console")))
        .route("/console", get(assets::page))
        .route("/console/", get(assets::page))
        .route("/console/{*page}", get(assets::page).fallback(nowhere))
        .route("/console/assets/{name}", get(assets::asset))
        .route("/console/session", get(guard::read).post(guard::open).delete(guard::close));
    open.merge(asked).merge(watched).layer(middleware::from_fn(assets::headers)).with_state(console)
}
