//! Each dependency is chosen on purpose: every crate of others has a line that says why.

use std::collections::BTreeSet;

use crate::offence::Offence;
use crate::read::Tree;

const RULE: &str = "dependencies";
const PAGE: &str = "docs/dependencies.md";

pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    let page = tree.text(PAGE).unwrap_or_default();
    let mut seen = BTreeSet::new();
    let mut offences = Vec::new();
    for manifest in tree.manifests() {
        for dependency in &manifest.dependencies {
            let name = &dependency.name;
            if is_ours(name) || page.contains(&format!("`{name}`")) || !seen.insert(name.clone()) {
                continue;
            }
            let advice = format!("say in {PAGE} why `{name}` is here");
            offences.push(Offence::new(&manifest.path, dependency.line, RULE, advice));
        }
    }
    offences
}

/// Whether a crate is one of this workspace.
pub(super) fn is_ours(package: &str) -> bool {
    package == "xtask" || package == "flowgate" || package.starts_with("flowgate-")
}

#[cfg(test)]
mod tests {
    use super::{PAGE, check};
    use crate::offence::lines;
    use crate::read::Tree;

    const WORKSPACE: &str = "[workspace.dependencies]\nflowgate = { path = \"x\" }\nquanta = \"1\"\n";

    #[test]
    fn a_dependency_with_a_reason_is_fine() {
        let tree = Tree::of([("Cargo.toml", WORKSPACE), (PAGE, "| `quanta` | reads the clock |")]);
        assert!(check(&tree).is_empty());
    }

    #[test]
    fn one_without_a_reason_is_reported_once() {
        let member = "[dependencies]\nquanta.workspace = true\n";
        let tree = Tree::of([("Cargo.toml", WORKSPACE), ("a/Cargo.toml", member), (PAGE, "quanta")]);
        assert_eq!(
            lines(&check(&tree)),
            ["Cargo.toml:3: dependencies: say in docs/dependencies.md why `quanta` is here"]
        );
    }
}
