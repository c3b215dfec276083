//! Memory, as a process of its own counts it.
//!
//! An allocator that counts takes time from whoever allocates, so it stands in another binary of this crate
//! (`src/bin/memory.rs`); cargo builds and runs it, for `cargo run` builds only the one that was asked for.

use std::{
    collections::BTreeMap,
    env,
    process::{Command, Stdio},
};

use crate::{
    report::{Goal, Question},
    suite::Suite,
};

const KEPT: &str = "memory: kept after 1,000,000 keys came and went";
const KEPT_AT_ONCE: &str = "memory: kept after 1,000,000 lanes at once";
/// The names of the cases, and of the figure of each.
const LANES: [(&str, &str); 3] = [
    ("memory: a live lane, 1,000 at once", "1000"),
    ("memory: a live lane, 100,000 at once", "100000"),
    ("memory: a live lane, 1,000,000 at once", "1000000"),
];

pub(crate) fn run(suite: &mut Suite) {
    if !suite.wants_any(&[KEPT, KEPT_AT_ONCE, LANES[0].0, LANES[1].0, LANES[2].0]) {
        return;
    }
    let figures = match figures() {
        Ok(figures) => figures,
        Err(error) => return eprintln!("error: memory was not measured: {error}"),
    };
    let figure = |name: &str| figures.get(name).copied().unwrap_or(f64::NAN);
    let same = Goal::at_most(1.05);
    for (case, name) in [(KEPT, "kept"), (KEPT_AT_ONCE, "kept-at-once")] {
        let question = Question::new(case, "bytes").against("ours after 1,000").goal(same);
        suite.add(question.beside(figure(&format!("{name}-1000000")), figure(&format!("{name}-1000"))));
    }
    for (case, size) in LANES {
        let question = Question::new(case, "bytes").against("DashMap of tokio semaphores, an idle key");
        let question = question.goal(Goal::ours_at_most(128.0));
        suite.add(question.beside(figure(&format!("lane-{size}")), figure(&format!("peer-{size}"))));
    }
}

/// Runs the other binary and reads its lines: a name, a space, a number.
fn figures() -> Result<BTreeMap<String, f64>, String> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["run", "--quiet", "--bin", "flowgate-bench-memory"]);
    cargo.args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let output = cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cargo could not be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("flowgate-bench-memory ended with {}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let read = |line: &str| {
        let (name, number) = line.split_once(' ')?;
        Some((name.to_owned(), number.parse().ok()?))
    };
    text.lines().map(|line| read(line).ok_or_else(|| format!("`{line}` is not a figure"))).collect()
}
