//! What the server says on the terminal.
//!
//! Owns the words. Each `curl` line works as pasted.

use std::{net::SocketAddr, time::Duration};

use flowgate::gate::Drained;

use super::app::App;
use crate::terminal::reached_at;

pub(super) fn greeting(listens_on: SocketAddr, app: &App) -> String {
    let url = format!("http://{}", reached_at(listens_on));
    let version = env!("CARGO_PKG_VERSION");
    let (work, tenants) = (app.work.limits(), app.tenants.limits());
    let warning = if listens_on.ip().is_loopback() {
        ""
    } else {
        "\nThere is no login: whoever reaches this port can change the gates.\n"
    };
    format!(
        "\
flowgate {version} listens on {url}/ (open it for live figures)

  work      {work}
  tenants   {tenants}; for each key

Paste into another terminal: one request; twenty at once, of which some wait and some are refused; one tenant:

  curl -i '{url}/work?ms=500'
  (for i in $(seq 20); do curl -s -o /dev/null -w '%{{http_code}}\\n' '{url}/work?ms=500' & done; wait)
  curl -i '{url}/tenant/acme?ms=500'
{warning}
Ctrl-C drains and stops."
    )
}

/// What a second signal leaves undone.
pub(super) fn in_haste(out: u64) -> String {
    match out {
        1 => "stopped at once: 1 pass was still out".to_owned(),
        out => format!("stopped at once: {out} passes were still out"),
    }
}

pub(super) fn farewell(drain: Duration, (work, tenants): &(Drained, Drained)) -> String {
    match work.still_out + tenants.still_out {
        0 => "stopped: all passes came back".to_owned(),
        1 => format!("stopped: 1 pass was still out after {drain:?}"),
        out => format!("stopped: {out} passes were still out after {drain:?}"),
    }
}
