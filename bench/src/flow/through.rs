//! How many messages a second are published, delivered and settled, from the first to the last.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{
    client::{Ask, Connection, send_all},
    stage::{Stage, Store},
};
use crate::{
    measure::median,
    report::{Goal, Question},
    suite::Suite,
};

const BATCHED: [(&str, &str, Store, f64); 2] = [
    (
        "through: in batches, on SQLite, beside bare POSTs",
        "through: in batches, on SQLite, beside BullMQ",
        Store::Sqlite,
        0.5,
    ),
    (
        "through: in batches, on PostgreSQL, beside bare POSTs",
        "through: in batches, on PostgreSQL, beside BullMQ",
        Store::Postgres,
        0.35,
    ),
];
const SINGLE: [(&str, Store); 2] = [
    ("through: one by one, on SQLite, beside bare POSTs", Store::Sqlite),
    ("through: one by one, on PostgreSQL, beside bare POSTs", Store::Postgres),
];
/// Connections of who publishes, and of the bare client.
const AT_ONCE: u32 = 64;
pub(super) const BATCH: u32 = 100;
const BODY: &str =
    r#"{"to":"ada@example.com","subject":"Your receipt","order":4711,"lines":[1,2,3],"note":"thank you"}"#;
const KEYS: u32 = 10;

#[derive(Default)]
struct Rounds {
    bare: Vec<f64>,
    bullmq: Vec<f64>,
    batched: [Vec<f64>; 2],
    single: [Vec<f64>; 2],
}

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    let cases: Vec<&'static str> =
        BATCHED.iter().flat_map(|case| [case.0, case.1]).chain(SINGLE.map(|case| case.0)).collect();
    if !suite.wants_any(&cases) {
        return Ok(());
    }
    // Batches go through by the ten thousand in a second: of fewer, the beginning and the end would be most of it.
    let (batched, count, rounds) = if suite.is_quick() { (2_000, 2_000, 1) } else { (100_000, 20_000, 3) };
    let mut figures = Rounds::default();
    for _ in 0..rounds {
        figures.bare.push(bare(stage, batched)?);
        for (index, case) in BATCHED.iter().enumerate() {
            if suite.wants(case.0) || suite.wants(case.1) {
                figures.batched[index].push(ours(stage, case.2, batched, KEYS, true)?.rate);
            }
        }
        for (index, case) in SINGLE.iter().enumerate() {
            if suite.wants(case.0) {
                figures.single[index].push(ours(stage, case.1, count, KEYS, false)?.rate);
            }
        }
        if suite.wants(BATCHED[0].1) || suite.wants(BATCHED[1].1) {
            match stage.bullmq(count) {
                Ok(seconds) => figures.bullmq.push(f64::from(count) / seconds),
                Err(error) => suite.remark(format!("BullMQ left out of a round: {error}")),
            }
        }
    }
    let middle = |figures: &Vec<f64>| if figures.is_empty() { f64::NAN } else { median(figures.clone()) };
    let (bare, bullmq) = (middle(&figures.bare), middle(&figures.bullmq));
    for (index, (beside_bare, beside_bullmq, _, goal)) in BATCHED.into_iter().enumerate() {
        let ours = middle(&figures.batched[index]);
        let question =
            Question::new(beside_bare, "1/s").against("bare hyper client").goal(Goal::at_least(goal));
        suite.add(question.beside(ours, bare));
        let question = Question::new(beside_bullmq, "1/s").against("BullMQ").goal(Goal::at_least(1.0));
        suite.add(question.beside(ours, bullmq));
    }
    for (index, (case, _)) in SINGLE.into_iter().enumerate() {
        let question = Question::new(case, "1/s").against("bare hyper client");
        suite.add(question.beside(middle(&figures.single[index]), bare));
    }
    Ok(())
}

/// What a client with as many connections posts to the endpoint in a second, and nothing else.
fn bare(stage: &Stage, count: u32) -> Result<f64, String> {
    let count = count.max(10_000);
    let address = stage.endpoint.address();
    let start = Instant::now();
    stage.run(send_all(address, AT_ONCE, count, |_| Ask::post("/job", BODY)))?;
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}

/// What came of one drain.
pub(super) struct Drained {
    /// Messages in a second.
    pub(super) rate: f64,
    /// Processor time of the server for one.
    pub(super) cost: Duration,
}

/// Publishes, and waits until all is settled.
pub(super) fn ours(
    stage: &Stage,
    store: Store,
    count: u32,
    keys: u32,
    is_batched: bool,
) -> Result<Drained, String> {
    let server = stage.server(store)?;
    let (address, url) = (server.address(), stage.endpoint.url());
    // Connections, statements and signing keys are there.
    let before = stage.endpoint.count();
    stage.run(async {
        send_all(address, 4, 100, {
            let url = url.clone();
            move |number| publish(&url, number % keys)
        })
        .await?;
        server.settled(before + 100).await
    })?;
    let used = server.process.processor_time()?;
    let goal = stage.endpoint.count() + u64::from(count);
    let start = Instant::now();
    stage.run(async {
        if is_batched {
            send_all(address, 4, count.div_ceil(BATCH), move |batch_number| batch(&url, batch_number, keys))
                .await?;
        } else {
            send_all(address, AT_ONCE, count, move |number| publish(&url, number % keys)).await?;
        }
        server.settled(goal).await
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let used = server.process.processor_time()?.saturating_sub(used);
    Ok(Drained { rate: f64::from(count) / seconds, cost: used / count })
}

fn publish(url: &str, key: u32) -> Ask {
    Ask::post(format!("/v2/publish/{url}"), BODY)
        .header("upstash-flow-control-key", format!("key-{key}"))
        .header("upstash-flow-control-value", "parallelism=1000")
}

pub(super) fn batch(url: &str, number: u32, keys: u32) -> Ask {
    let entry = |index: u32| {
        let key = (number * BATCH + index) % keys;
        json!({
            "destination": url,
            "headers": {
                "Upstash-Flow-Control-Key": format!("key-{key}"),
                "Upstash-Flow-Control-Value": "parallelism=1000",
            },
            "body": BODY,
        })
    };
    let entries: Vec<_> = (0..BATCH).map(entry).collect();
    Ask::post("/v2/batch", serde_json::Value::from(entries).to_string())
        .header("content-type", "application/json")
}

/// Asks a server for something that gives nothing back.
pub(super) async fn tell(connection: &mut Connection, path: &str) -> Result<(), String> {
    connection.ask(&Ask::post(path.to_owned(), "")).await.map(drop)
}
