//! Everything switched on: keys, a bounded queue, a label and a listener that counts.
//!
//! A hundred keys, so that no two entries in a row are of the same lane and all are warm.

use std::{
    convert::Infallible,
    future::ready,
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use flowgate::{
    Gate,
    gate::{Event, Listener, What},
};
use tokio::sync::Semaphore;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_resilience_bulkhead::BulkheadLayer;

use crate::{
    keys::{Walk, shuffled},
    measure::{awaits, runtime},
    report::{Goal, Question},
    suite::Suite,
};

const KEYS: u32 = 100;
const MAX: u32 = 8;

/// Counts what it hears.
#[derive(Clone, Default)]
struct Tally(Arc<Counts>);

#[derive(Default)]
struct Counts {
    acquired: AtomicU64,
    released: AtomicU64,
    other: AtomicU64,
}

impl Listener for Tally {
    fn on_event(&self, event: &Event<'_>) {
        let count = match event.what {
            What::Acquired { .. } => &self.0.acquired,
            What::Released { .. } => &self.0.released,
            _ => &self.0.other,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn wants_times(&self) -> bool {
        false
    }
}

pub(crate) fn run(suite: &mut Suite) {
    let tally = Tally::default();
    let gate = Gate::builder().max(MAX).queue(50).label("checkout").listener(tally.clone());
    let gate = gate.keyed().build().expect("the options are right");
    let keys = shuffled(KEYS);
    let runtime = runtime();

    let semaphore = Arc::new(Semaphore::new(MAX as usize));
    let mut walk = Walk::new(&keys);
    suite.duel(
        // 40 ns where tokio takes 22.
        Question::new("all features: enter", "ns").against("tokio acquire_owned").goal(Goal::at_most(1.82)),
        |loops| {
            awaits!(runtime, loops, {
                let pass = black_box(&gate).enter_key(walk.step()).await.expect("there is a slot");
                black_box(&pass);
            })
        },
        |loops| {
            awaits!(runtime, loops, {
                let permit = Arc::clone(black_box(&semaphore)).acquire_owned().await.expect("it is open");
                black_box(&permit);
            })
        },
    );

    let mut service = service_fn(|number: u64| ready(Ok::<u64, Infallible>(number + 1)));
    let (permitted, finished) = (Tally::default(), Tally::default());
    let (on_permitted, on_finished) = (permitted.clone(), finished.clone());
    let bulkhead = BulkheadLayer::builder()
        .name("checkout")
        .max_concurrent_calls(MAX as usize)
        .on_call_permitted(move |_| _ = on_permitted.0.acquired.fetch_add(1, Ordering::Relaxed))
        .on_call_finished(move |_| _ = on_finished.0.released.fetch_add(1, Ordering::Relaxed))
        .build();
    let mut bulkhead = bulkhead.expect("the options are right").layer(service);
    let mut walk = Walk::new(&keys);
    suite.duel(
        Question::new("all features: around a service", "ns")
            .against("tower-resilience bulkhead, listeners on"),
        |loops| {
            awaits!(runtime, loops, {
                let pass = black_box(&gate).enter_key(walk.step()).await.expect("there is a slot");
                let Ok(answer) = service.call(black_box(1)).await;
                black_box(answer);
                drop(pass);
            })
        },
        |loops| {
            awaits!(runtime, loops, {
                let ready = black_box(&mut bulkhead).ready().await.expect("the service is always ready");
                black_box(ready.call(black_box(1)).await.expect("there is a permit"));
            })
        },
    );

    // A listener that hears nothing would make these figures a lie.
    let heard = |count: &AtomicU64| count.load(Ordering::Relaxed);
    assert_eq!(heard(&tally.0.acquired), heard(&tally.0.released));
    assert_eq!(heard(&permitted.0.acquired), heard(&finished.0.released));
    assert_eq!(heard(&tally.0.other), 0);
}
