//! T6: tasks by the calendar, once for each moment, whoever sends them.

#![cfg(feature = "sqlite")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use flowgate_core::Tick;
use flowgate_tasks::{
    Crontab, NewTask,
    clock::Wall,
    store::{Of, Sqlite, Store},
};
use tokio::time::Instant;

/// A wall clock that goes with tokio's, which tests let run ahead.
struct Paused(Instant, u64);

impl Paused {
    /// One that shows so many seconds since 1970 now.
    fn at(seconds: u64) -> Arc<dyn Wall> {
        Arc::new(Paused(Instant::now(), seconds * 1_000_000_000))
    }
}

impl Wall for Paused {
    fn now(&self) -> Tick {
        Tick::from_nanos(self.1).after(self.0.elapsed())
    }
}

/// A moment of no schedule here: 2027-01-15 08:00:05 UTC.
const START: u64 = 1_800_000_005;

fn store() -> Arc<dyn Store> {
    Arc::new(Sqlite::in_memory().expect("a store"))
}

fn task(kind: &str) -> NewTask {
    NewTask::new(kind, Vec::new())
}

/// What was sent so far, by kind.
async fn sent(store: &Arc<dyn Store>) -> Vec<String> {
    let line = store.line(Of::All, 100).await.expect("the line");
    line.into_iter().map(|task| task.record.expect("it waits").kind).collect()
}

/// A second passes, and what is due by then is sent: what is written after it is behind it in the store's line.
async fn pass_a_second(store: &Arc<dyn Store>) {
    // Somebody is always busy here, so that time does not run ahead while the store writes.
    let busy = tokio::spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
    tokio::time::advance(Duration::from_secs(1)).await;
    for _ in 0..10 {
        tokio::task::yield_now().await;
        store.set_cluster_cap(None).await.expect("a store");
    }
    busy.abort();
}

#[tokio::test(start_paused = true)]
async fn t6_each_moment_is_sent_once_by_however_many_processes() {
    // Seen to fail: without a dedupe id, each moment was sent three times.
    let (store, wall) = (store(), Paused::at(START));
    let crontab = Crontab::new()
        .at("ten", "*/10 * * * * *", task("ten"))
        .and_then(|crontab| crontab.at("minute", "* * * * *", task("minute")))
        .expect("schedules");
    let running: Vec<_> =
        (0..3).map(|_| tokio::spawn(crontab.clone().run(Arc::clone(&store), Arc::clone(&wall)))).collect();
    for _ in 0..62 {
        pass_a_second(&store).await;
    }
    assert!(running.iter().all(|running| !running.is_finished()), "they go on for ever");
    assert_eq!(sent(&store).await, ["ten", "ten", "ten", "ten", "ten", "ten", "minute"]);
}

#[tokio::test(start_paused = true)]
async fn t6_the_last_moment_that_nobody_sent_is_made_up_for_if_asked() {
    // Seen to fail: with `backfill` left out of the first look, nothing was sent.
    let hourly = || Crontab::new().at("hourly", "0 * * * *", task("hourly")).expect("a schedule");
    for (backfill, is_sent) in [(0, false), (4, false), (3600, true), (100_000, true)] {
        let store = store();
        let crontab = hourly().backfill(Duration::from_secs(backfill));
        // Started again meanwhile: the moment is known.
        for _ in 0..2 {
            let run = crontab.clone().run(Arc::clone(&store), Paused::at(START));
            let _ = tokio::time::timeout(Duration::from_secs(1), run).await;
        }
        assert_eq!(sent(&store).await.len(), usize::from(is_sent), "{backfill} s");
    }
}

#[tokio::test(start_paused = true)]
async fn t6_a_store_that_does_not_take_what_is_due_is_told_once() {
    // Seen to fail: with nobody told, a schedule that was never sent looked like one that is.
    let folder = std::env::temp_dir().join(format!("flowgate-crontab-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(folder.join("tasks.db")).expect("a store"));
    // Nothing more is accepted by a store whose file is gone.
    std::fs::rename(folder.join("tasks.db"), folder.join("aside")).expect("put aside");
    let told = Arc::<Mutex<Vec<String>>>::default();
    let hears = Arc::clone(&told);
    let crontab = Crontab::new()
        .at("second", "* * * * * *", task("second"))
        .expect("a schedule")
        .listen(move |news| hears.lock().expect("whole").push(news.to_string()));
    let running = tokio::spawn(crontab.run(Arc::clone(&store), Paused::at(START)));
    // Somebody is always busy here, so that time does not run ahead while the store writes.
    let busy = tokio::spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
    for _ in 0..100 {
        tokio::time::advance(Duration::from_secs(1)).await;
        store.send(vec![task("another")]).await.expect_err("it takes nothing");
    }
    assert!(!running.is_finished(), "it is tried again");
    running.abort();
    busy.abort();
    std::fs::remove_dir_all(&folder).expect("removed");
    let told = told.lock().expect("whole").clone();
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(told[0].ends_with("retrying until it answers"), "{told:#?}");
}

#[test]
fn a_line_that_cannot_be_is_told() {
    let error = |name: &str, schedule: &str| {
        let twice = Crontab::new().at("one", "* * * * *", task("x")).expect("a schedule");
        twice.at(name, schedule, task("x")).expect_err("it cannot be").to_string()
    };
    assert!(
        error("one", "* * * * *")
            .contains("`name` is \"one\"; accepted: 1 to 128 bytes, and a different name for each line")
    );
    assert!(error("two", "* * * *").contains("* * * *"), "{}", error("two", "* * * *"));
}
