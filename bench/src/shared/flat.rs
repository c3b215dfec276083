//! Whether an entry costs as much however many lanes there are: every lane in turn, of 10 and of 10,000.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::{
    recipe,
    stage::{Stage, Store},
};
use crate::{
    measure,
    report::{Goal, Question},
    suite::Suite,
};

const FEW: usize = 10;
const MANY: usize = 10_000;
const CASES: [(Store, &str); 2] =
    [(Store::Redis, "redis: 10,000 lanes beside 10"), (Store::Postgres, "postgres: 10,000 lanes beside 10")];

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    for (store, case) in CASES {
        if !suite.wants(case) {
            continue;
        }
        let gates = stage.runtime.block_on(async {
            let url = stage.url(store);
            Ok::<_, String>([recipe::gate(url, "many").await?, recipe::gate(url, "few").await?])
        })?;
        let keys: Vec<String> = (0..MANY).map(|number| number.to_string()).collect();
        // All of them are there before the first is measured.
        stage.runtime.block_on(async {
            let mut entering = JoinSet::new();
            for key in &keys {
                entering.spawn(gates[0].enter_key(key).into_future());
            }
            while let Some(entered) = entering.join_next().await {
                let _left = entered.map_err(recipe::told)?.map_err(recipe::told)?;
            }
            Ok::<_, String>(())
        })?;
        let mut failed = None;
        let mut walk = |side: usize, size: usize, loops: u64| -> Duration {
            stage.runtime.block_on(async {
                let start = Instant::now();
                for number in 0..loops as usize {
                    // A step that is prime to both, so that the next lane is far away.
                    if let Err(refusal) = gates[side].enter_key(&keys[number * 7919 % size]).await {
                        failed = Some(refusal.to_string());
                    }
                }
                start.elapsed()
            })
        };
        let walk = std::cell::RefCell::new(&mut walk);
        let plan = suite.plan().longer(3);
        let [many, few] = measure::contest(
            plan,
            [&mut |loops| (walk.borrow_mut())(0, MANY, loops), &mut |loops| {
                (walk.borrow_mut())(1, FEW, loops)
            }],
        );
        if let Some(error) = failed {
            return Err(error);
        }
        let question = Question::new(case, "µs").against("ours with 10").goal(Goal::at_most(1.5));
        suite.add(question.beside(many / 1000.0, few / 1000.0));
    }
    Ok(())
}
