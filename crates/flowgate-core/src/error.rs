//! What is wrong with an option, and the codes a user can meet.
//!
//! Owns the error for options that cannot be built and the list of codes. Each code has a page in `docs/errors/`.

use std::fmt;

/// A stable code for an error a user can meet. Each has a page in `docs/errors/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// RC5003: misconfigured; trying again cannot help.
    Misconfigured,
    /// RC5013: refused by a rate.
    RateRefused,
    /// RC5026: refused by a gate.
    Refused,
}

impl Code {
    /// The code as it is written in messages, logs and on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Code::Misconfigured => "RC5003",
            Code::RateRefused => "RC5013",
            Code::Refused => "RC5026",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An option that cannot be built: which one, what was given, and what is accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: option `{option}` is {value}; accepted: {accepted}", Code::Misconfigured)]
pub struct OptionError {
    option: &'static str,
    value: String,
    accepted: String,
}

impl OptionError {
    /// The error for `option`, given as `value`, where only `accepted` is.
    pub fn new(option: &'static str, value: impl fmt::Display, accepted: impl Into<String>) -> Self {
        OptionError { option, value: value.to_string(), accepted: accepted.into() }
    }

    /// Which option.
    pub fn option(&self) -> &'static str {
        self.option
    }

    /// What was given.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// What would have been accepted.
    pub fn accepted(&self) -> &str {
        &self.accepted
    }

    /// Always [`Code::Misconfigured`].
    pub fn code(&self) -> Code {
        Code::Misconfigured
    }
}

/// What cannot be wrong, a [`crate::Period`] that is one already, goes where options are checked.
impl From<std::convert::Infallible> for OptionError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}
