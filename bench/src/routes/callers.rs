//! What an exchange costs from end to end: 20,000 of them by several callers, through a route of one step that does nothing
//! but let the others run once.
//!
//! The limits are wide enough for all callers, so that nobody waits: what is measured is the limit, not the line. All at once
//! they are as narrow as 64, and nearly all wait.

use std::{hint::black_box, time::Duration};

use flowgate::route::{Concurrency, Context, Direct, Error, Route, direct};
use flowgate_testkit::cpu_time;
use tokio::{runtime::Runtime, task::yield_now};

use crate::{
    measure::{self, runtime},
    report::{Goal, Question},
    suite::Suite,
};

const EXCHANGES: usize = 20_000;
const TIMES: usize = 10;
const PEER: &str = "ours without limits";
/// A limit costs no more than this, beside what an exchange costs without one.
const GOAL: f64 = 1.05;
/// An exchange from end to end, in nanoseconds.
const WHOLE: f64 = 1_000.0;

const PLAIN: [&str; 3] =
    ["exchange: 4 callers", "exchange: 64 callers", "exchange: 20,000 callers, all at once"];
const STEP: [&str; 3] =
    ["step limit: 4 callers", "step limit: 64 callers", "step limit: 20,000 callers, all at once"];
const ROUTE: [&str; 3] =
    ["route limit: 4 callers", "route limit: 64 callers", "route limit: 20,000 callers, all at once"];

/// A context, and its route to be called.
struct Called {
    _context: Context,
    handle: Direct<u64, u64>,
}

async fn nothing(body: u64) -> Result<u64, Error> {
    yield_now().await;
    Ok(body)
}

impl Called {
    fn new(route: &Route<u64, u64>) -> Self {
        let context = Context::new();
        context.add(route).expect("the context is new");
        context.start().expect("nothing is wrong with it");
        let handle = context.direct(route.id()).expect("it is there");
        Called { _context: context, handle }
    }

    fn all() -> [Self; 3] {
        let plain = Route::new("plain").from(direct()).to(nothing).build();
        let step = Route::new("step").from(direct()).concurrency(Concurrency::max(64)).to(nothing).build();
        let route = Route::new("route").concurrency(Concurrency::max(64)).from(direct()).to(nothing).build();
        [plain, step, route].map(|route| Called::new(&route.expect("the options are right")))
    }

    /// The exchanges shared by so many callers, in nanoseconds for each: the time that the thread ran, ten times over.
    fn run(&self, runtime: &Runtime, callers: usize) -> f64 {
        let took: Duration = runtime.block_on(async {
            let start = cpu_time();
            for _ in 0..TIMES {
                self.call_all(callers).await;
            }
            cpu_time() - start
        });
        took.as_nanos() as f64 / (EXCHANGES * TIMES) as f64
    }

    async fn call_all(&self, callers: usize) {
        let tasks: Vec<_> = (0..callers)
            .map(|_| {
                let handle = self.handle.clone();
                tokio::spawn(async move {
                    for body in 0..(EXCHANGES / callers) as u64 {
                        black_box(handle.call(body).await.expect("nothing is in its way"));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("a caller does not panic");
        }
    }
}

pub(crate) fn run(suite: &mut Suite) {
    let runtime = runtime();
    let routes = Called::all();
    for (index, callers) in [4, 64, EXCHANGES].into_iter().enumerate() {
        if !suite.wants_any(&[PLAIN[index], STEP[index], ROUTE[index]]) {
            continue;
        }
        let rounds = suite.plan().rounds.max(9);
        let [plain, step, route] = measure::in_turn(rounds, |side| routes[side].run(&runtime, callers));
        // All at once, it is also the cost of twenty thousand tasks: for information.
        let is_wide = callers <= 64;
        let whole = Question::new(PLAIN[index], "ns");
        let whole = if is_wide { whole.goal(Goal::ours_at_most(WHOLE)) } else { whole };
        suite.add(whole.alone(plain));
        for (case, figure) in [(STEP[index], step), (ROUTE[index], route)] {
            let question = Question::new(case, "ns").against(PEER);
            let question = if is_wide { question.goal(Goal::at_most(GOAL)) } else { question };
            suite.add(question.beside(figure, plain));
        }
    }
}
