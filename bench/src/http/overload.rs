//! Twice as much as the service can do, by a fixed schedule.
//!
//! Owns the service time and the rate; where the machine cannot send so much, both are halved, and it is told.

use std::{net::TcpStream, thread, time::Duration};

use super::{
    fragile::{MOST as MOST_PATH, SLOTS},
    open_loop::{Schedule, Seen, drive, p99},
    process::Process,
    proxied::HEADER_TIMEOUT,
    proxies::{Deny, Haproxy, KEY, Ours, PATH, request},
    role::Role,
    rounds::in_turn,
    stage::Stage,
    tools,
    wire::ask,
};
use crate::{
    report::{Goal, Question},
    suite::Suite,
};

const GOODPUT: &str = "overload: goodput, queue of 8";
const GOODPUT_BESIDE: &str = "overload: goodput, queue of 8, beside HAProxy";
const ADMITTED: &str = "overload: admitted p99, queue of 8";
const REFUSED: &str = "overload: refused p99, queue of 8";
const MOST: &str = "overload: most at once behind the proxy";
const QUEUE: u32 = 8;
const DENYING: &str = "HAProxy, maxconn and deny";

/// 32 slots are 4,848 requests a second.
const SERVICE: Duration = Duration::from_micros(6_600);
const RATE: u32 = 9_600;
/// A schedule is kept if 99 of 100 requests go out no later than this.
const LATE: f64 = 1.0;
/// More than are ever under way at once.
const CONNECTIONS: usize = 512;

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    if !suite.wants_any(&[GOODPUT, GOODPUT_BESIDE, ADMITTED, REFUSED, MOST]) {
        return Ok(());
    }
    let (rounds, seconds) = if suite.is_quick() { (1, 1) } else { (5, 4) };
    let slower = slower(suite, stage)?;
    let wrk = stage.wrk()?;
    let fragile = stage.server(Role::Fragile { service: SERVICE * slower })?;
    let upstream = fragile.port();
    let ours =
        Ours { upstream, max: SLOTS, max_queue: QUEUE, header_timeout: HEADER_TIMEOUT, is_pinned: true };
    let ours = stage.ours("flowgate-overload", &ours)?;
    let haproxy = Haproxy { upstream, max: SLOTS, deny: Some(Deny::Queue(QUEUE)) };
    let haproxy = stage.haproxy("haproxy-overload", &haproxy)?;
    let schedule = schedule(slower, seconds);
    let mut late = Vec::new();
    let mut failed = 0;
    let mut overload = |proxy: &Process| -> Result<[f64; 4], String> {
        most(&fragile)?;
        let seen = drive(proxy.address(), &request(PATH, KEY), &schedule)?;
        late.push(p99(&seen.late));
        failed += seen.failed;
        Ok([seen.goodput, p99(&seen.served), p99(&seen.refused), most(&fragile)?])
    };
    let [ours, haproxy, [possible, ..]] = in_turn::<3, 4>(rounds, |index| match index {
        0 => overload(&ours),
        1 => overload(&haproxy),
        // What the slots allow: as many connections as there are slots, with no proxy and no overload.
        _ => Ok([wrk.shoot(&fragile, PATH, SLOTS, seconds)?.all_well()?.per_second(), 0.0, 0.0, 0.0]),
    })?;
    let goodput = Question::new(GOODPUT, "1/s").against("32 connections straight to the upstream");
    suite.add(goodput.goal(Goal::at_least(0.99)).beside(ours[0], possible));
    suite.add(Question::new(GOODPUT_BESIDE, "1/s").against(DENYING).beside(ours[0], haproxy[0]));
    let times = f64::from(slower);
    let admitted = Question::new(ADMITTED, "ms").against(DENYING).goal(Goal::ours_at_most(12.0 * times));
    suite.add(admitted.beside(ours[1], haproxy[1]));
    let refused = Question::new(REFUSED, "ms").against(DENYING).goal(Goal::ours_at_most(2.5));
    suite.add(refused.beside(ours[2], haproxy[2]));
    let bound = Question::new(MOST, "requests").against(DENYING).goal(Goal::ours_at_most(f64::from(SLOTS)));
    suite.add(bound.beside(ours[3], haproxy[3]));
    let late = crate::measure::median(late);
    let is_first = thread::spawn(tools::go_first).join().unwrap_or_default();
    let first = if is_first { "before" } else { "beside, for the kernel permits no more," };
    suite.remark(format!(
        "overload: {} requests a second, 99 of 100 sent within {late:.2} ms of their moment, {failed} without an answer; \
         load and service were scheduled {first} the proxies",
        schedule.rate
    ));
    Ok(())
}

/// How many requests the service had at once, at the most, since it was last asked.
fn most(fragile: &Process) -> Result<f64, String> {
    let asked = TcpStream::connect(fragile.address())
        .and_then(|mut stream| ask(&mut stream, &request(MOST_PATH, KEY)));
    let most = asked.map(|answer| answer.body.parse::<f64>());
    most.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

fn schedule(slower: u32, seconds: u32) -> Schedule {
    Schedule {
        rate: RATE / slower,
        lead: Duration::from_millis(500),
        length: Duration::from_secs(u64::from(seconds)),
        connections: CONNECTIONS,
    }
}

/// By how much everything has to be slower for this machine to keep the schedule: 1 if it can.
fn slower(suite: &mut Suite, stage: &Stage) -> Result<u32, String> {
    let upstream = stage.server(Role::Upstream)?;
    let mut slower = 1;
    loop {
        let Seen { late, served, .. } = drive(upstream.address(), &request(PATH, KEY), &schedule(slower, 1))?;
        if (p99(&late) <= LATE && p99(&served) <= 2.0 * LATE) || slower == 8 {
            return Ok(slower);
        }
        suite.remark(format!(
            "overload: {} requests a second are too many for this machine (99 of 100 sent within {:.1} ms of their moment, \
             answered within {:.1}), so there are half as many to a service half as fast",
            RATE / slower,
            p99(&late),
            p99(&served)
        ));
        slower *= 2;
    }
}
