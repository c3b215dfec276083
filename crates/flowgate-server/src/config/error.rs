//! What is wrong with a configuration.
//!
//! Owns the words: where the value stands, which field it is, what was given and what is accepted.

use std::{fmt, io, path::PathBuf};

use flowgate::Code;

/// Who has made more mistakes than this needs no longer list; and finding the line of each takes its time.
pub(super) const MOST_TOLD: usize = 100;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// Nobody: there is no file.
    Default,
    /// The config file, as it was named.
    File(PathBuf),
    /// The environment variable of this name.
    Environment(String),
    /// The option of the command line of this name.
    Flag(&'static str),
}

/// A place in a file, both counted from 1; the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// One thing that is wrong: where, and what.
#[derive(Debug, thiserror::Error)]
#[error("{}{problem}", self.place())]
pub(crate) struct ConfigError {
    pub(crate) origin: Origin,
    pub(crate) position: Option<Position>,
    #[source]
    pub(crate) problem: Problem,
}

/// What is wrong. A `field` is a whole path: `gateway.route[2] "actions": max`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Problem {
    #[error("cannot read the file: {0}")]
    Unreadable(#[source] io::Error),

    #[error("the file has more than {0} bytes: that is not a config file")]
    TooLarge(u64),

    #[error("this is not TOML: {0}")]
    Syntax(String),

    #[error("{field} is {value}; accepted: {accepted}")]
    Value { field: String, value: String, accepted: String },

    #[error("{field} is missing; accepted: {accepted}")]
    Missing { field: String, accepted: String },

    /// An option that is fine alone, and not beside another.
    #[error("{field} {why}")]
    Misplaced { field: String, why: String },

    #[error("{}unknown field `{name}`{}", in_front(.table), instead(*.near, .known))]
    Unknown { table: String, name: String, near: Option<&'static str>, known: Vec<&'static str> },

    #[error("unknown variable; did you mean {0}?")]
    Variable(String),
}

fn in_front(table: &str) -> String {
    if table.is_empty() { String::new() } else { format!("{table}: ") }
}

fn instead(near: Option<&'static str>, known: &[&'static str]) -> String {
    match near {
        Some(name) => format!(", did you mean `{name}`?"),
        None => format!("; accepted: {}", known.join(", ")),
    }
}

impl ConfigError {
    fn place(&self) -> String {
        match (&self.origin, self.position) {
            (Origin::Default, None) => String::new(),
            (Origin::Default, Some(at)) => format!("line {}:{}: ", at.line, at.column),
            (Origin::File(path), None) => format!("{}: ", path.display()),
            (Origin::File(path), Some(at)) => format!("{}:{}:{}: ", path.display(), at.line, at.column),
            (origin, _) => format!("{origin}: "),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path) => write!(f, "{}", path.display()),
            Origin::Environment(name) => write!(f, "environment variable {name}"),
            Origin::Flag(name) => f.write_str(name),
        }
    }
}

/// Everything that is wrong with a configuration, in order of place. Never empty.
#[derive(Debug)]
pub(crate) struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// The errors in order, or `None` if there are none.
    pub(crate) fn some(mut errors: Vec<ConfigError>) -> Option<Self> {
        errors.sort_by(|one, other| (&one.origin, one.position).cmp(&(&other.origin, other.position)));
        (!errors.is_empty()).then_some(ConfigErrors(errors))
    }

    /// These and those.
    pub(crate) fn and(mut self, others: ConfigErrors) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Each of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }

    /// Always [`Code::Misconfigured`].
    pub(crate) const fn code(&self) -> Code {
        Code::Misconfigured
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        ConfigErrors(vec![error])
    }
}

/// A line of its own for each, below one that says how many there are.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = match self.0.len() {
            1 => "1 error".to_owned(),
            count if count > MOST_TOLD => format!("more than {MOST_TOLD} errors, the first of them"),
            count => format!("{count} errors"),
        };
        write!(f, "{}: the configuration has {count}", self.code())?;
        self.0.iter().take(MOST_TOLD).try_for_each(|error| write!(f, "\n  {error}"))
    }
}

impl std::error::Error for ConfigErrors {}
