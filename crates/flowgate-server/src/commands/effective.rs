//! What a configuration comes to, for people and programs to read.
//!
//! Owns the words for it. It decides nothing: all is taken from the checked types.

use std::time::Duration;

use flowgate::{Discipline, Limits, Overflow, Period};
use serde::Serialize;

use super::work::{EffectiveQueue, EffectiveTasks, EffectiveWorker};
use crate::cli::of_serve;
use crate::config::{Config, FlowControlMode, Gateway, KeyFrom, Loaded, MissingKey, Route, Server, Unlisted};

/// The configuration as `flowgate check --json` prints it.
#[derive(Debug, Serialize)]
pub(super) struct Effective {
    pub(super) valid: bool,
    /// `None`: there is none, and the defaults hold.
    pub(super) file: Option<String>,
    pub(super) store: String,
    pub(super) server: EffectiveServer,
    pub(super) gateway: Option<EffectiveGateway>,
    pub(super) tasks: EffectiveTasks,
    pub(super) queues: Vec<EffectiveQueue>,
    pub(super) worker: EffectiveWorker,
    /// What the file does not decide.
    pub(super) overridden: Vec<Decided>,
}

#[derive(Debug, Serialize)]
pub(super) struct EffectiveServer {
    pub(super) listen: String,
    pub(super) max_requests: u32,
    /// `None`: as the store has it.
    pub(super) flow_control_mode: Option<&'static str>,
    /// `None`: deliveries go straight.
    pub(super) egress_proxy: Option<String>,
    pub(super) egress_ca: Option<String>,
    /// What no file says: the environment, or the defaults.
    #[serde(flatten)]
    pub(super) serve: Option<EffectiveServe>,
}

#[derive(Debug, Serialize)]
pub(super) struct EffectiveServe {
    pub(super) deliveries: u32,
    pub(super) lease: String,
    pub(super) deny_private: bool,
    pub(super) metrics_open: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct EffectiveGateway {
    pub(super) listen: String,
    pub(super) tls: bool,
    pub(super) workers: usize,
    pub(super) max_connections: u32,
    /// Where requests go that no route matches; empty: they are told 404.
    pub(super) unlisted: Vec<String>,
    pub(super) routes: Vec<EffectiveRoute>,
}

#[derive(Debug, Serialize)]
pub(super) struct EffectiveRoute {
    pub(super) name: String,
    pub(super) matches: String,
    pub(super) upstreams: Vec<String>,
    /// `None`: it passes.
    pub(super) limit: Option<EffectiveLimit>,
}

#[derive(Debug, Serialize)]
pub(super) struct EffectiveLimit {
    pub(super) key: String,
    #[serde(flatten)]
    pub(super) lane: Lane,
    pub(super) max_keys: u32,
    pub(super) overrides: Vec<EffectiveOverride>,
}

#[derive(Debug, Serialize)]
pub(super) struct EffectiveOverride {
    pub(super) key: String,
    #[serde(flatten)]
    pub(super) lane: Lane,
}

/// What each lane may do.
#[derive(Debug, Serialize)]
pub(super) struct Lane {
    pub(super) max: Option<u32>,
    /// 0: nobody waits; `None`: any number.
    pub(super) max_queue: Option<u32>,
    pub(super) queue_timeout: Option<String>,
    pub(super) rate: Option<String>,
    pub(super) line: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Decided {
    pub(super) field: String,
    pub(super) value: String,
    pub(super) from: String,
}

impl EffectiveServer {
    fn of(server: &Server) -> Self {
        let mode = server.flow_control_mode.map(|mode| match mode {
            FlowControlMode::Own => "own",
            FlowControlMode::Latest => "latest",
        });
        EffectiveServer {
            listen: server.listen.to_string(),
            max_requests: server.max_requests,
            flow_control_mode: mode,
            egress_proxy: server.egress_proxy.as_ref().map(ToString::to_string),
            egress_ca: server.egress_ca.as_ref().map(|path| path.display().to_string()),
            serve: of_serve().map(|serve| EffectiveServe {
                deliveries: serve.deliveries,
                lease: time(serve.lease),
                deny_private: serve.deny_private,
                metrics_open: serve.metrics_open,
            }),
        }
    }
}

impl Effective {
    pub(super) fn of(loaded: &Loaded) -> Self {
        let Config { server, gateway, store, tasks, queues, worker } = &loaded.config;
        let decided = loaded.overridden.iter().map(|option| Decided {
            field: option.field.clone(),
            value: option.value.clone(),
            from: option.from.to_string(),
        });
        Effective {
            valid: true,
            file: loaded.file.as_ref().map(|path| path.display().to_string()),
            server: EffectiveServer::of(server),
            gateway: gateway.as_ref().map(EffectiveGateway::of),
            store: store.to_string(),
            tasks: EffectiveTasks::of(tasks),
            queues: queues.iter().map(EffectiveQueue::of).collect(),
            worker: EffectiveWorker::of(&worker.options),
            overridden: decided.collect(),
        }
    }
}

impl EffectiveGateway {
    fn of(gateway: &Gateway) -> Self {
        EffectiveGateway {
            listen: gateway.listen.to_string(),
            tls: gateway.tls.is_some(),
            workers: gateway.workers.get(),
            max_connections: gateway.max_connections.get(),
            unlisted: match &gateway.unlisted {
                Unlisted::NotFound => Vec::new(),
                Unlisted::Pass(forward) => forward.upstreams.iter().map(ToString::to_string).collect(),
            },
            routes: gateway.routes.iter().map(EffectiveRoute::of).collect(),
        }
    }
}

impl EffectiveRoute {
    fn of(route: &Route) -> Self {
        let host = route.host.as_ref().map(ToString::to_string).unwrap_or_default();
        EffectiveRoute {
            name: route.name.to_string(),
            matches: format!("{} {host}{}", route.methods, route.path),
            upstreams: route.forward.upstreams.iter().map(ToString::to_string).collect(),
            limit: route.limit.as_ref().map(|limit| EffectiveLimit {
                key: words(&limit.key),
                lane: Lane::of(&limit.limits),
                max_keys: limit.max_keys,
                overrides: limit
                    .overrides
                    .iter()
                    .map(|own| EffectiveOverride { key: own.key.to_string(), lane: Lane::of(&own.limits) })
                    .collect(),
            }),
        }
    }
}

impl Lane {
    fn of(limits: &Limits) -> Self {
        let max_queue = match limits.overflow() {
            Overflow::Reject => Some(0),
            Overflow::Queue { max, .. } => max.map(u32::from),
        };
        Lane {
            max: limits.max(),
            max_queue,
            queue_timeout: limits.timeout().map(time),
            rate: limits.rate().map(ToString::to_string),
            line: match limits.discipline() {
                Discipline::Codel { target, interval, .. } => {
                    format!("codel, {} in {}", time(target), time(interval))
                }
                _ => "fifo".to_owned(),
            },
        }
    }
}

fn words(key: &KeyFrom) -> String {
    match key {
        KeyFrom::Header(name, MissingKey::Shared) => format!("header {name}"),
        KeyFrom::Header(name, MissingKey::Refuse) => format!("header {name}, required"),
        KeyFrom::Path(name) => format!("path {{{name}}}"),
        KeyFrom::Client => "client".to_owned(),
        KeyFrom::Constant(text) => format!("constant {text:?}"),
    }
}

/// As it is written in the file.
pub(super) fn time(span: Duration) -> String {
    Period::try_from(span).map_or_else(|_| format!("{span:?}"), |period| period.to_string())
}
