//! Every law has a test, and every test of a law says how it was seen to fail.
//!
//! The laws are listed in `xtask/laws.txt`, which also says what a test of a law looks like.

use std::collections::BTreeSet;

use crate::offence::Offence;
use crate::read::{Function, Source, Tree};

const RULE: &str = "laws";
const LIST: &str = "xtask/laws.txt";
const PROOF: &str = "Seen to fail:";

struct Law<'text> {
    number: &'text str,
    name: &'text str,
    line: usize,
}

pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    let Some(list) = tree.text(LIST) else {
        return vec![Offence::new(LIST, 1, RULE, "the list of laws is missing: add the file")];
    };
    let laws = read(list);
    let mut held = BTreeSet::new();
    let mut offences = Vec::new();
    for source in tree.sources().iter().filter(|source| source.path().starts_with("crates/")) {
        for test in source.functions().iter().filter(|function| function.is_test) {
            let Some(number) = law_number(&test.name) else { continue };
            held.insert(number.to_owned());
            offences.extend(judge(source, test, number, &laws));
        }
    }
    let missing = laws.iter().filter(|law| !held.contains(law.number));
    offences.extend(missing.map(|Law { number, name, line }| {
        let advice =
            format!("law {number} ({name}) has no test: write one whose name begins with `{number}_`");
        Offence::new(LIST, *line, RULE, advice)
    }));
    offences
}

fn judge(source: &Source, test: &Function, number: &str, laws: &[Law<'_>]) -> Option<Offence> {
    let name = &test.name;
    let advice = if !laws.iter().any(|law| law.number == number) {
        // `n1_` may be a name of its own; `g99_` where there are g laws is a slip.
        let is_slip = laws.iter().any(|law| law.number.starts_with(letters(number)));
        is_slip.then(|| format!("`{name}` tests law {number}, which {LIST} does not list"))?
    } else {
        let mut lines = source.text().lines().skip(test.head - 1).take(test.last + 1 - test.head);
        let is_proof = |line: &str| line.split_once("//").is_some_and(|(_, comment)| comment.contains(PROOF));
        (!lines.any(is_proof)).then(|| {
            format!("break the code, see `{name}` fail, and say how in a comment that begins `{PROOF}`")
        })?
    };
    Some(Offence::new(source.path(), test.first, RULE, advice))
}

fn read(list: &str) -> Vec<Law<'_>> {
    let lines = (1..).zip(list.lines().map(str::trim));
    let laws = lines.filter(|(_, text)| !text.is_empty() && !text.starts_with('#'));
    laws.map(|(line, text)| {
        let (number, name) = text.split_once(' ').unwrap_or((text, ""));
        Law { number, name: name.trim(), line }
    })
    .collect()
}

/// `g12` of `g12_two_places_are_named`.
fn law_number(name: &str) -> Option<&str> {
    let (number, _) = name.split_once('_')?;
    let letters = letters(number);
    let digits = &number[letters.len()..];
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    (!letters.is_empty() && is_number).then_some(number)
}

fn letters(number: &str) -> &str {
    number.trim_end_matches(|character: char| character.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::{LIST, check};
    use crate::offence::lines;
    use crate::read::Tree;

    const LAWS: (&str, &str) = (LIST, "# laws\n\ng1 bound\n");

    fn offences(text: &str) -> Vec<String> {
        lines(&check(&Tree::of([LAWS, ("crates/flowgate/tests/a.rs", text)])))
    }

    #[test]
    fn a_law_with_a_proven_test_is_fine() {
        for text in [
            "/// Seen to fail: so.\n#[test]\nfn g1_a() {}",
            "#[tokio::test]\nasync fn g1_a() {\n    // Seen to fail: so.\n}",
            "proptest! {\n    #[test]\n    fn g1_a(b in 0..9) {\n        // Seen to fail: so.\n    }\n}",
        ] {
            assert!(offences(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_law_without_a_test_is_reported() {
        let missing =
            "xtask/laws.txt:3: laws: law g1 (bound) has no test: write one whose name begins with `g1_`";
        for text in ["", "fn g1_no_test_attribute() {}", "#[test]\nfn about_g1() {}"] {
            assert_eq!(offences(text), [missing], "{text}");
        }
    }

    #[test]
    fn a_test_that_was_never_seen_to_fail_is_reported() {
        for text in [
            "#[test]\nfn g1_a() {}",
            "// Seen to fail: another.\nfn b() {}\n\n#[test]\nfn g1_a() {}",
            "#[test]\nfn g1_a() { \"Seen to fail:\"; }",
        ] {
            let offences = offences(text);
            assert_eq!(offences.len(), 1, "{text}");
            assert!(offences[0].contains("see `g1_a` fail"), "{text}");
        }
    }

    #[test]
    fn a_number_that_is_no_law_is_a_slip() {
        let text =
            "/// Seen to fail: so.\n#[test]\nfn g1_a() {}\n#[test]\nfn g9_b() {}\n#[test]\nfn n1_c() {}";
        assert_eq!(
            offences(text),
            ["crates/flowgate/tests/a.rs:5: laws: `g9_b` tests law g9, which xtask/laws.txt does not list"]
        );
    }

    #[test]
    fn the_list_itself_must_be_there() {
        assert_eq!(check(&Tree::of([])).len(), 1);
    }
}
