//! The project stands on its own: no path of one machine, no address of a package registry.
//!
//! The needles are spelled in halves, so that this file does not find itself.

use crate::offence::Offence;
use crate::read::Tree;

const RULE: &str = "machine";
const PATHS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
const REGISTRIES: [&str; 5] = [
    concat!("https://crates", ".io"),
    concat!("index.crates", ".io"),
    concat!("static.crates", ".io"),
    concat!("registry.npmjs", ".org"),
    concat!("pypi", ".org"),
];

pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (path, text) in tree.texts() {
        for (number, line) in (1..).zip(text.lines()) {
            let paths = PATHS.iter().filter(|needle| begins_a_path(line, needle));
            let paths = paths.map(|needle| format!("`{needle}` is a path of one machine: make it relative"));
            let registries = REGISTRIES.iter().filter(|needle| line.contains(**needle));
            let registries =
                registries.map(|needle| format!("`{needle}` is a registry: name the package alone"));
            offences.extend(paths.chain(registries).map(|advice| Offence::new(path, number, RULE, advice)));
        }
    }
    offences
}

/// Whether `needle` stands in `line` as the start of a path, not as a part of a longer one or of a URL,
/// and something follows it.
fn begins_a_path(line: &str, needle: &str) -> bool {
    line.match_indices(needle).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + needle.len()..].chars().next();
        let is_name = |character: char| character.is_alphanumeric() || "_-.~$*{}".contains(character);
        !before.is_some_and(is_name) && after.is_some_and(is_name)
    })
}

#[cfg(test)]
mod tests {
    use super::{PATHS, REGISTRIES, check};
    use crate::read::Tree;

    fn count(text: &str) -> usize {
        check(&Tree::of([("docs/a.md", text)])).len()
    }

    #[test]
    fn relative_paths_and_other_addresses_are_fine() {
        let text = concat!("see src/wo", "rk/a.rs, https://a.b/ho", "me/x, `/wo", "rk/`, https://rustup.rs");
        assert_eq!(count(text), 0);
    }

    #[test]
    fn paths_of_one_machine_and_registries_are_not() {
        for path in PATHS {
            assert_eq!(count(&format!("cd {path}x")), 1, "{path}");
            assert_eq!(count(&format!("\"{path}.cargo\"")), 1, "{path}");
        }
        for registry in REGISTRIES {
            assert_eq!(count(&format!("from {registry}/a")), 1, "{registry}");
        }
    }
}
