//! What the gateway shows of itself.
//!
//! Owns the form of the figures; the numbers are the gates'.

use std::collections::BTreeMap;

use flowgate::gate::LaneLook;
use serde::Serialize;

use super::table::Table;

/// How many lanes of a route are shown.
const MOST_LANES: usize = 100;

/// The gateway at one moment.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    connections: usize,
    /// Those of them that have had nothing to do for a while.
    resting: usize,
    routes: Vec<Route>,
}

#[derive(Debug, Serialize)]
struct Route {
    name: String,
    limits: String,
    /// Of each key.
    max: Option<u32>,
    in_use: u64,
    waiting: u64,
    /// How many were refused since the start.
    refused: u64,
    /// The same by reason.
    refusals: BTreeMap<&'static str, u64>,
    /// How many keys have something in use, in line, or a rate that remembers it.
    keys: usize,
    /// Those of single keys, at most a hundred.
    lanes: Vec<Lane>,
}

#[derive(Debug, Serialize)]
struct Lane {
    key: String,
    limits: String,
    max: Option<u32>,
    in_use: u32,
    waiting: u32,
}

impl Figures {
    pub(super) fn of(table: &Table, connections: usize, resting: usize) -> Self {
        let routes = table.limited().map(|(name, limit)| {
            let look = limit.look();
            Route {
                name: name.to_owned(),
                limits: look.limits.to_string(),
                max: look.limits.max(),
                in_use: look.in_use,
                waiting: look.waiting,
                refused: look.refusals.total(),
                refusals: look.refusals.iter().map(|(reason, count)| (reason.as_str(), count)).collect(),
                keys: look.lanes,
                lanes: limit.lanes(MOST_LANES).iter().map(Lane::of).collect(),
            }
        });
        Figures { connections, resting, routes: routes.collect() }
    }
}

impl Lane {
    fn of(look: &LaneLook) -> Self {
        Lane {
            key: look.key.to_string(),
            limits: look.limits.to_string(),
            max: look.limits.max(),
            in_use: look.in_use,
            waiting: look.waiting,
        }
    }
}
