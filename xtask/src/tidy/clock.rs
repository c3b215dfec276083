//! Only files named `clock.rs` read time; all others are told what time it is.
//!
//! `FREE` names the few places where wall time is the matter itself.

use crate::offence::Offence;
use crate::read::{Source, Tree};

const READINGS: [&str; 3] = ["Instant::now", "SystemTime::now", "quanta::"];
/// Where wall time is the matter itself, or where the fake clock is made.
const FREE: [&str; 8] = [
    "bench/",
    "xtask/",
    "crates/flowgate-testkit/",
    "crates/flowgate-server/examples/",
    // It naps, and says how long a request waited.
    "crates/flowgate-server/src/demo/",
    // It plays a workload by the clock on the wall.
    "crates/flowgate-server/src/simulate/real.rs",
    // A batch of spans is gathered for a moment.
    "crates/flowgate-server/src/traces/tracer.rs",
    // Child processes start, rest and are waited for.
    "crates/flowgate-server/src/worker/",
];

pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for source in tree.sources().iter().filter(|source| !may_read_time(source)) {
        for reading in READINGS {
            let advice = format!("`{reading}` belongs in a `clock.rs`: take `now` or a clock as an argument");
            let lines = source.lines_of(reading);
            offences.extend(
                lines.into_iter().map(|line| Offence::new(source.path(), line, "clock", advice.as_str())),
            );
        }
    }
    offences
}

fn may_read_time(source: &Source) -> bool {
    let path = source.path();
    source.file_name() == "clock.rs"
        || FREE.iter().any(|folder| path.starts_with(folder))
        || path.split('/').any(|part| part == "tests")
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::read::Tree;

    const READS: &str = "use std::time::Instant;\nfn a() { Instant::now(); }\n";

    #[test]
    fn the_clock_and_the_free_folders_may_read_time() {
        for path in [
            "crates/flowgate/src/gate/clock.rs",
            "crates/flowgate/tests/a.rs",
            "bench/src/a.rs",
            "crates/flowgate-server/src/worker/a.rs",
        ] {
            assert!(check(&Tree::of([(path, READS)])).is_empty(), "{path}");
        }
        assert!(
            check(&Tree::of([("crates/flowgate/src/a.rs", "// Instant::now\nfn a(now: Instant) {}")]))
                .is_empty()
        );
    }

    #[test]
    fn nobody_else_may() {
        for text in [
            READS,
            "SystemTime::now()",
            "use quanta::Clock;",
            "#[cfg(test)]\nmod t { fn a() { Instant::now(); } }",
        ] {
            for path in ["crates/flowgate/src/a.rs", "crates/flowgate-server/src/api/a.rs"] {
                assert_eq!(check(&Tree::of([(path, text)])).len(), 1, "{path}: {text}");
            }
        }
    }
}
