//! A workspace beside the main one has a lock of its own, and what is built there is built as that says. So it has to
//! know what our crates depend on, also those that they began to depend on since.

use crate::offence::Offence;
use crate::read::{Kind, Tree};

const RULE: &str = "locks";

pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for manifest in tree.manifests() {
        let Some(package) = manifest.package.as_deref() else { continue };
        let text = tree.text(&manifest.path).unwrap_or_default();
        let is_optional =
            |line: usize| text.lines().nth(line - 1).is_some_and(|text| text.contains("optional"));
        for (lock, known) in tree.texts().filter(|(path, _)| path.ends_with("/Cargo.lock")) {
            let Some(known) = needs_of(package, known) else { continue };
            // What is optional is known there only if it is asked for.
            let needed = manifest.dependencies.iter().filter(|needed| needed.kind == Kind::Normal);
            for needed in needed.filter(|needed| !is_optional(needed.line)) {
                if !known.contains(&needed.name.as_str()) {
                    let advice = format!(
                        "{lock} does not know that `{package}` needs `{}`: build there without `--locked`",
                        needed.name
                    );
                    offences.push(Offence::new(&manifest.path, needed.line, RULE, advice));
                }
            }
        }
    }
    offences
}

/// What a package needs, as a lock has it; `None` if it is not in there.
fn needs_of<'lock>(package: &str, lock: &'lock str) -> Option<Vec<&'lock str>> {
    let name = format!("name = \"{package}\"");
    let entry = lock.split("[[package]]").find(|entry| entry.lines().any(|line| line == name))?;
    // ` "name",`, or ` "name version",` where there are several of one name.
    let quoted = entry.lines().filter_map(|line| line.strip_prefix(" \"")?.split(['"', ' ']).next());
    Some(quoted.collect())
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::offence::lines;
    use crate::read::Tree;

    const MANIFEST: &str = "[package]\nname = \"flowgate-x\"\n[dependencies]\nbytes = \"1\"\nodd = { version = \"1\", \
        optional = true }\n\
        [dev-dependencies]\nproptest = \"1\"\n";
    const LOCK: &str = "[[package]]\nname = \"bytes\"\nversion = \"1.0.0\"\n\n[[package]]\nname \
        = \"flowgate-x\"\ndependencies = [\n";

    fn with(needs: &str) -> Vec<String> {
        let lock = format!("{LOCK}{needs}]\n");
        lines(&check(&Tree::of([("x/Cargo.toml", MANIFEST), ("beside/Cargo.lock", &lock)])))
    }

    #[test]
    fn a_lock_that_knows_all_that_is_needed_is_fine() {
        assert!(with(" \"bytes\",\n").is_empty());
        assert!(with(" \"ahash\",\n \"bytes 1.0.0\",\n").is_empty());
    }

    #[test]
    fn one_that_does_not_is_reported() {
        assert_eq!(
            with(" \"byte\",\n"),
            [
                "x/Cargo.toml:4: locks: beside/Cargo.lock does not know that `flowgate-x` needs `bytes`: build there \
                    without `--locked`"
            ]
        );
        let without =
            Tree::of([("x/Cargo.toml", MANIFEST), ("beside/Cargo.lock", "[[package]]\nname = \"bytes\"\n")]);
        assert!(check(&without).is_empty(), "it is not built there");
    }
}
