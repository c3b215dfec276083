//! R5 over threads: exchanges that fail, panic, come too late and are given up at any moment, through gates inside of gates
//! and a route that calls another, while an operator changes the limits. Nothing stays behind.

use std::{
    future::{Future, poll_fn},
    panic::resume_unwind,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    task::Poll,
};

use flowgate::{
    Limits,
    route::{BoxError, Concurrency, Context, Direct, Door, Jitter, Retry, Route, direct, direct_to},
};
use tokio::time::timeout;

use crate::kit::{MS, tenant};

const CALLS: u32 = if cfg!(debug_assertions) { 60 } else { 400 };
/// The largest max that the operator sets for the inner route.
const MOST: u32 = 4;

/// Longer than it may take, however busy the machine: so that who is never woken fails.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(120);

/// It need not be a good generator.
#[derive(Clone, Copy)]
struct Random(u32);

impl Random {
    fn below(&mut self, most: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 16) % most
    }
}

/// Who is inside, for as long as it is.
struct Inside<'a>(&'a AtomicU32);

impl<'a> Inside<'a> {
    fn enter(count: &'a AtomicU32, most: u32) -> Self {
        let now = count.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(now <= most, "{now} are in at once");
        Inside(count)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Takes a while or not, fails or panics, before it is polled or after, as its number says.
fn work(
    inside: Arc<AtomicU32>,
) -> impl Fn(u32) -> std::pin::Pin<Box<dyn Future<Output = Result<u32, BoxError>> + Send>> {
    move |number| {
        let (inside, mut random) = (Arc::clone(&inside), Random(number));
        // A panic that the hook does not tell of.
        if random.below(40) == 0 {
            resume_unwind(Box::new("before it is polled"));
        }
        Box::pin(async move {
            let _inside = Inside::enter(&inside, MOST);
            let yields = match random.below(12) {
                0 => random.below(200),
                1 => std::future::pending().await,
                2 => resume_unwind(Box::new("while it is polled")),
                3 | 4 => return Err("it did not work".into()),
                few => few - 5,
            };
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
            Ok(number)
        })
    }
}

fn routes(inside: &Arc<AtomicU32>) -> (Route<u32, u32>, Route<String, u32>) {
    let inner = Route::new("inner")
        .concurrency(Concurrency::max(2))
        .from(direct())
        .to(work(Arc::clone(inside)))
        .build()
        .unwrap();
    let retry = |attempts| {
        let all = Retry::new().max_attempts(attempts).retry_on(|_| true);
        all.backoff(2 * MS).jitter(Jitter::Full)
    };
    let outer = Route::new("outer")
        .retry(retry(2))
        .timeout(20 * MS)
        .concurrency(Concurrency::max(4).max_queue(9))
        .concurrency(Concurrency::max(2).key(tenant).max_keys(300))
        .from(direct())
        .retry(retry(3))
        .concurrency(Concurrency::max(3))
        .split_at_once(
            2,
            |body: String| {
                let number = body.split(':').nth(1).map_or(0, |number| number.parse().unwrap());
                vec![number, number + 1, number + 2]
            },
            |part| part.concurrency(Concurrency::max(4)).timeout(9 * MS).to(direct_to::<u32, u32>("inner")),
        )
        .aggregate(|numbers: Vec<u32>| numbers.into_iter().fold(0, u32::wrapping_add))
        .build()
        .unwrap();
    (inner, outer)
}

/// Polls so often at most and gives up then, a while after it was polled last.
async fn within_polls<F: Future>(polls: u32, work: F) -> Option<F::Output> {
    let (mut work, mut left) = (pin!(work), polls);
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        cx.waker().wake_by_ref();
        work.as_mut().poll(cx).map(Some)
    })
    .await
}

async fn call(seed: u32, outer: Direct<String, u32>) -> u32 {
    let (mut random, mut done) = (Random(seed), 0);
    for _ in 0..CALLS {
        let body = format!("{}:{}", random.below(3), random.below(u32::from(u16::MAX)));
        let answer = match random.below(3) {
            0 => within_polls(random.below(12), outer.call(body)).await,
            _ => Some(outer.call(body).await),
        };
        done += u32::from(answer.is_some_and(|answer| answer.is_ok()));
    }
    done
}

async fn operate(context: &Context, is_over: &AtomicBool) {
    let (gates, mut random) = (context.gates(), Random(7));
    while !is_over.load(Ordering::SeqCst) {
        let (at, max) = (random.below(gates.len() as u32) as usize, 1 + random.below(MOST));
        let limits = Limits::builder().max(max).build().unwrap();
        match (&gates[at].gate, random.below(5)) {
            (Door::One(gate), 0) => gate.pause(),
            (Door::One(gate), 1 | 2) => gate.set_limits(limits),
            (Door::Many(gate), 0) => gate.set_limits(limits).unwrap(),
            _ => gates.iter().for_each(|gate| match &gate.gate {
                Door::One(gate) => gate.resume(),
                Door::Many(gate) => gate.resume(),
            }),
        }
        tokio::task::yield_now().await;
    }
}

// Seen to fail: with `Drop for Stub` doing nothing.
#[test]
fn r5_a_crowd_that_fails_panics_and_gives_up_leaves_nothing_behind() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_time().build().unwrap();
    let (inside, is_over) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let context = Arc::new(Context::new());
    let (inner, outer) = routes(&inside);
    context.add(&inner).unwrap();
    context.add(&outer).unwrap();
    context.start().unwrap();
    runtime.block_on(async {
        let outer = context.direct::<String, u32>("outer").unwrap();
        let calls: Vec<_> = (0..16).map(|seed| tokio::spawn(call(seed, outer.clone()))).collect();
        let operator = tokio::spawn({
            let (context, is_over) = (Arc::clone(&context), Arc::clone(&is_over));
            async move { operate(&context, &is_over).await }
        });
        let mut done = 0;
        for call in calls {
            done += timeout(PATIENCE, call).await.expect("it was woken").unwrap();
        }
        assert!(done > 0, "some got through");
        is_over.store(true, Ordering::SeqCst);
        operator.await.unwrap();
        timeout(PATIENCE, context.finished()).await.expect("none is under way");
    });
    assert_eq!(inside.load(Ordering::SeqCst), 0);
    for gate in context.gates() {
        let look = gate.gate.look();
        assert_eq!((look.in_use, look.waiting), (0, 0), "{gate:?}");
    }
}
