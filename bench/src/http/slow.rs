//! The memory of clients that read slowly: what a proxy keeps for them of a body that it could have left upstream.

use std::time::Duration;

use super::{
    crowd::Crowd,
    idle::Growth,
    process::Process,
    proxied::HEADER_TIMEOUT,
    proxies::{Haproxy, Nginx, Ours},
    role::Role,
    rounds::in_turn,
    stage::Stage,
};
use crate::{report::Question, suite::Suite};

const MEMORY: &str = "slow: memory for a slow reader";
const MEMORY_BESIDE_NGINX: &str = "slow: memory for a slow reader, beside nginx";
const READERS: u64 = 1_000;
/// Nobody is refused.
const MAX: u32 = 8_000;

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    if !suite.wants_any(&[MEMORY, MEMORY_BESIDE_NGINX]) {
        return Ok(());
    }
    let upstream = stage.server(Role::Upstream)?;
    let upstream = upstream.port();
    // Each is two connections for the proxy, and a few hundred files are for everything else.
    let count =
        READERS.min(stage.open_files().saturating_sub(500) / 2) / if suite.is_quick() { 5 } else { 1 };
    let ours = Ours { upstream, max: MAX, max_queue: 0, header_timeout: HEADER_TIMEOUT, is_pinned: true };
    let [[ours], [haproxy], [nginx]] = in_turn::<3, 1>(if suite.is_quick() { 1 } else { 3 }, |index| {
        let proxy = match index {
            0 => stage.ours("flowgate-slow", &ours)?,
            1 => stage.haproxy("haproxy-slow", &Haproxy { upstream, max: MAX, deny: None })?,
            _ => stage.nginx("nginx-slow", &Nginx { upstream, limit: None })?,
        };
        Ok([for_each(&proxy, count)?])
    })?;
    suite.add(Question::new(MEMORY, "bytes").against("HAProxy").beside(ours, haproxy));
    suite.add(Question::new(MEMORY_BESIDE_NGINX, "bytes").against("nginx").beside(ours, nginx));
    Ok(())
}

/// How many bytes each of so many slow readers costs.
fn for_each(proxy: &Process, count: u64) -> Result<f64, String> {
    let growth = Growth::from_here(proxy)?;
    let readers = Crowd::slow_readers(proxy.address(), count, 1)?;
    readers.wait(Duration::from_secs(30));
    growth.for_each(count)
}
