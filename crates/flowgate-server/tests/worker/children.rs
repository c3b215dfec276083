//! Child processes that misbehave: each is told, mended, and costs nobody else anything.

use std::time::Duration;

use flowgate_tasks::{NewTask, Retry, store::State};

use crate::kit::Place;

/// Does what the kind says.
const SCRIPT: &str = r#"
import json, os, sys, time
for line in sys.stdin:
    task = json.loads(line)
    kind, answer = task["kind"], {"id": task["id"]}
    if kind == "die" and task["attempt"] < 2: sys.exit(3)
    if kind == "crash": os.abort()
    if kind == "rubbish": answer = "hello"
    if kind == "other": answer["id"] += 1
    if kind == "long": sys.stdout.write("x" * (17 << 20)); sys.stdout.flush(); time.sleep(60)
    if kind == "close": os.close(1); time.sleep(60)
    if kind == "hang": os.system("sleep 600 & sleep 600")
    if kind == "fail": answer["error"] = "it is broken"
    if kind == "last": answer.update(error="it stays broken", retry=False)
    if kind == "log": print("first\nsecond", file=sys.stderr, flush=True)
    if kind == "pid": answer["result"] = os.getpid()
    if kind == "echo": answer["result"] = {k: v for k, v in task.items() if k != "id"}
    print(json.dumps(answer), flush=True)
"#;

fn task(kind: &str) -> NewTask {
    NewTask::new(kind, br#"{"a": [1, "two"]}"#.to_vec()).keep_result(Duration::from_secs(600))
}

/// One that is tried so often, without a wait in between.
fn tried(kind: &str, attempts: u32) -> NewTask {
    task(kind).retry(Retry { max_attempts: attempts, backoff: Duration::from_millis(1), ..Retry::default() })
}

fn result(state: &State) -> serde_json::Value {
    match state {
        State::Done { result } => serde_json::from_slice(result).expect("a result is JSON"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn t7_a_process_that_dies_is_started_again_and_its_task_is_tried_again() {
    // Seen to fail: with a process that ended left in its seat, every further task fails.
    let place = Place::sqlite("dying");
    let mut worker = place.worker(&["--processes=1"], SCRIPT);
    let ids = place.send(vec![tried("die", 3), tried("echo", 1)]);
    let ends = place.ends(&ids);
    assert_eq!(result(&ends[0]), serde_json::Value::Null);
    assert_eq!(result(&ends[1])["kind"], "echo");
    worker
        .until("[1] its process ended (exit status: 3) before it had answered; it is started again in 100ms");
    let dead = place.send(vec![tried("crash", 1)]);
    let error = place.error(dead[0]);
    assert!(error.starts_with("its process ended (signal: 6"), "{error}");
    worker.until("it is started again at once");
}

#[test]
fn t7_a_line_that_is_no_answer_fails_its_task_with_the_line() {
    // Seen to fail: with the process kept, the next task gets the rest of what it wrote.
    let place = Place::sqlite("rubbish");
    let _worker = place.worker(&["--processes=1"], SCRIPT);
    for (kind, told) in [
        (
            "rubbish",
            "its process wrote `\"hello\"`, which is no answer (invalid type: string \"hello\", expected struct Answer",
        ),
        ("other", "which is no answer (it is for task "),
        ("long", "its process wrote a line of more than 16778240 bytes, which is no answer"),
        ("close", "its process ended (it closed its standard output) before it had answered"),
        ("fail", "it is broken"),
    ] {
        let ids = place.send(vec![tried(kind, 1), tried("echo", 1)]);
        let error = place.error(ids[0]);
        assert!(error.contains(told), "{kind}: {error}");
        assert_eq!(result(&place.ends(&ids[1..])[0])["kind"], "echo", "after {kind}");
    }
    let ids = place.send(vec![tried("last", 5)]);
    assert_eq!(place.error(ids[0]), "it stays broken");
    let look = place.wait(place.store.look_at_task(ids[0])).expect("it answers").expect("it is dead");
    assert_eq!(look.attempt, 1, "no other attempt can help");
}

#[test]
fn t7_a_task_that_takes_too_long_is_killed_with_all_that_it_started() {
    // Seen to fail: with the process killed and not its group, two `sleep` of the group are left.
    let place = Place::sqlite("timeout");
    let _worker = place.worker(&["--processes=1"], SCRIPT);
    let ids = place.send(vec![
        tried("pid", 1),
        tried("hang", 1).timeout(Duration::from_millis(300)),
        tried("pid", 1),
    ]);
    let group = result(&place.ends(&ids[..1])[0]).to_string();
    assert_eq!(place.error(ids[1]), "it took longer than its timeout of 300ms");
    let next = result(&place.ends(&ids[2..])[0]).to_string();
    assert_ne!(group, next, "another process");
    place.wait(async {
        // What was killed is seen until somebody has waited for it.
        let mut look = tokio::time::interval(Duration::from_millis(20));
        let left =
            || std::process::Command::new("pgrep").args(["-g", &group]).output().expect("there is a `pgrep`");
        while !left().stdout.is_empty() {
            look.tick().await;
        }
    });
}

#[test]
fn t7_a_task_comes_as_a_line_of_json_and_standard_error_is_passed_on() {
    // Seen to fail: with the attempt counted from 0, and with a line of standard error without its number.
    let place = Place::sqlite("lines");
    let mut worker = place.worker(&["--processes=1"], SCRIPT);
    let ids = place.send(vec![task("echo"), task("log")]);
    let asked = serde_json::json!({ "kind": "echo", "attempt": 1, "body": { "a": [1, "two"] } });
    assert_eq!(result(&place.ends(&ids)[0]), asked);
    worker.until("[1] first");
    worker.until("[1] second");
}
