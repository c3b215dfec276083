//! Lines fit on a screen. Comments are wrapped at 120 characters; a string may go on behind a `\` on the next line.

use crate::offence::Offence;
use crate::read::{Source, Token, Tree};

const RULE: &str = "line-length";
const LONGEST: usize = 130;

pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    tree.sources().iter().flat_map(too_long).collect()
}

fn too_long(source: &Source) -> impl Iterator<Item = Offence> + '_ {
    let lengths = (1..).zip(source.text().lines().map(|line| line.chars().count()));
    let is_whole = |line: usize| {
        let mut tokens = source.tokens().iter();
        tokens.any(|token| (token.line..=token.last_line).contains(&line) && is_unbreakable(token))
    };
    let lengths = lengths.filter(move |(line, length)| *length > LONGEST && !is_whole(*line));
    lengths.map(|(line, length)| {
        let advice = format!("{length} characters, {LONGEST} may be: break the line, a comment at 120");
        Offence::new(source.path(), line, RULE, advice)
    })
}

/// A raw string stands as it is, and one without a blank has no place to break.
fn is_unbreakable(Token { text, .. }: &Token) -> bool {
    let is_raw = ["r\"", "r#", "br"].iter().any(|start| text.starts_with(start)) && text.contains('"');
    is_raw || text.starts_with('"') && !text.contains(' ')
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::read::Tree;

    fn count(text: &str) -> usize {
        check(&Tree::of([("crates/a/src/a.rs", text)])).len()
    }

    #[test]
    fn what_fits_is_fine() {
        // Characters are counted, not bytes.
        assert_eq!(count(&format!("// {}", "…".repeat(127))), 0);
    }

    #[test]
    fn a_longer_line_of_comment_or_code_is_not() {
        assert_eq!(count(&format!("// {}", "a".repeat(128))), 1);
        assert_eq!(count(&format!("fn {}() {{}}", "a".repeat(128))), 1);
        assert_eq!(count(&format!("const A: &str = \"{}\";", "a ".repeat(70))), 1);
    }

    #[test]
    fn strings_that_cannot_be_broken_are_fine() {
        assert_eq!(count(&format!("const A: &str = \"{}\";", "a".repeat(130))), 0);
        assert_eq!(count(&format!("const A: &str = r#\"\n{}\n\"#;", "a ".repeat(70))), 0);
    }
}
