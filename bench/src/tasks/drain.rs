//! How many tasks that do nothing are inserted in a second, and drained, and what each of them costs the server.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{
    contestant::{Contestant, OURS, Store},
    ledger::Ledger,
    stage::{Limit, Order, Stage},
    standings::{Better, Standings, case_of, cases_of},
};
use crate::{
    report::{Goal, Question},
    suite::Suite,
};

const FASTEST: &str = "drain: ours with limits, beside the fastest without";
const CAPPED: &str = "drain: ours with limits, beside horsies with its cap";
const FREE: &str = "drain: without limits";
const LIMITED: &str = "drain: with limits";
const COMMITS: &str = "drain: commits for a task, without limits";
const WAL: &str = "drain: WAL for a task, without limits";
const LIMITED_COMMITS: &str = "drain: commits for a task, with limits";
const LIMITED_WAL: &str = "drain: WAL for a task, with limits";
const INSERT: &str = "bulk insert: beside the best";
const INSERTS: &str = "bulk insert";

const KEYS: u32 = 100;
/// The least that tells anything.
const LEAST: u32 = 200;
/// Who has not drained by then says how far it came.
const PATIENCE: Duration = Duration::from_secs(12);

#[derive(Default)]
struct Tables {
    inserted: Standings,
    drained: Standings,
    commits: Standings,
    wal: Standings,
}

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    let each = cases_of(&[FREE, LIMITED, COMMITS, WAL, LIMITED_COMMITS, LIMITED_WAL, INSERTS]);
    if !suite.wants_any(&[&[FASTEST, CAPPED, INSERT], &each[..]].concat()) {
        return Ok(());
    }
    let count = if suite.is_quick() { 2_000 } else { 20_000 };
    let (mut free, mut limited) = (Tables::default(), Tables::default());
    for turn in stage.rounds(3) {
        for contestant in turn {
            let mut measure = |limit, tables: &mut Tables, count| {
                if let Err(error) = one(stage, &contestant, limit, count, tables) {
                    suite.remark(format!("drain: {} left out of a round: {error}", contestant.name));
                }
            };
            measure(Limit::None, &mut free, (count / contestant.slowness).max(LEAST));
            if contestant.wide.is_some() {
                measure(Limit::Wide, &mut limited, (count / contestant.limited_slowness).max(LEAST));
            }
        }
    }
    tell(suite, &free, &limited);
    Ok(())
}

fn tell(suite: &mut Suite, free: &Tables, limited: &Tables) {
    let ours = limited.drained.of(OURS);
    if let Some((name, figure)) = free.drained.best(Better::More) {
        let question = Question::new(FASTEST, "1/s").against(name).goal(Goal::at_least(1.0));
        suite.add(question.beside(ours, figure));
    }
    let horsies = limited.drained.of("horsies");
    let capped = Question::new(CAPPED, "1/s").against("horsies").goal(Goal::at_least(50.0));
    suite.add(capped.beside(ours, horsies));
    free.drained.add_each(suite, FREE, "1/s");
    for contestant in super::contestant::ROLL.iter().filter(|contestant| !contestant.is_ours()) {
        let figure = limited.drained.of(contestant.name);
        if let (Some(wide), true) = (contestant.wide, figure.is_finite()) {
            let case = case_of(&format!("{LIMITED}, {} ({wide})", contestant.name));
            suite.add(Question::new(case, "1/s").against(contestant.name).beside(ours, figure));
        }
    }
    free.commits.add_each(suite, COMMITS, "commits");
    free.wal.add_each(suite, WAL, "bytes");
    limited.commits.add_each(suite, LIMITED_COMMITS, "commits");
    limited.wal.add_each(suite, LIMITED_WAL, "bytes");
    free.inserted.add_best(suite, INSERT, "1/s", Better::More);
    free.inserted.add_each(suite, INSERTS, "1/s");
}

/// Inserts and drains once, in a store of its own.
fn one(
    stage: &Stage,
    contestant: &Contestant,
    limit: Limit,
    count: u32,
    tables: &mut Tables,
) -> Result<(), String> {
    let store = stage.store(contestant)?;
    let order = Order { command: "insert", database: &store, count, keys: KEYS, limit, more: &[] };
    let seconds = stage.seconds(contestant, &order)?;
    tables.inserted.note(contestant.name, f64::from(count) / seconds);
    let before = ledger(stage, contestant, &store)?;
    let (ran, seconds) = drain(stage, contestant, &Order { command: "drain", ..order })?;
    tables.drained.note(contestant.name, ran / seconds);
    if let (Some(before), Some(after)) = (before, ledger(stage, contestant, &store)?) {
        let cost = after.since(before, ran);
        tables.commits.note(contestant.name, cost.commits);
        tables.wal.note(contestant.name, cost.wal_bytes);
    }
    stage.discard(contestant, &store)
}

/// How many have run, and in how many seconds.
fn drain(stage: &Stage, contestant: &Contestant, order: &Order<'_>) -> Result<(f64, f64), String> {
    let mut running = stage.start(contestant, order)?;
    running.ready(Stage::deadline())?;
    running.tell("go")?;
    let line = match running.next(Instant::now() + PATIENCE) {
        Err(_) => {
            running.tell("stop")?;
            running.next(Stage::deadline())?
        }
        line => line?,
    };
    let figure = |name: &str| line.as_ref().and_then(|line| line.get(name)).and_then(Value::as_f64);
    let (Some(ran), Some(seconds)) = (figure("ran"), figure("seconds")) else {
        // It says on its last lines why it told nothing.
        return Err(running.rest(Stage::deadline()).err().unwrap_or_else(|| "it told no figures".to_owned()));
    };
    // What its server processes counted is told when they end.
    running.rest(Stage::deadline())?;
    if ran > 0.0 { Ok((ran, seconds)) } else { Err("not one task ran".to_owned()) }
}

fn ledger(stage: &Stage, contestant: &Contestant, store: &str) -> Result<Option<Ledger>, String> {
    match contestant.store {
        Store::Postgres => Ledger::read(stage.postgres(), store).map(Some),
        Store::Redis => Ok(None),
    }
}
