//! spike
use flowgate_core::Limits;
use flowgate_tasks::{Client, NewTask, store::*, worker::*};
use flowgate_testkit::postgres::{Options, Postgres as Pg};
use std::{
    sync::Arc,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};
#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let n: usize = args[1].parse().unwrap();
    let keys: usize = args[2].parse().unwrap();
    let slots: u32 = args[3].parse().unwrap();
    let kind = args.get(4).map(|s| s.as_str()).unwrap_or("pg");
    let pg;
    let store: Arc<dyn Store> = if kind == "pg" {
        pg = Some(Pg::start(Options::default()).unwrap());
        let url = pg.as_ref().unwrap().create_database("spike").unwrap();
        Arc::new(Postgres::connect(&url).await.unwrap())
    } else {
        pg = None;
        let _ = std::fs::remove_file("/tmp/spike.db");
        Arc::new(Sqlite::open("/tmp/spike.db").unwrap())
    };
    let _ = &pg;
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
                let t = NewTask::new("noop", b"1".to_vec());
                if keys > 0 { t.key(format!("k{}", i % keys)).limits(limits) } else { t }
            })
            .collect();
        store.send(tasks).await.unwrap();
    }
    println!("insert {:.0}/s", n as f64 / t.elapsed().as_secs_f64());
    let count = Arc::new(AtomicUsize::new(0));
    let c2 = count.clone();
    let (tx, rx) = tokio::sync::oneshot::channel::<()>();
    let tx = std::sync::Mutex::new(Some(tx));
    let handlers = Handlers::new().on("noop", move |_: u32| {
        let c = c2.fetch_add(1, Ordering::Relaxed) + 1;
        if c == n {
            tx.lock().unwrap().take().unwrap().send(()).unwrap();
        }
        async move { Ok::<_, Failure>(()) }
    });
    let t = Instant::now();
    let w = Worker::new(store.clone(), handlers, WorkerOptions { processes: slots, ..Default::default() })
        .unwrap();
    let e = w
        .run(async {
            let _ = rx.await;
        })
        .await
        .unwrap();
    println!("drained {:.0}/s {e:?}", n as f64 / t.elapsed().as_secs_f64());
    println!("audit {:?}", store.audit().await.unwrap());
    // single sends 16 callers
    let client = Client::new(store.clone());
    let t = Instant::now();
    let mut set = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let c = client.clone();
        set.spawn(async move {
            for _ in 0..250 {
                c.send(NewTask::new("noop", b"1".to_vec())).await.unwrap();
            }
        });
    }
    while set.join_next().await.is_some() {}
    println!("single sends {:.0}/s", 4000.0 / t.elapsed().as_secs_f64());
    // latency
    let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel::<Instant>();
    let handlers = Handlers::new().on("noop", move |_: u32| async move { Ok::<_, Failure>(()) }).on(
        "lat",
        move |_: u32| {
            tx.send(Instant::now()).unwrap();
            async move { Ok::<_, Failure>(()) }
        },
    );
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let w =
        Worker::new(store.clone(), handlers, WorkerOptions { processes: 16, ..Default::default() }).unwrap();
    let h = tokio::spawn(w.run(async {
        let _ = stopped.await;
    }));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut lats = vec![];
    for _ in 0..100 {
        let t = Instant::now();
        client.send(NewTask::new("lat", b"1".to_vec())).await.unwrap();
        let s = rx.recv().await.unwrap();
        lats.push((s - t).as_secs_f64() * 1e3);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    lats.sort_by(|a, b| a.total_cmp(b));
    println!("latency p50 {:.2} p99 {:.2} ms", lats[50], lats[98]);
    stop.send(()).unwrap();
    h.await.unwrap().unwrap();
}
