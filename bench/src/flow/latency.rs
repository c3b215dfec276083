//! How long a publish takes, and how soon what was published is there, at a hundred a second.

use std::{collections::HashMap, time::Duration};

use super::{
    client::{Ask, send_paced},
    stage::{Stage, Store},
};
use crate::{
    report::{Goal, Question},
    suite::Suite,
};

const CASES: [(Store, [&str; 4]); 2] = [
    (
        Store::Sqlite,
        [
            "latency: of a publish, p50, on SQLite",
            "latency: of a publish, p99, on SQLite",
            "latency: until delivered, p50, on SQLite",
            "latency: until delivered, p99, on SQLite",
        ],
    ),
    (
        Store::Postgres,
        [
            "latency: of a publish, p50, on PostgreSQL",
            "latency: of a publish, p99, on PostgreSQL",
            "latency: until delivered, p50, on PostgreSQL",
            "latency: until delivered, p99, on PostgreSQL",
        ],
    ),
];
const INTERVAL: Duration = Duration::from_millis(10);

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    let count = if suite.is_quick() { 100 } else { 1_000 };
    for (store, cases) in CASES {
        if !suite.wants_any(&cases) {
            continue;
        }
        let (publishes, deliveries) = one(stage, store, count)?;
        let goals = [None, None, Some(Goal::ours_at_most(5.0)), None];
        let figures = [
            percentile(&publishes, 50),
            percentile(&publishes, 99),
            percentile(&deliveries, 50),
            percentile(&deliveries, 99),
        ];
        for ((case, figure), goal) in cases.into_iter().zip(figures).zip(goals) {
            let question = Question::new(case, "ms");
            let question = goal.map_or(question.clone(), |goal| question.goal(goal));
            suite.add(question.alone(figure));
        }
    }
    Ok(())
}

/// In milliseconds, sorted: of the publishes, and from their calls to their arrivals.
fn one(stage: &Stage, store: Store, count: u32) -> Result<(Vec<f64>, Vec<f64>), String> {
    let server = stage.server(store)?;
    let path = format!("/v2/publish/{}", stage.endpoint.url());
    let before = stage.endpoint.count();
    let sent = stage.run(async {
        let make = |number: u32| {
            Ask::post(path.clone(), number.to_string())
                .header("upstash-flow-control-key", "paced")
                .header("upstash-flow-control-value", "parallelism=10")
        };
        let warm = send_paced(server.address(), INTERVAL, 20, |number| make(1_000_000 + number)).await?;
        let sent = send_paced(server.address(), INTERVAL, count, make).await?;
        server.settled(before + warm.len() as u64 + u64::from(count)).await?;
        Ok::<_, String>(sent)
    })?;
    let arrivals: HashMap<u64, _> = stage.endpoint.arrivals().into_iter().collect();
    let mut deliveries = Vec::with_capacity(sent.len());
    for (number, (start, _)) in (0_u64..).zip(&sent) {
        let came = arrivals.get(&number).ok_or_else(|| format!("message {number} never came"))?;
        deliveries.push(came.saturating_duration_since(*start).as_secs_f64() * 1e3);
    }
    let mut publishes: Vec<f64> = sent.iter().map(|(_, took)| took.as_secs_f64() * 1e3).collect();
    publishes.sort_by(f64::total_cmp);
    deliveries.sort_by(f64::total_cmp);
    Ok((publishes, deliveries))
}

/// The smallest that so many percent do not exceed.
pub(super) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}
