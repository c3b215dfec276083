//! An error that a user can meet has a code, and each code has a page in `docs/errors/`.

use std::collections::BTreeSet;

use crate::offence::Offence;
use crate::read::Tree;

const CORE: &str = "crates/flowgate-core/src/";

pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    let mut seen = BTreeSet::new();
    let mut offences = Vec::new();
    for source in tree.sources().iter().filter(|source| source.path().starts_with(CORE)) {
        for (number, line) in (1..).zip(source.text().lines()) {
            for code in codes(line) {
                let page = format!("docs/errors/{code}.md");
                if seen.insert(code) && !tree.holds(&page) {
                    let advice = format!("write {page}: what {code} means and what to do about it");
                    offences.push(Offence::new(source.path(), number, "error-pages", advice));
                }
            }
        }
    }
    offences
}

/// The words of a line that are `RC` and four digits.
fn codes(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|character: char| !character.is_ascii_alphanumeric());
    words.filter(|word| {
        let digits = word.strip_prefix("RC").unwrap_or_default();
        digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::offence::lines;
    use crate::read::Tree;

    const SOURCE: (&str, &str) =
        ("crates/flowgate-core/src/error.rs", "// RC5003\nconst A: &str = \"RC5003\"; // RC12\n");

    #[test]
    fn a_code_with_a_page_is_fine() {
        assert!(check(&Tree::of([SOURCE, ("docs/errors/RC5003.md", "")])).is_empty());
    }

    #[test]
    fn a_code_without_a_page_is_reported_once() {
        let offences = lines(&check(&Tree::of([SOURCE])));
        assert_eq!(offences.len(), 1);
        assert!(offences[0].contains("write docs/errors/RC5003.md"));
    }
}
