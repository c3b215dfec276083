//! Entering and leaving with nobody in the way: one thread, one pass out at a time.

use std::{hint::black_box, sync::Arc, time::Duration};

use flowgate::Gate;
use tokio::{sync::Semaphore, task, time};

use crate::{
    measure::{awaits, calls, runtime},
    report::{Goal, Question},
    suite::Suite,
};

const MAX: u32 = 8;
const WAIT: Duration = Duration::from_secs(2);

pub(crate) fn run(suite: &mut Suite) {
    asynchronous(suite);
    at_once(suite);
    unheard(suite);
    with_timeout(suite);
}

fn asynchronous(suite: &mut Suite) {
    let runtime = runtime();
    let gate = Gate::builder().max(MAX).build().expect("the options are right");
    let semaphore = Arc::new(Semaphore::new(MAX as usize));
    let ours = |loops| {
        awaits!(runtime, loops, {
            let pass = black_box(&gate).enter().await.expect("there is a slot");
            black_box(&pass);
        })
    };

    suite.duel(
        Question::new("enter: async, owned", "ns")
            .against("tokio acquire_owned")
            .goal(Goal::at_most(1.0).aim(0.55)),
        ours,
        |loops| {
            awaits!(runtime, loops, {
                let permit = Arc::clone(black_box(&semaphore)).acquire_owned().await.expect("it is open");
                black_box(&permit);
            })
        },
    );
    suite.duel(
        Question::new("enter: async, owned, peer unconstrained", "ns")
            .against("tokio acquire_owned without coop budget"),
        ours,
        |loops| {
            runtime.block_on(task::unconstrained(async {
                let start = std::time::Instant::now();
                for _ in 0..loops {
                    let permit = Arc::clone(black_box(&semaphore)).acquire_owned().await.expect("it is open");
                    black_box(&permit);
                }
                start.elapsed()
            }))
        },
    );
}

fn at_once(suite: &mut Suite) {
    let gate = Gate::builder().max(MAX).build().expect("the options are right");
    let semaphore = Arc::new(Semaphore::new(MAX as usize));
    suite.duel(
        Question::new("enter: try", "ns").against("tokio try_acquire_owned").goal(Goal::at_most(1.0)),
        |loops| {
            calls(loops, || {
                let pass = black_box(&gate).try_enter().expect("there is a slot");
                black_box(&pass);
            })
        },
        |loops| {
            calls(loops, || {
                let permit =
                    Arc::clone(black_box(&semaphore)).try_acquire_owned().expect("there is a permit");
                black_box(&permit);
            })
        },
    );
}

/// What it costs that somebody could listen, where nobody does.
fn unheard(suite: &mut Suite) {
    let gate = Gate::builder().max(MAX).build().expect("the options are right");
    suite.duel(
        Question::new("enter: try, nobody listens", "ns")
            .against("ours without event code")
            .goal(Goal::at_most(1.05)),
        |loops| {
            calls(loops, || {
                let pass = black_box(&gate).try_enter().expect("there is a slot");
                black_box(&pass);
            })
        },
        |loops| {
            calls(loops, || {
                let pass = black_box(&gate).try_enter_without_events().expect("there is a slot");
                black_box(&pass);
            })
        },
    );
}

fn with_timeout(suite: &mut Suite) {
    let runtime = runtime();
    let gate = Gate::builder().max(MAX).build().expect("the options are right");
    let patient = Gate::builder().max(MAX).queue(50).timeout(WAIT).build().expect("the options are right");
    let semaphore = Arc::new(Semaphore::new(MAX as usize));
    let ours = |loops| {
        awaits!(runtime, loops, {
            let pass = black_box(&patient).enter().await.expect("there is a slot");
            black_box(&pass);
        })
    };

    suite.duel(
        Question::new("enter: queue and timeout set", "ns").against("ours without").goal(Goal::at_most(1.2)),
        ours,
        |loops| {
            awaits!(runtime, loops, {
                let pass = black_box(&gate).enter().await.expect("there is a slot");
                black_box(&pass);
            })
        },
    );
    suite.duel(
        Question::new("enter: queue and timeout set, against a timer", "ns")
            .against("tokio acquire_owned in timeout"),
        ours,
        |loops| {
            awaits!(runtime, loops, {
                let acquire = Arc::clone(black_box(&semaphore)).acquire_owned();
                let permit = time::timeout(WAIT, acquire).await.expect("in time").expect("it is open");
                black_box(&permit);
            })
        },
    );
}
