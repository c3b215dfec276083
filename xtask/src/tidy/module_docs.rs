//! Every module opens with `//!`: what it owns, and what it must never do.

use crate::offence::Offence;
use crate::read::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    let silent = |text: &str| {
        let first = text.lines().map(str::trim).find(|line| !line.is_empty());
        !first.is_some_and(|line| line.starts_with("//!"))
    };
    let advice = "open the file with `//!`: what it owns, and what it must never do";
    let sources = tree.sources().iter().filter(|source| silent(source.text()));
    sources.map(|source| Offence::new(source.path(), 1, "module-docs", advice)).collect()
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::read::Tree;

    #[test]
    fn a_module_with_docs_is_fine() {
        assert!(check(&Tree::of([("a.rs", "\n//! Owns a.\n\nfn a() {}")])).is_empty());
    }

    #[test]
    fn a_module_without_docs_is_not() {
        for text in ["", "fn a() {}\n//! late", "// plain", "/// of the item\nfn a() {}"] {
            assert_eq!(check(&Tree::of([("a.rs", text)])).len(), 1, "{text}");
        }
    }
}
