//! What it costs to say no: all slots are held, and everybody is told so.

use std::{io::Write, net::TcpStream, thread, time::Duration};

use super::{
    process::Process,
    proxied::HEADER_TIMEOUT,
    proxies::{Deny, Haproxy, KEY, Nginx, Ours, PATH, request},
    role::Role,
    rounds::in_turn,
    stage::Stage,
    upstream::HOLD,
};
use crate::{
    report::{Goal, Question},
    suite::Suite,
};

const COST: &str = "refused: CPU for a request";
const COST_BESIDE_HAPROXY: &str = "refused: CPU for a request, beside HAProxy";
const SLOTS: u32 = 4;

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    if !suite.wants_any(&[COST, COST_BESIDE_HAPROXY]) {
        return Ok(());
    }
    let (rounds, seconds) = if suite.is_quick() { (2, 1) } else { (9, 2) };
    let wrk = stage.wrk()?;
    let upstream = stage.server(Role::Upstream)?;
    let upstream = upstream.port();
    let ours = Ours { upstream, max: SLOTS, max_queue: 0, header_timeout: HEADER_TIMEOUT, is_pinned: true };
    let haproxy = Haproxy { upstream, max: 2 * SLOTS, deny: Some(Deny::Busy(SLOTS)) };
    let proxies = [
        stage.ours("flowgate-refusing", &ours)?,
        stage.nginx("nginx-refusing", &Nginx { upstream, limit: Some(SLOTS) })?,
        stage.haproxy("haproxy-refusing", &haproxy)?,
    ];
    let _held = proxies.iter().map(hold_all).collect::<Result<Vec<_>, _>>()?;
    for proxy in &proxies {
        wrk.weigh(proxy, PATH, 1)?.0.all_refused()?;
    }
    let [[ours], [nginx], [haproxy]] = in_turn::<3, 1>(rounds, |index| {
        let (shot, cost) = wrk.weigh(&proxies[index], PATH, seconds)?;
        shot.all_refused()?;
        Ok([cost])
    })?;
    let cost = Question::new(COST, "µs").against("nginx limit_conn").goal(Goal::at_most(1.0));
    suite.add(cost.beside(ours, nginx));
    suite.add(Question::new(COST_BESIDE_HAPROXY, "µs").against("HAProxy deny").beside(ours, haproxy));
    Ok(())
}

/// Takes all slots with requests that are never answered.
fn hold_all(proxy: &Process) -> Result<Vec<TcpStream>, String> {
    let hold = || {
        let mut stream = TcpStream::connect(proxy.address())?;
        stream.write_all(&request(HOLD, KEY))?;
        Ok(stream)
    };
    let held = (0..SLOTS).map(|_| hold()).collect::<std::io::Result<Vec<_>>>();
    // Nobody answers, so nobody tells that they have arrived; what is measured asks whether all are refused.
    thread::sleep(Duration::from_millis(300));
    held.map_err(|error| format!("the slots could not be taken: {error}"))
}
