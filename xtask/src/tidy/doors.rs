//! `lib.rs` and `mod.rs` are doors: docs, `mod` and `use` lines and attributes, nothing else.

use crate::offence::Offence;
use crate::read::{Source, Token, Tree, after_attributes};

pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    let doors = tree.sources().iter().filter(|source| matches!(source.file_name(), "lib.rs" | "mod.rs"));
    doors.filter_map(offence).collect()
}

/// One offence for a file is enough: what follows may not be worth reading.
fn offence(source: &Source) -> Option<Offence> {
    let token = first_of_a_stranger(source.tokens())?;
    let advice = format!(
        "`{}` stands in a file of docs, `mod` and `use` lines: move it to a file named after what it owns",
        token.text
    );
    Some(Offence::new(source.path(), token.line, "doors", advice))
}

/// The first token of the first item that is neither `mod name;` nor `use path;`.
fn first_of_a_stranger(tokens: &[Token]) -> Option<&Token> {
    let is = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token.text == text);
    let mut at = 0;
    loop {
        at = after_attributes(tokens, at);
        let first = tokens.get(at)?;
        if is(at, "pub") {
            at += 1;
        }
        if is(at, "(") {
            at += tokens[at..].iter().position(|token| token.text == ")")? + 1;
        }
        at += match tokens.get(at).map(|token| token.text.as_str()) {
            Some("mod") if is(at + 2, ";") => 3,
            Some("use") => tokens[at..].iter().position(|token| token.text == ";")? + 1,
            _ => return tokens.get(at).or(Some(first)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::offence::lines;
    use crate::read::Tree;

    #[test]
    fn a_plain_door_is_fine() {
        let text = "\
//! Docs with fn and struct.
#![doc = include_str!(\"x.md\")]
#[cfg(doctest)]
mod snippets;
pub mod gate;
pub(in crate::a) mod line;

/// Docs.
pub use a::{b, c::{d, e}};
use f as g;
";
        assert!(check(&Tree::of([("src/lib.rs", text)])).is_empty());
    }

    #[test]
    fn anything_else_is_not() {
        for text in [
            "mod a;\npub fn b() {}",
            "pub struct A;",
            "pub(crate) const A: u8 = 1;",
            "impl A {}",
            "mod tests { fn a() {} }",
            "macro_rules! a { () => {} }",
            "a! {}",
            "pub type A = B;",
        ] {
            assert_eq!(check(&Tree::of([("a/mod.rs", text)])).len(), 1, "{text}");
        }
        assert!(
            lines(&check(&Tree::of([("mod.rs", "mod a;\npub enum B {}")])))[0]
                .starts_with("mod.rs:2: doors: `enum`")
        );
    }

    #[test]
    fn other_files_may_hold_code() {
        assert!(check(&Tree::of([("src/gate.rs", "fn a() {}")])).is_empty());
    }
}
