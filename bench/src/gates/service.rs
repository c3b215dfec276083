//! Entering around a service that answers at once, beside the limits of tower and its relatives.

use std::{convert::Infallible, future::ready, hint::black_box};

use flowgate::Gate;
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimit, service_fn};
use tower_resilience_bulkhead::BulkheadLayer;

use crate::{
    measure::{awaits, runtime},
    report::Question,
    suite::Suite,
};

const MAX: u32 = 8;

pub(crate) fn run(suite: &mut Suite) {
    let runtime = runtime();
    let service = service_fn(|number: u64| ready(Ok::<u64, Infallible>(number + 1)));
    let gate = Gate::builder().max(MAX).build().expect("the options are right");
    let ours = |loops| {
        let mut service = service;
        awaits!(runtime, loops, {
            let pass = black_box(&gate).enter().await.expect("there is a slot");
            let Ok(answer) = service.call(black_box(1)).await;
            black_box(answer);
            drop(pass);
        })
    };

    let mut limited = ConcurrencyLimit::new(service, MAX as usize);
    suite.duel(
        Question::new("service: concurrency limit", "ns").against("tower ConcurrencyLimit"),
        ours,
        |loops| {
            awaits!(runtime, loops, {
                let Ok(ready) = black_box(&mut limited).ready().await;
                let Ok(answer) = ready.call(black_box(1)).await;
                black_box(answer);
            })
        },
    );

    let bulkhead = BulkheadLayer::builder().max_concurrent_calls(MAX as usize).build();
    let mut bulkhead = bulkhead.expect("the options are right").layer(service);
    suite.duel(
        Question::new("service: bulkhead", "ns").against("tower-resilience bulkhead"),
        ours,
        |loops| {
            awaits!(runtime, loops, {
                let ready = black_box(&mut bulkhead).ready().await.expect("the service is always ready");
                let answer = ready.call(black_box(1)).await.expect("there is a permit");
                black_box(answer);
            })
        },
    );
}
