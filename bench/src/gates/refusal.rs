//! What a refusal costs. For information: ours says who refused, why and when to come again; the peers say no.

use std::{hint::black_box, num::NonZeroU32, sync::Arc};

use flowgate::Gate;
use governor::{Quota, RateLimiter};
use tokio::sync::Semaphore;

use crate::{measure::calls, report::Question, suite::Suite};

pub(crate) fn run(suite: &mut Suite) {
    let full = Gate::builder().max(1).reject().build().expect("the options are right");
    let _pass = full.try_enter().expect("there is a slot");
    let empty = Arc::new(Semaphore::new(0));
    suite.duel(
        Question::new("refusal: full", "ns").against("tokio try_acquire_owned"),
        |loops| {
            calls(loops, || {
                let refusal = black_box(&full).try_enter().expect_err("it is full");
                black_box(&refusal);
            })
        },
        |loops| {
            calls(loops, || {
                let refused = Arc::clone(black_box(&empty)).try_acquire_owned();
                black_box(&refused.expect_err("it is empty"));
            })
        },
    );

    let spent = Gate::builder().rate(1, "1h").burst(1).build().expect("the options are right");
    let governor = RateLimiter::direct(Quota::per_hour(NonZeroU32::MIN));
    spent.check().expect("the first may start");
    governor.check().expect("the first may start");
    suite.duel(
        Question::new("refusal: rate", "ns").against("governor direct"),
        |loops| {
            calls(loops, || {
                let refusal = black_box(&spent).check().expect_err("it is spent");
                black_box(&refusal);
            })
        },
        |loops| {
            calls(loops, || {
                let refusal = black_box(&governor).check().expect_err("it is spent");
                black_box(&refusal);
            })
        },
    );
}
