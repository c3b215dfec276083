//! The example, run.

use std::process::Command;

#[test]
fn r3_the_example_reserves_all_and_bounds_them() {
    // Seen to fail: with `.concurrency(…)` taken off the example, twenty are in flight at once.
    let here = std::env::current_exe().unwrap();
    let target = here.parent().unwrap().parent().unwrap();
    let output = Command::new(target.join("examples/reserve_inventory")).output();
    let output = output.expect("`cargo test` builds the examples first, unless only some targets are named");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("20 orders reserved, the last one: receipt: order 20, reserved"), "{text}");
    let most = text.split_once("at most ").unwrap().1.split(' ').next().unwrap().parse().unwrap();
    assert!((1..=5).contains(&most), "{text}");
    assert!(text.contains("shut down cleanly: true"), "{text}");
}
