//! Arrows point down only: who may depend on whom, and what the pure crates may know.
//!
//! The plan is in ARCHITECTURE.md; this table is the same plan for a program. A crate without a room
//! in the table is an offence, so that nobody moves in without an arrow.

use crate::offence::Offence;
use crate::read::{Dependency, Kind, Manifest, Tree};

const RULE: &str = "arrows";
const TESTKIT: &str = "flowgate-testkit";

/// What one crate may depend on.
struct Room {
    package: &'static str,
    /// Crates of this workspace, below it.
    ours: &'static [&'static str],
    /// Crates of others.
    others: Others,
}

enum Others {
    Any,
    /// An allow list: for the code, and for its tests.
    Only {
        code: &'static [&'static str],
        tests: &'static [&'static str],
    },
    Except(&'static [&'static str]),
}

const ROOMS: [Room; 8] = [
    Room {
        package: "flowgate-core",
        ours: &[],
        // No runtime, no clock, no I/O: kept out by not being here.
        others: Others::Only { code: &["thiserror"], tests: &["proptest"] },
    },
    Room { package: "flowgate", ours: &["flowgate-core", "flowgate-tasks"], others: Others::Any },
    Room {
        package: "flowgate-tasks",
        ours: &["flowgate-core"],
        others: Others::Except(&[
            "axum",
            "http",
            "http-body",
            "hyper",
            "hyper-util",
            "reqwest",
            "tower-http",
            "ureq",
        ]),
    },
    Room {
        package: "flowgate-server",
        ours: &["flowgate", "flowgate-tasks", "flowgate-core"],
        others: Others::Any,
    },
    Room { package: TESTKIT, ours: &["flowgate", "flowgate-tasks", "flowgate-core"], others: Others::Any },
    Room {
        package: "flowgate-bench",
        ours: &["flowgate", "flowgate-tasks", "flowgate-core", TESTKIT],
        others: Others::Any,
    },
    // Ours beside its peers, in a workspace of its own.
    Room { package: "flowgate-bench-peers", ours: &["flowgate-tasks", "flowgate-core"], others: Others::Any },
    Room { package: "xtask", ours: &[], others: Others::Any },
];

pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for manifest in tree.manifests() {
        for dependency in manifest.dependencies.iter().filter(|dependency| dependency.renamed) {
            let name = &dependency.name;
            let advice = format!("`{name}` is a new name for another crate: use the crate's own name");
            offences.push(Offence::new(&manifest.path, dependency.line, RULE, advice));
        }
        offences.extend(judge(&manifest));
    }
    offences
}

fn judge(manifest: &Manifest) -> Vec<Offence> {
    let Some(package) = manifest.package.as_deref() else { return Vec::new() };
    let Some(room) = ROOMS.iter().find(|room| room.package == package) else {
        let advice = format!("`{package}` has no room yet: add it to ROOMS in xtask/src/tidy/arrows.rs");
        return vec![Offence::new(&manifest.path, 1, RULE, advice)];
    };
    let members = manifest.dependencies.iter().filter(|dependency| dependency.kind != Kind::Workspace);
    let breach = |dependency: &Dependency| {
        let advice = room.breach(dependency)?;
        Some(Offence::new(&manifest.path, dependency.line, RULE, advice))
    };
    members.filter_map(breach).collect()
}

impl Room {
    fn breach(&self, dependency: &Dependency) -> Option<String> {
        let Dependency { name, kind, .. } = dependency;
        let package = self.package;
        let is_test = *kind == Kind::Dev;
        if super::dependencies::is_ours(name) {
            let kit: &[&str] = match self.others {
                Others::Only { .. } => &[],
                _ if is_test => &[TESTKIT],
                _ => &[],
            };
            // What the code may know, its tests may know better, such as with more features.
            let below = [self.ours, kit].concat();
            let is_below = below.contains(&name.as_str());
            let tests = if is_test { "the tests of " } else { "" };
            return (!is_below).then(|| {
                format!("{tests}`{package}` may depend on {} of ours, not on `{name}`", list(&below))
            });
        }
        match self.others {
            Others::Only { code, tests } => {
                let allowed = if is_test { tests } else { code };
                (!allowed.contains(&name.as_str())).then(|| {
                    format!("`{package}` stays pure: {} may stand here, `{name}` may not", list(allowed))
                })
            }
            Others::Except(never) if never.contains(&name.as_str()) => Some(format!(
                "`{package}` knows no HTTP: `{name}` belongs in `flowgate` or `flowgate-server`"
            )),
            Others::Any | Others::Except(_) => None,
        }
    }
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { format!("`{}`", names.join("`, `")) }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::offence::lines;
    use crate::read::Tree;

    fn offences(package: &str, dependencies: &str) -> Vec<String> {
        let text = format!("[package]\nname = \"{package}\"\n{dependencies}\n");
        lines(&check(&Tree::of([("Cargo.toml", &text)])))
    }

    #[test]
    fn arrows_that_point_down_are_fine() {
        for (package, dependencies) in [
            ("flowgate-core", "[dependencies]\nthiserror = \"2\"\n[dev-dependencies]\nproptest = \"1\""),
            ("flowgate", "[dependencies]\nflowgate-core.workspace = true\nquanta = \"1\""),
            (
                "flowgate",
                "[dev-dependencies]\nflowgate-testkit.workspace = true\nflowgate-tasks.workspace = true",
            ),
            ("flowgate-tasks", "[dependencies]\nflowgate-core.workspace = true\ntokio = \"1\""),
            ("flowgate-server", "[dependencies]\nflowgate.workspace = true\naxum = \"1\""),
            ("flowgate-bench", "[dependencies]\nflowgate-testkit.workspace = true"),
        ] {
            assert!(offences(package, dependencies).is_empty(), "{package} {dependencies}");
        }
    }

    #[test]
    fn arrows_that_point_up_or_sideways_are_not() {
        for (package, dependencies) in [
            ("flowgate-core", "[dependencies]\nflowgate.workspace = true"),
            ("flowgate-core", "[dev-dependencies]\nflowgate-testkit.workspace = true"),
            ("flowgate", "[build-dependencies]\nflowgate-testkit.workspace = true"),
            ("flowgate", "[target.'cfg(unix)'.dependencies]\nflowgate-server.workspace = true"),
            ("flowgate", "[dev-dependencies]\nflowgate-server.workspace = true"),
            ("flowgate-tasks", "[dependencies]\nflowgate.workspace = true"),
            ("flowgate-server", "[dependencies]\nflowgate-testkit.workspace = true"),
            ("flowgate-bench", "[dependencies]\nflowgate-server.workspace = true"),
            ("xtask", "[dependencies.flowgate]\nworkspace = true"),
        ] {
            assert_eq!(offences(package, dependencies).len(), 1, "{package} {dependencies}");
        }
    }

    #[test]
    fn the_core_stays_pure_and_tasks_know_no_http() {
        for (package, dependencies) in [
            ("flowgate-core", "[dependencies]\ntokio = \"1\""),
            ("flowgate-core", "[target.'cfg(loom)'.dependencies]\nloom = \"1\""),
            ("flowgate-core", "[dev-dependencies]\ntokio = \"1\""),
            ("flowgate-tasks", "[dependencies]\nhyper = \"1\""),
        ] {
            assert_eq!(offences(package, dependencies).len(), 1, "{package} {dependencies}");
        }
        assert_eq!(
            offences("flowgate-core", "[dependencies]\nquanta = \"1\""),
            [
                "Cargo.toml:4: arrows: `flowgate-core` stays pure: `thiserror` may stand here, `quanta` may not"
            ]
        );
    }

    #[test]
    fn strangers_and_new_names_are_reported() {
        assert_eq!(offences("flowgate-new", "").len(), 1);
        assert_eq!(
            offences("flowgate", "[dependencies]\na = { package = \"hyper\", version = \"1\" }").len(),
            1
        );
    }
}
