//! What the server holds in memory while a million messages wait, and how soon another key's first message gets by them.

use std::time::{Duration, Instant};

use super::{
    client::{Ask, Connection, send_all},
    latency::percentile,
    stage::{PATIENCE, Server, Stage, Store},
    through::{self, BATCH},
};
use crate::{
    report::{Goal, Question},
    suite::Suite,
};

const CASES: [(Store, [&str; 3]); 2] = [
    (
        Store::Sqlite,
        [
            "memory: 1,000,000 waiting, on SQLite",
            "memory: another key's first message, p50, 1,000,000 waiting, on SQLite",
            "memory: taken in, 1,000,000, on SQLite",
        ],
    ),
    (
        Store::Postgres,
        [
            "memory: 1,000,000 waiting, on PostgreSQL",
            "memory: another key's first message, p50, 1,000,000 waiting, on PostgreSQL",
            "memory: taken in, 1,000,000, on PostgreSQL",
        ],
    ),
];
const MIB: f64 = 1024.0 * 1024.0;
/// So long are messages taken in; if it is not a million by then, it is told.
const TAKE_IN: Duration = Duration::from_secs(150);
const FIRSTS: u32 = 50;

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    let count = if suite.is_quick() { 20_000 } else { 1_000_000 };
    for (store, [memory, first, taken]) in CASES {
        if !suite.wants_any(&[memory, first, taken]) {
            continue;
        }
        let server = stage.server(store)?;
        let start = Instant::now();
        let waiting = stage.run(fill(&server, stage.endpoint.url(), count))?;
        let seconds = start.elapsed().as_secs_f64();
        if waiting < count {
            suite.remark(format!("{memory}: {waiting} were taken in within {} s", TAKE_IN.as_secs()));
        }
        let firsts = stage.run(others(&server, stage))?;
        let resident = server.process.resident()? / MIB;
        suite.add(Question::new(memory, "MiB").goal(Goal::ours_at_most(300.0)).alone(resident));
        suite.add(Question::new(first, "ms").goal(Goal::ours_at_most(50.0)).alone(percentile(&firsts, 50)));
        suite.add(Question::new(taken, "1/s").alone(f64::from(waiting) / seconds));
    }
    Ok(())
}

/// Has so many wait for ten keys that are paused. How many do.
async fn fill(server: &Server<'_>, url: String, count: u32) -> Result<u32, String> {
    let mut connection = Connection::open(server.address()).await?;
    for key in 0..10 {
        through::tell(&mut connection, &format!("/v2/flowControl/key-{key}/pause")).await?;
    }
    let (mut sent, start) = (0, Instant::now());
    while sent < count && start.elapsed() < TAKE_IN {
        let (url, from) = (url.clone(), sent / BATCH);
        let some = 20_000.min(count - sent);
        send_all(server.address(), 4, some / BATCH, move |number| through::batch(&url, from + number, 10))
            .await?;
        sent += some;
    }
    Ok(sent)
}

/// First messages of other keys, one after the other: from the call to the arrival, in milliseconds, sorted.
async fn others(server: &Server<'_>, stage: &Stage) -> Result<Vec<f64>, String> {
    let mut connection = Connection::open(server.address()).await?;
    let path = format!("/v2/publish/{}", stage.endpoint.url());
    let mut waits = Vec::new();
    stage.endpoint.arrivals();
    for number in 0..FIRSTS {
        let ask = Ask::post(path.clone(), number.to_string())
            .header("upstash-flow-control-key", format!("other-{number}"))
            .header("upstash-flow-control-value", "parallelism=1");
        let start = Instant::now();
        connection.ask(&ask).await?;
        let came = loop {
            if let Some((_, came)) =
                stage.endpoint.arrivals().into_iter().find(|(came, _)| *came == u64::from(number))
            {
                break came;
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("the first message of key other-{number} never came"));
            }
            tokio::time::sleep(Duration::from_micros(200)).await;
        };
        waits.push(came.saturating_duration_since(start).as_secs_f64() * 1e3);
    }
    waits.sort_by(f64::total_cmp);
    Ok(waits)
}
