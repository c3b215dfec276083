//! `flowgate check`: whether the configuration is right, and what it comes to.
//!
//! Owns what is printed. It opens no socket and changes nothing.

use std::io::{self, Write};

use serde_json::json;

use super::{
    effective::{Effective, EffectiveGateway, EffectiveRoute, Lane},
    failure::Failure,
    table::Table,
    work::of_work,
};
use crate::{
    cli::{CheckOptions, wrong_variables},
    config::{ConfigErrors, Origin},
    terminal,
};

const HEADING: [&str; 8] = ["route", "match", "key", "max", "queue", "timeout", "rate", "overrides"];
/// How many overrides of a route are worth a line each; `--json` has all.
const MOST_SHOWN: usize = 20;
const NONE: &str = "-";

/// Prints what the configuration comes to, or fails with everything that is wrong with it.
pub(crate) fn check(options: &CheckOptions) -> Result<(), Failure> {
    let loaded = match (options.config.sources().load(), ConfigErrors::some(wrong_variables())) {
        (loaded, None) => loaded,
        (Ok(_), Some(errors)) => Err(errors),
        (Err(errors), Some(others)) => Err(errors.and(others)),
    };
    let said = match (&loaded, options.json) {
        (Ok(loaded), true) => {
            terminal::json(&serde_json::to_value(Effective::of(loaded)).unwrap_or_default())
        }
        (Ok(loaded), false) => terminal::plain_lines(&text(&Effective::of(loaded))),
        (Err(errors), true) => terminal::json(&errors_as_json(errors)),
        (Err(_), false) => String::new(),
    };
    io::stdout().write_all(said.as_bytes()).map_err(Failure::Write)?;
    loaded.map(drop).map_err(Failure::Config)
}

fn errors_as_json(errors: &ConfigErrors) -> serde_json::Value {
    let each = errors.iter().map(|error| {
        let file = match &error.origin {
            Origin::File(path) => Some(path.display().to_string()),
            _ => None,
        };
        json!({
            "from": error.origin.to_string(),
            "file": file,
            "line": error.position.map(|at| at.line),
            "column": error.position.map(|at| at.column),
            "message": error.problem.to_string(),
        })
    });
    json!({ "valid": false, "code": errors.code().as_str(), "errors": each.collect::<Vec<_>>() })
}

fn text(effective: &Effective) -> String {
    let mut text = match &effective.file {
        Some(file) => format!("{file}: all is well\n\n"),
        None => "no flowgate.toml here, and none given: the defaults apply\n\n".to_owned(),
    };
    let mode = effective.server.flow_control_mode.map(|mode| format!("; keys are {mode} unless they differ"));
    text += &format!("server   listens on {}{}\n", effective.server.listen, mode.unwrap_or_default());
    if let Some(serve) = &effective.server.serve {
        let denied = if serve.deny_private { ", none to private addresses" } else { "" };
        let metrics = if serve.metrics_open { "; /metrics is open" } else { "" };
        text += &format!(
            "         at most {} deliveries at once{denied}, lease {}{metrics}\n",
            serve.deliveries, serve.lease
        );
    }
    if let Some(proxy) = &effective.server.egress_proxy {
        text += &format!("         deliveries go by {proxy}\n");
    }
    if let Some(path) = &effective.server.egress_ca {
        text += &format!("         deliveries believe the certificates of {path}, too\n");
    }
    text += &of_work(effective);
    if let Some(gateway) = &effective.gateway {
        text += &of_gateway(gateway);
    }
    if !effective.overridden.is_empty() {
        let mut table = Table::new(&["not from the file", "value", "from"]);
        for option in &effective.overridden {
            table.row(vec![option.field.clone(), option.value.clone(), option.from.clone()]);
        }
        text += &format!("\n{}", table.text());
    }
    text
}

fn of_gateway(gateway: &EffectiveGateway) -> String {
    let EffectiveGateway { listen, workers, max_connections, .. } = gateway;
    let tls = if gateway.tls { "TLS" } else { "plain HTTP" };
    let unlisted = match gateway.unlisted.as_slice() {
        [] => "is told 404".to_owned(),
        upstreams => format!("passes to {}", upstreams.join(", ")),
    };
    let mut text = format!(
        "gateway  listens on {listen} ({tls}), {workers} workers, at most {max_connections} connections\n         \
         what no route matches {unlisted}\n"
    );
    if !gateway.routes.is_empty() {
        let mut table = Table::new(&HEADING);
        gateway.routes.iter().for_each(|route| rows(&mut table, route));
        text += &format!("\n{}", table.text());
    }
    text
}

/// A row for the route, and one for each of its overrides.
fn rows(table: &mut Table, route: &EffectiveRoute) {
    let name = || route.name.clone();
    let Some(limit) = &route.limit else {
        table.row(vec![name(), route.matches.clone(), "passes without a limit".to_owned()]);
        return;
    };
    let mut row = vec![name(), route.matches.clone(), limit.key.clone()];
    row.extend(cells(&limit.lane));
    row.push(if limit.overrides.is_empty() { NONE.to_owned() } else { limit.overrides.len().to_string() });
    table.row(row);
    for own in limit.overrides.iter().take(MOST_SHOWN) {
        let mut row = vec![String::new(), String::new(), format!("  {:?}", own.key)];
        row.extend(cells(&own.lane));
        table.row(row);
    }
    if let Some(more) = limit.overrides.len().checked_sub(MOST_SHOWN).filter(|more| *more > 0) {
        table.row(vec![String::new(), String::new(), format!("  and {more} more")]);
    }
}

fn cells(lane: &Lane) -> [String; 4] {
    let none = || NONE.to_owned();
    let queue = match lane.max_queue {
        Some(0) => "reject".to_owned(),
        Some(most) if lane.line == "fifo" => most.to_string(),
        Some(most) => format!("{most}, {}", lane.line),
        None => "any".to_owned(),
    };
    [
        lane.max.map_or_else(none, |max| max.to_string()),
        queue,
        lane.queue_timeout.clone().unwrap_or_else(none),
        lane.rate.clone().unwrap_or_else(none),
    ]
}
