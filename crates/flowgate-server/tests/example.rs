//! The example, run: an upstream that collapses, with and without the gateway.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::process::Command;

#[test]
fn w1_the_gateway_keeps_the_fragile_upstream_within_its_bound() {
    // Seen to fail: with `max = 64` in docs/examples/fragile.toml, 64 are at the upstream at once.
    let here = std::env::current_exe().unwrap();
    let example = here.ancestors().nth(2).unwrap().join("examples/fragile_upstream");
    let output = Command::new(example).output();
    let output = output.expect("`cargo test` builds the examples first, unless only some targets are named");
    let told = String::from_utf8(output.stdout).unwrap();
    let most = |line: &str| -> usize {
        let line = told.lines().find(|told| told.contains(line)).unwrap_or_else(|| panic!("{told}"));
        line.split(',').next_back().unwrap().split_whitespace().next().unwrap().parse().unwrap()
    };
    assert!(output.status.success(), "{told}");
    // How near to the brim it gets is up to the machine.
    assert!((33..=128).contains(&most("directly")), "{told}");
    assert!((1..=32).contains(&most("by the gate")), "{told}");
}
