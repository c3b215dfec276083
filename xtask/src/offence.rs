//! What a rule reports: one place in the tree, the rule it breaks, and what to do about it.

use std::fmt;

/// One breach of one rule. Sorts by place, prints as `path:line: rule: what to do`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Offence {
    path: String,
    line: usize,
    rule: &'static str,
    advice: String,
}

impl Offence {
    /// A breach of `rule` at `line`, counted from 1, of the file at `path`.
    pub(crate) fn new(path: &str, line: usize, rule: &'static str, advice: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, rule, advice: advice.into() }
    }
}

impl fmt::Display for Offence {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, advice } = self;
        write!(to, "{path}:{line}: {rule}: {advice}")
    }
}

/// The offences as lines of text, for tests to compare.
#[cfg(test)]
pub(crate) fn lines(offences: &[Offence]) -> Vec<String> {
    offences.iter().map(Offence::to_string).collect()
}
