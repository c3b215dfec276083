//! One Rust file as the rules see it: its tokens, its lines of code, and which of them are test code.

use std::ops::RangeInclusive;

use super::attribute::{after_attributes, attribute_end};
use super::function::{self, Function};
use super::lexer::{Token, tokens};

/// A Rust file, read once.
#[derive(Debug)]
pub(crate) struct Source {
    path: String,
    text: String,
    tokens: Vec<Token>,
    lines: Vec<Line>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Line {
    code: bool,
    test: bool,
}

impl Source {
    /// Reads `text`; `path` is relative to the root, with forward slashes.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let tokens = tokens(text);
        let whole_file = path.split('/').any(|part| part == "tests" || part == "tests.rs");
        let mut lines = vec![Line { code: false, test: whole_file }; text.lines().count() + 2];
        for token in &tokens {
            lines[token.line..=token.last_line].iter_mut().for_each(|line| line.code = true);
        }
        for span in test_spans(&tokens) {
            lines[span].iter_mut().for_each(|line| line.test = true);
        }
        Self { path: path.to_owned(), text: text.to_owned(), tokens, lines }
    }

    /// Where the file lies, from the root.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The name of the file itself.
    pub(crate) fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// The text as written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The tokens, comments left out.
    pub(crate) fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Whether this line, counted from 1, is test code: under `tests/` or in a `#[cfg(test)]` item.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.lines.get(line).is_some_and(|line| line.test)
    }

    /// How many lines hold code, not only blanks and comments: outside of tests, and in tests.
    pub(crate) fn size(&self) -> (usize, usize) {
        let count = |test| self.lines.iter().filter(|line| line.code && line.test == test).count();
        (count(false), count(true))
    }

    /// How many of these lines hold code.
    pub(crate) fn code_lines(&self, lines: RangeInclusive<usize>) -> usize {
        self.lines[lines].iter().filter(|line| line.code).count()
    }

    /// The functions that have a body, in order, inner ones too.
    pub(crate) fn functions(&self) -> Vec<Function> {
        function::functions(&self.text, &self.tokens)
    }

    /// The lines where the tokens of `needle` stand side by side, however they are spaced.
    pub(crate) fn lines_of(&self, needle: &str) -> Vec<usize> {
        let needle = tokens(needle);
        let same = |window: &&[Token]| window.iter().zip(&needle).all(|(have, want)| have.text == want.text);
        self.tokens.windows(needle.len()).filter(same).map(|window| window[0].line).collect()
    }
}

/// The lines of each item behind a `#[cfg(test)]`, or of all the file behind a `#![cfg(test)]`.
fn test_spans(tokens: &[Token]) -> Vec<RangeInclusive<usize>> {
    let mut spans = Vec::new();
    let Some(end_of_file) = tokens.last().map(|token| token.last_line) else { return spans };
    for at in 0..tokens.len() {
        let Some(end) = attribute_end(tokens, at) else { continue };
        let words = || tokens[at..end].iter().map(|token| token.text.as_str());
        let is_test = words().any(|word| word == "cfg") && words().any(|word| word == "test");
        if !is_test || words().any(|word| word == "not") {
            continue;
        }
        let last = if tokens[at + 1].text == "!" {
            end_of_file
        } else {
            function::item_end(tokens, after_attributes(tokens, end))
                .map_or(end_of_file, |end| tokens[end].line)
        };
        spans.push(tokens[at].line..=last);
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::Source;

    #[test]
    fn a_cfg_test_item_is_test_code_and_the_rest_is_not() {
        let source = Source::new(
            "a.rs",
            "fn a() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n fn b() {}\n}\nfn c() {}",
        );
        let tests: Vec<_> = (1..=7).filter(|&line| source.is_test(line)).collect();
        assert_eq!(tests, [2, 3, 4, 5, 6]);
        assert_eq!(source.size(), (2, 5));
    }

    #[test]
    fn cfg_not_test_is_not_test_code() {
        let source = Source::new("a.rs", "#[cfg(not(test))]\nfn a() {}");
        assert!(!source.is_test(2));
    }

    #[test]
    fn a_whole_file_can_be_test_code() {
        assert!(Source::new("a.rs", "#![cfg(all(test, loom))]\n\nfn a() {}").is_test(3));
        assert!(Source::new("crates/x/tests/a.rs", "fn a() {}").is_test(1));
        assert!(!Source::new("crates/x/src/a.rs", "fn a() {}").is_test(1));
    }

    #[test]
    fn blank_lines_and_comments_are_no_code() {
        let source = Source::new("a.rs", "//! docs\n\n/// more\nfn a() {\n    // why\n\n}\n");
        assert_eq!(source.size(), (2, 0));
    }

    #[test]
    fn a_needle_is_found_by_its_tokens() {
        let source = Source::new("a.rs", "// Instant::now\nlet a = Instant :: now();\n\"Instant::now\"");
        assert_eq!(source.lines_of("Instant::now"), [2]);
        assert!(Source::new("a.rs", "MyInstant::now()").lines_of("Instant::now").is_empty());
    }
}
