//! The examples of the guide, with the real interpreters.

use std::{fs, process::Command};

use crate::{kit::Place, program::Worker};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples");

fn works(interpreter: &str, file: &str) {
    let path = format!("{EXAMPLES}/{file}");
    let lines = fs::read_to_string(&path).expect("there is such an example").lines().count();
    assert!(lines < 20, "{lines} lines");
    let place = Place::sqlite(&format!("example-{interpreter}"));
    let found = Command::new(interpreter).arg("--version").output();
    assert!(found.is_ok_and(|found| found.status.success()), "{interpreter} is installed: ./test does so");
    let mut worker =
        Worker::start(&mut place.flowgate(&["worker", "--processes=2", "--", interpreter, &path]));
    let sent = place.told(&["send", "--wait", "resize", r#"{"image": 7}"#]);
    let result: serde_json::Value = serde_json::from_str(&sent).expect("a result is JSON");
    assert_eq!(result, serde_json::json!({ "image": 7, "width": 640 }));
    worker.until("] resizing 7");
    let said = place.run(&["send", "--wait", "--retries=0", "crop"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains(" failed: no handler for kind 'crop'"), "{said:?}");
}

#[test]
fn t7_the_python_example_works() {
    // Seen to fail: without `flush=True`, its answer stays in a buffer.
    works("python3", "worker.py");
}

#[test]
fn t7_the_node_example_works() {
    // Seen to fail: with the answer's `id` left out.
    works("node", "worker.mjs");
}
