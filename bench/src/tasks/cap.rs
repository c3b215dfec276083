//! Whether a cap for each key holds over many processes, and how much of what it allows is used.

use super::{
    bare,
    contestant::{Cap, Contestant, OURS, ROLL},
    fleet::Fleet,
    overlap::Judgement,
    stage::{Limit, Stage},
    standings::{case_of, cases_of},
};
use crate::{
    report::{Goal, Question},
    suite::Suite,
};

const OVER: &str = "cap: starts over it";
const MOST: &str = "cap: the most at once";
const SHARE: &str = "cap: share of the slots in use";
const BARE: &str = "cap: share of the slots in use, beside what a bare durable commit leaves";
const KEYS: u32 = 10;
/// How long a task takes, in milliseconds.
const TASK: u32 = 20;
/// As many as all the keys together may have: the cap alone holds them back.
const AT_ONCE: u32 = 20;
/// Over how many processes; the peers are tried on the first.
const PROCESSES: [u32; 2] = [3, 8];
/// How often each is tried: see [`Judgement::of_rounds`].
const ROUNDS: usize = 3;
/// How many tasks a process claims ahead under soft caps: one for each that it may run.
const PREFETCH: u32 = AT_ONCE;

/// What a cap counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// What is claimed.
    Hard,
    /// What runs.
    Soft,
}

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    let of = |kind: Kind| {
        let cases = move |what| PROCESSES.map(|processes| case(what, kind, processes));
        [OVER, SHARE].into_iter().flat_map(cases)
    };
    let (hard, soft): (Vec<_>, Vec<_>) = (of(Kind::Hard).collect(), of(Kind::Soft).collect());
    let wants_hard = suite.wants_any(&[&hard[..], &cases_of(&[OVER, MOST, SHARE]), &[BARE]].concat());
    let wants_soft = suite.wants_any(&soft);
    let count = if suite.is_quick() { 400 } else { 2_000 };
    for processes in PROCESSES {
        if wants_soft {
            let ours = Contestant::ours();
            let ours = ours.and_then(|ours| judge(suite, stage, &ours, (Kind::Soft, processes), count));
            tell_ours(suite, Kind::Soft, processes, ours);
        }
        if !wants_hard {
            continue;
        }
        let ours = Contestant::ours();
        let ours = ours.and_then(|ours| judge(suite, stage, &ours, (Kind::Hard, processes), count));
        tell_ours(suite, Kind::Hard, processes, ours);
        if processes == PROCESSES[0] {
            tell_bare(suite, stage, ours)?;
        }
        let peers = ROLL.iter().filter(|contestant| !contestant.is_ours());
        for peer in peers.filter(|_| processes == PROCESSES[0]) {
            if let Some(judgement) = judge(suite, stage, peer, (Kind::Hard, processes), count) {
                tell(suite, peer, ours, judgement);
            }
        }
    }
    Ok(())
}

fn judge(
    suite: &mut Suite,
    stage: &Stage,
    contestant: &Contestant,
    fleet: (Kind, u32),
    count: u32,
) -> Option<Judgement> {
    let cap = contestant.cap?;
    match one(stage, contestant, cap, fleet, count) {
        Ok(judgement) => Some(judgement),
        Err(error) => {
            suite.remark(format!("cap: {} left out: {error}", contestant.name));
            None
        }
    }
}

fn tell_ours(suite: &mut Suite, kind: Kind, processes: u32, ours: Option<Judgement>) {
    let figure = |of: fn(&Judgement) -> f64| ours.as_ref().map_or(f64::NAN, of);
    let over = Question::new(case(OVER, kind, processes), "starts").goal(Goal::ours_at_most(0.0));
    suite.add(over.alone(figure(|ours| ours.over as f64)));
    let share = Question::new(case(SHARE, kind, processes), "%").goal(Goal::ours_at_least(97.0));
    suite.add(share.alone(figure(|ours| ours.share * 100.0)));
}

/// Ours beside a slot that is empty for no longer than one commit takes.
fn tell_bare(suite: &mut Suite, stage: &Stage, ours: Option<Judgement>) -> Result<(), String> {
    let floor = bare::share(TASK, bare::commit(suite, stage)?) * 100.0;
    let ours = ours.map_or(f64::NAN, |ours| ours.share * 100.0);
    suite.add(Question::new(BARE, "%").against(bare::NAME).beside(ours, floor));
    Ok(())
}

/// The name of a case of ours.
fn case(what: &str, kind: Kind, processes: u32) -> &'static str {
    let soft = if kind == Kind::Soft { ", soft caps" } else { "" };
    case_of(&format!("{what}, {OURS}{soft}, {processes} processes"))
}

fn tell(suite: &mut Suite, peer: &Contestant, ours: Option<Judgement>, theirs: Judgement) {
    let what = peer.cap.map_or("", |cap| cap.what);
    let mut add = |case: &str, unit, of: fn(&Judgement) -> f64| {
        let case = case_of(&format!("{case}, {} ({what})", peer.name));
        let ours = ours.as_ref().map_or(f64::NAN, of);
        suite.add(Question::new(case, unit).against(peer.name).beside(ours, of(&theirs)));
    };
    add(OVER, "% of starts", |judged| judged.over as f64 / judged.starts as f64 * 100.0);
    add(MOST, "tasks of a key", |judged| f64::from(judged.most));
    add(SHARE, "%", |judged| judged.share * 100.0);
}

/// Lets so many processes work on the tasks of all keys, and judges what their handlers saw.
fn one(
    stage: &Stage,
    contestant: &Contestant,
    cap: Cap,
    (kind, processes): (Kind, u32),
    count: u32,
) -> Result<Judgement, String> {
    // One that runs half as many at once would take twice as long.
    let count = count * cap.max / 2;
    let prefetch = if kind == Kind::Soft { PREFETCH } else { 0 };
    let (limit, task_ms) = (Limit::Two, TASK);
    let fleet = Fleet { processes, at_once: AT_ONCE, prefetch, count, keys: KEYS, limit, task_ms };
    fleet.judged(stage, contestant, cap.max, ROUNDS)
}
