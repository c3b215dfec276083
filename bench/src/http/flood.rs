//! What becomes of those who behave while others do not: a flood of keys, thousands of slow readers, and clients that never
//! finish to ask; and whether all is as before once they are gone.

use std::{
    net::TcpStream,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{
    crowd::{Crowd, Tally, flood_key, slow_key},
    open_loop::{Schedule, Seen, drive, p99},
    process::Process,
    proxies::{KEY, Ours, PATH, request},
    role::Role,
    stage::Stage,
    wire::ask,
};
use crate::{
    report::{Goal, Question},
    suite::Suite,
};

const FAILED: &str = "flood: others refused or failed meanwhile";
const SLOWEST: &str = "flood: p99 of others meanwhile";
const PEAK: &str = "flood: memory at its peak";
const AGAIN: &str = "flood: memory after a second one of other keys";
const UNCLOSED: &str = "flood: slow-loris connections not closed in time";
const LOST: &str = "flood: slots lost afterwards";

const MAX: u32 = 30;
/// Fewer than the slow readers need, so that some of them are refused.
const SLOW_KEYS: u64 = 200;
/// The head of a request has to be there by then.
const HEADER_TIMEOUT: u32 = 5;
/// Those who behave: this many a second.
const OTHERS: u32 = 200;
const MEGABYTE: f64 = 1_048_576.0;

/// How many of each.
struct Size {
    keys: u64,
    slow: u64,
    loris: u64,
    /// How long others are watched, in seconds.
    seconds: u64,
}

impl Size {
    fn new(is_quick: bool, open_files: u64) -> Self {
        // A slow reader that is let in has two connections in the proxy, and there are no more slots than these.
        let slots = SLOW_KEYS * u64::from(MAX);
        let spare = open_files.saturating_sub(2_000);
        let slow = if spare > 2 * slots { spare - slots } else { spare / 2 };
        let (keys, seconds) = if is_quick { (5_000, 7) } else { (100_000, 15) };
        Size {
            keys,
            slow: slow.min(if is_quick { 500 } else { 10_000 }),
            loris: if is_quick { 50 } else { 500 },
            seconds,
        }
    }
}

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    if !suite.wants_any(&[FAILED, SLOWEST, PEAK, AGAIN, UNCLOSED, LOST]) {
        return Ok(());
    }
    let size = Size::new(suite.is_quick(), stage.open_files());
    let upstream = stage.server(Role::Upstream)?;
    let ours = Ours {
        upstream: upstream.port(),
        max: MAX,
        max_queue: 0,
        header_timeout: HEADER_TIMEOUT,
        is_pinned: true,
    };
    let ours = stage.ours("flowgate-flood", &ours)?;
    let quiet = others(&ours, 2)?;
    let start = ours.resident()?;

    let storm = storm(suite, &ours, &size)?;
    let after = settled(&ours)?;
    let second = Crowd::flood(ours.address(), "second", size.keys)?;
    second.wait(Duration::from_secs(120));
    drop(second);
    let again = settled(&ours)?;

    let Seen { served, refused, failed, .. } = storm.others;
    suite.add(
        Question::new(FAILED, "requests")
            .goal(Goal::ours_at_most(0.0))
            .alone((refused.len() as u64 + failed) as f64),
    );
    suite.add(
        Question::new(SLOWEST, "ms")
            .against("ours with nobody else there")
            .beside(p99(&served), p99(&quiet.served)),
    );
    suite.add(
        Question::new(PEAK, "MB")
            .against("ours at the start")
            .beside(storm.peak / MEGABYTE, start / MEGABYTE),
    );
    let again_beside = Question::new(AGAIN, "MB").against("ours after the first").goal(Goal::at_most(1.1));
    suite.add(again_beside.beside(again / MEGABYTE, after / MEGABYTE));
    suite.add(Question::new(UNCLOSED, "connections").goal(Goal::ours_at_most(0.0)).alone(storm.unclosed));
    let lost = lost(&ours, &size)?;
    suite.add(Question::new(LOST, "slots").goal(Goal::ours_at_most(0.0)).alone(lost));
    Ok(())
}

/// What was seen while all of them were there.
struct Storm {
    others: Seen,
    peak: f64,
    unclosed: f64,
}

fn storm(suite: &mut Suite, ours: &Process, size: &Size) -> Result<Storm, String> {
    let slow = Crowd::slow_readers(ours.address(), size.slow, SLOW_KEYS)?;
    slow.wait(Duration::from_secs(60));
    let loris = Crowd::slow_loris(ours.address(), size.loris)?;
    let flood = Crowd::flood(ours.address(), "first", size.keys)?;
    let (over, peak) = (AtomicBool::new(false), AtomicU64::new(0));
    let others = thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                peak.fetch_max(ours.resident().unwrap_or_default() as u64, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(100));
            }
        });
        let others = others(ours, size.seconds);
        flood.wait(Duration::from_secs(120));
        over.store(true, Ordering::Relaxed);
        others
    })?;
    let of = |tally: &Tally| {
        let [served, refused, failed] =
            [&tally.served, &tally.refused, &tally.failed].map(|count| count.load(Ordering::Relaxed));
        format!("{served} served, {refused} refused, {failed} failed")
    };
    suite.remark(format!(
        "flood: {} keys ({}); {} slow readers with {SLOW_KEYS} keys ({}); {} slow-loris connections; {OTHERS} requests a \
         second by others, for {} s",
        size.keys,
        of(&flood.tally),
        size.slow,
        of(&slow.tally),
        size.loris,
        size.seconds
    ));
    let unclosed = size.loris - loris.tally.closed.load(Ordering::Relaxed).min(size.loris);
    Ok(Storm { others, peak: peak.into_inner() as f64, unclosed: unclosed as f64 })
}

/// Those who behave, for so many seconds.
fn others(ours: &Process, seconds: u64) -> Result<Seen, String> {
    let length = Duration::from_secs(seconds);
    let schedule = Schedule { rate: OTHERS, lead: Duration::from_millis(100), length, connections: 16 };
    drive(ours.address(), &request(PATH, KEY), &schedule)
}

/// The memory once all have gone.
fn settled(ours: &Process) -> Result<f64, String> {
    thread::sleep(Duration::from_secs(2));
    ours.resident()
}

/// How many slots do not come back, of the slow readers' keys, of those who behaved and of some that came once.
fn lost(ours: &Process, size: &Size) -> Result<f64, String> {
    let mut stream = TcpStream::connect(ours.address()).map_err(|error| error.to_string())?;
    let keys = (0..SLOW_KEYS).map(slow_key).chain([KEY.to_owned()]);
    let keys = keys.chain((0..size.keys).step_by(1_000).map(|number| flood_key("first", number)));
    let end = Instant::now() + Duration::from_secs(5);
    let mut lost = 0.0;
    for key in keys {
        lost += loop {
            let answer = ask(&mut stream, &request(PATH, &key))
                .map_err(|error| format!("no answer afterwards: {error}"))?;
            let remaining =
                answer.header("concurrency-remaining").and_then(|value| value.parse::<u32>().ok());
            // The one that asks has one of the slots itself.
            let missing =
                MAX - 1 - remaining.ok_or("an answer without `Concurrency-Remaining`")?.min(MAX - 1);
            // Hanging up takes a moment to be noticed.
            if missing == 0 || Instant::now() > end {
                break f64::from(missing);
            }
            thread::sleep(Duration::from_millis(20));
        };
    }
    Ok(lost)
}
