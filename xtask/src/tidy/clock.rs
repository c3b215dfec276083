//! Only `clock.rs` reads time; everybody else is told what time it is.

use crate::offence::Offence;
use crate::read::{Source, Tree};

const READINGS: [&str; 3] = ["Instant::now", "SystemTime::now", "quanta::"];
/// Where wall time is the matter itself, or where the fake clock is made.
const FREE: [&str; 4] = ["bench/", "xtask/", "crates/flowgate-server/", "crates/flowgate-testkit/"];

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
            "crates/flowgate-server/src/a.rs",
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
            assert_eq!(check(&Tree::of([("crates/flowgate/src/a.rs", text)])).len(), 1, "{text}");
        }
    }
}
