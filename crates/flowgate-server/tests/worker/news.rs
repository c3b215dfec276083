//! What a worker says when something is wrong.

use std::time::Duration;

use flowgate_tasks::{NewTask, Retry};
use flowgate_testkit::postgres::{Options, Postgres};

use crate::{
    kit::{Place, on_both},
    program::{Worker, flowgate, folder, python},
};

const SCRIPT: &str = r#"
import json, sys
for line in sys.stdin:
    task = json.loads(line)
    error = "it is broken\nand more" if task["kind"] == "broken" else "x" * 1000
    print(json.dumps({"id": task["id"], "error": error}), flush=True)
"#;

#[test]
fn s1_a_task_that_is_dead_is_told_in_one_line() {
    // Seen to fail: as it was, nothing was said.
    let law = |place: &Place| {
        let mut worker = place.worker(&["--processes=1"], SCRIPT);
        let retry = Retry { max_attempts: 2, backoff: Duration::from_millis(1), ..Retry::default() };
        let ids = place.send(vec![
            NewTask::new("broken", b"null".to_vec()).key("acme").retry(retry),
            NewTask::new("long", b"null".to_vec()).queue("mail").retry(Retry { max_attempts: 1, ..retry }),
        ]);
        let (mut first, mut second) = (worker.until(" is dead"), worker.until(" is dead"));
        let failed = worker.said.iter().find(|line| line.contains("failed at start"));
        let told = format!(
            "task {} of queue default, key acme, failed at start 1 of 2, next in 1 ms: it is broken…",
            ids[0]
        );
        assert_eq!(failed, Some(&told), "{:#?}", worker.said);
        if first.contains("mail") {
            (first, second) = (second, first);
        }
        let told =
            format!("task {} of queue default, key acme, is dead after 2 attempts: it is broken…", ids[0]);
        assert_eq!(first, told);
        let told = format!("task {} of queue mail is dead after 1 attempt: {}…", ids[1], "x".repeat(200));
        assert_eq!(second, told);
    };
    on_both("news", law);
}

#[test]
fn s1_a_store_that_is_away_is_told_once_and_so_is_its_return() {
    // Seen to fail: as it was, nothing was said.
    let postgres = Postgres::start(Options::default()).expect("a server");
    let url = postgres.create_database("news_away").expect("a database");
    let mut command = flowgate(&folder("news-away"), &url);
    command.args(["worker", "--processes=1", "--"]).arg(python()).args(["-S", "-E", "-c", SCRIPT]);
    let mut worker = Worker::start(&mut command);
    postgres.stop().expect("it stops");
    let told = worker.until("retrying until it answers");
    assert!(told.starts_with("the store failed while "), "{told}");
    postgres.restart().expect("it starts again");
    worker.until("the store answers again");
    let times = worker.said.iter().filter(|line| line.contains("retrying until it answers")).count();
    assert_eq!(times, 1, "{:#?}", worker.said);
}
