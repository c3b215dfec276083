//! All rules, run over one tree. The same run is a test, so the house cannot drift.

use super::{
    arrows, clock, dependencies, doors, error_pages, laws, leftovers, lines, links, locks, machine,
    module_docs, names, sizes,
};
use crate::offence::Offence;
use crate::read::Tree;

const RULES: [fn(&Tree) -> Vec<Offence>; 14] = [
    arrows::check,
    clock::check,
    dependencies::check,
    doors::check,
    error_pages::check,
    laws::check,
    leftovers::check,
    lines::check,
    links::check,
    locks::check,
    machine::check,
    module_docs::check,
    names::check,
    sizes::check,
];

/// Every offence against every rule, in order of place.
pub(crate) fn tidy(tree: &Tree) -> Vec<Offence> {
    let mut offences: Vec<_> = RULES.iter().flat_map(|rule| rule(tree)).collect();
    offences.sort();
    offences
}

#[cfg(test)]
mod tests {
    use super::tidy;
    use crate::offence::lines;
    use crate::read::Tree;
    use crate::root;

    #[test]
    fn the_house_is_tidy() {
        let tree = Tree::load(&root()).expect("the workspace can be read");
        let offences = lines(&tidy(&tree));
        assert!(offences.is_empty(), "\n\n{}\n\n", offences.join("\n"));
    }

    #[test]
    fn offences_come_in_order_of_place() {
        let tree = Tree::of([
            ("xtask/laws.txt", ""),
            ("crates/b/src/b.rs", "//! b\nfn get_b() { a.unwrap() }"),
            ("crates/a/src/a.rs", "fn a() {}"),
        ]);
        let offences = lines(&tidy(&tree));
        let starts: Vec<_> =
            offences.iter().map(|line| line.split(": ").take(2).collect::<Vec<_>>()).collect();
        assert_eq!(
            starts,
            [
                ["crates/a/src/a.rs:1", "module-docs"],
                ["crates/b/src/b.rs:2", "leftovers"],
                ["crates/b/src/b.rs:2", "names"]
            ]
        );
    }
}
