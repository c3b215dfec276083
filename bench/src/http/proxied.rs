//! What a request through the proxy costs, how many there are in a second, and how long the slowest take.

use super::{
    proxies::{Haproxy, Nginx, Ours, PATH},
    role::Role,
    rounds::in_turn,
    stage::Stage,
};
use crate::{
    report::{Goal, Question},
    suite::Suite,
};

const COST: &str = "proxied: CPU for a request";
const COST_BESIDE_NGINX: &str = "proxied: CPU for a request, beside nginx";
const SPEED: &str = "proxied: requests per second";
const SLOWEST: &str = "proxied: p99";
const SLOWEST_FREE: &str = "proxied: p99, workers not pinned";
const LIMITED: &str = "HAProxy, maxconn and queue";
/// As many as there are connections: all are asked for a slot, and nobody waits.
pub(super) const MAX: u32 = super::wrk::CONNECTIONS;
pub(super) const MAX_QUEUE: u32 = 256;
pub(super) const HEADER_TIMEOUT: u32 = 10;

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    if !suite.wants_any(&[COST, COST_BESIDE_NGINX, SPEED, SLOWEST, SLOWEST_FREE]) {
        return Ok(());
    }
    let (rounds, seconds) = if suite.is_quick() { (2, 1) } else { (9, 3) };
    let wrk = stage.wrk()?;
    let upstream = stage.server(Role::Upstream)?;
    let upstream = upstream.port();
    let ours =
        Ours { upstream, max: MAX, max_queue: MAX_QUEUE, header_timeout: HEADER_TIMEOUT, is_pinned: true };
    let proxies = [
        stage.ours("flowgate", &ours)?,
        stage.haproxy("haproxy", &Haproxy { upstream, max: MAX, deny: None })?,
        stage.nginx("nginx", &Nginx { upstream, limit: None })?,
        stage.ours("free", &Ours { is_pinned: false, ..ours })?,
    ];
    for proxy in &proxies {
        wrk.weigh(proxy, PATH, 1)?.0.all_well()?;
    }
    let [ours, haproxy, nginx, free] = in_turn::<4, 3>(rounds, |index| {
        let (shot, cost) = wrk.weigh(&proxies[index], PATH, seconds)?;
        let shot = shot.all_well()?;
        Ok([cost, shot.per_second(), shot.p99.as_secs_f64() * 1e3])
    })?;
    let aim = (nginx[0] / haproxy[0] * 100.0).round() / 100.0;
    let cost = Question::new(COST, "µs").against(LIMITED).goal(Goal::at_most(1.05).aim(aim));
    suite.add(cost.beside(ours[0], haproxy[0]));
    suite.add(
        Question::new(COST_BESIDE_NGINX, "µs").against("nginx without limits").beside(ours[0], nginx[0]),
    );
    let speed = Question::new(SPEED, "1/s").against(LIMITED).goal(Goal::at_least(0.95));
    suite.add(speed.beside(ours[1], haproxy[1]));
    let slowest = Question::new(SLOWEST, "ms").against(LIMITED).goal(Goal::at_most(1.0));
    suite.add(slowest.beside(ours[2], haproxy[2]));
    let free_slowest = Question::new(SLOWEST_FREE, "ms").against(LIMITED);
    suite.add(free_slowest.beside(free[2], haproxy[2]));
    Ok(())
}
