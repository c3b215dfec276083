//! The examples, run.

use std::process::Command;

#[test]
fn h1_the_example_serves_both_clients_and_bounds_the_greedy_one() {
    // Seen to fail: with `.layer(per_client)` taken off the example, the greedy client gets 6 x 200.
    let here = std::env::current_exe().unwrap();
    let target = here.parent().unwrap().parent().unwrap();
    let output = Command::new(target.join("examples/axum_limits")).output();
    let output = output.expect("`cargo test` builds the examples first, unless only some targets are named");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("greedy: 4 x 200, 2 x 429"), "{text}");
    assert!(text.contains("modest: 2 x 200"), "{text}");
}
