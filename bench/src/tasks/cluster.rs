//! Whether a cap over everything holds over many processes, and how much of it is in use while work waits.

use super::{
    bare,
    contestant::{Contestant, ROLL},
    fleet::Fleet,
    overlap::Judgement,
    stage::{Limit, Stage},
};
use crate::{
    report::{Goal, Question},
    suite::Suite,
};

const MOST: &str = "cluster cap of 20: the most at once";
const AVERAGE: &str = "cluster cap of 20: in use on average while work waits";
const BESIDE: &str = "cluster cap of 20: in use on average while work waits, horsies";
const BARE: &str = "cluster cap of 20: in use on average, beside what a bare durable commit leaves";
const CAP: u32 = 20;
/// How often each is tried: see [`Judgement::of_rounds`].
const ROUNDS: usize = 3;
const FLEET: Fleet = Fleet {
    processes: 4,
    at_once: 16,
    // A cluster cap is hard, always.
    prefetch: 0,
    count: 2_000,
    // The cap is over all of them: keys are not told apart.
    keys: 1,
    limit: Limit::Twenty,
    task_ms: 50,
};

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    if !suite.wants_any(&[MOST, AVERAGE, BARE, BESIDE]) {
        return Ok(());
    }
    let share = if suite.is_quick() { 10 } else { 1 };
    let judge = |contestant: &Contestant, share: u32| -> Result<Judgement, String> {
        let fleet = Fleet { count: FLEET.count / share, ..FLEET };
        fleet.judged(stage, contestant, CAP, ROUNDS)
    };
    let ours = Contestant::ours().ok_or("ours does not take part")?;
    let judged = judge(&ours, share)?;
    let question = Question::new(MOST, "tasks").goal(Goal::ours_at_most(f64::from(CAP)));
    suite.add(question.alone(f64::from(judged.most)));
    suite.add(Question::new(AVERAGE, "tasks").goal(Goal::ours_at_least(19.5)).alone(judged.average));
    let floor = bare::share(FLEET.task_ms, bare::commit(suite, stage)?) * f64::from(CAP);
    suite.add(Question::new(BARE, "tasks").against(bare::NAME).beside(judged.average, floor));
    let Some(horsies) = ROLL.iter().find(|contestant| contestant.name == "horsies") else { return Ok(()) };
    match judge(horsies, share.max(4)) {
        Ok(theirs) => {
            suite.add(
                Question::new(BESIDE, "tasks").against("horsies").beside(judged.average, theirs.average),
            );
        }
        Err(error) => suite.remark(format!("cluster cap: horsies left out: {error}")),
    }
    Ok(())
}
