//! spike
use flowgate_core::Limits;
use flowgate_tasks::{NewTask, store::*};
use flowgate_testkit::postgres::{Options, Postgres as Pg};
use std::time::{Duration, Instant};
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let n: usize = args[1].parse().unwrap();
    let keys: usize = args[2].parse().unwrap();
    let batch: u32 = args[3].parse().unwrap();
    let pg = Pg::start(Options::default()).unwrap();
    let url = pg.create_database("spike").unwrap();
    let store = Postgres::connect(&url).await.unwrap();
    let limits = Limits::builder().max(200).build().unwrap();
    if keys > 0 {
        store.set_cluster_cap(Some(2000)).await.unwrap();
        store.set_queue(QueueLimits { name: "default".into(), priority: 1, max: Some(1500) }).await.unwrap();
    }
    let t = Instant::now();
    for chunk in (0..n).collect::<Vec<_>>().chunks(5000) {
        let tasks = chunk
            .iter()
            .map(|i| {
                let t = NewTask::new("noop", b"{}".to_vec());
                if keys > 0 { t.key(format!("k{}", i % keys)).limits(limits) } else { t }
            })
            .collect();
        store.send(tasks).await.unwrap();
    }
    println!("insert {:.0}/s", n as f64 / t.elapsed().as_secs_f64());
    let w = store
        .register(NewWorker {
            name: "w".into(),
            slots: batch,
            queues: vec![],
            lease: Duration::from_secs(15),
        })
        .await
        .unwrap();
    let t = Instant::now();
    let mut done = 0;
    let mut turns = 0;
    let mut settles = vec![];
    let mut locks = true;
    loop {
        let turn = Turn {
            settles: std::mem::take(&mut settles),
            want: Some(Want { slots: batch, per_queue: u32::MAX, with_locks: locks }),
        };
        let r = store.turn(w, turn).await.unwrap();
        turns += 1;
        locks = r.again == Again::WithLocks && r.claimed.is_empty();
        if r.claimed.is_empty() && !locks {
            if done >= n {
                break;
            }
        }
        done += r.claimed.len();
        settles =
            r.claimed.into_iter().map(|task| Settle { task, end: End::Done { result: vec![] } }).collect();
    }
    println!("drained {:.0}/s in {turns} turns {done}", done as f64 / t.elapsed().as_secs_f64());
    println!("audit {:?}", store.audit().await.unwrap());
}
