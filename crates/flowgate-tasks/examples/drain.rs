//! How fast the embedded store takes tasks in and drains them: `cargo run --release --example drain -- [tasks] [batch] [keys]`.
//!
//! With `keys` above 0 each task has one of that many keys, with a max of its own, and the queue and the cluster are capped.

use std::{env, io::Write};

use flowgate_core::Limits;
use flowgate_tasks::{
    NewTask,
    clock::{SystemWall, Wall},
    store::{End, NewWorker, QueueLimits, Settle, Sqlite, Store, Turn, Want},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<u32> = env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let (tasks, batch) =
        (numbers.first().copied().unwrap_or(200_000), numbers.get(1).copied().unwrap_or(500));
    let keys = numbers.get(2).copied().unwrap_or(0);
    let folder = env::temp_dir().join(format!("flowgate-drain-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let store = Sqlite::open(folder.join("tasks.db"))?;
    if keys > 0 {
        store.set_cluster_cap(Some(batch * 4)).await?;
        store
            .set_queue(QueueLimits { name: "default".to_owned(), priority: 1, max: Some(batch * 2) })
            .await?;
    }
    let limits = Limits::builder().max(batch).build()?;
    let from = SystemWall.now();
    for start in (0..tasks).step_by(1000) {
        let task = |number: u32| {
            let task = NewTask::new("nothing", b"{}".to_vec());
            if keys > 0 { task.key(format!("key-{}", number % keys)).limits(limits) } else { task }
        };
        store.send((start..tasks.min(start + 1000)).map(task).collect()).await?;
    }
    let sent = SystemWall.now().since(from);
    let lease = std::time::Duration::from_secs(60);
    let worker = NewWorker { name: "drain".to_owned(), slots: batch, queues: Vec::new(), lease };
    let worker = store.register(worker).await?;
    let (from, mut drained, mut turns, mut settles) = (SystemWall.now(), 0, 0, Vec::new());
    loop {
        let want = Some(Want { slots: batch, per_queue: batch, with_locks: true });
        let turned = store.turn(worker, Turn { settles, want }).await?;
        turns += 1;
        drained += turned.claimed.len();
        let end = || End::Done { result: Vec::new() };
        settles = turned.claimed.into_iter().map(|task| Settle { task, end: end() }).collect();
        if settles.is_empty() {
            break;
        }
    }
    let spent = SystemWall.now().since(from);
    let rate = |count: f64, span: std::time::Duration| count / span.as_secs_f64();
    writeln!(
        std::io::stdout(),
        "sent {:.0}/s; drained {drained} in {turns} turns, {:.0}/s",
        rate(f64::from(tasks), sent),
        rate(drained as f64, spent),
    )?;
    drop(store);
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
