//! What is wrong with an option, and the codes a user can meet.
//!
//! Owns the error for options that cannot be built and the list of codes. Each code has a page in `docs/errors/`.

use std::fmt;

/// A stable code for an error a user can meet. Each has a page in `docs/errors/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// RC1002: a route of this id is in the context already.
    DuplicateRoute,
    /// RC2001: a wrapper or a step is in a place where it has no meaning.
    Misplaced,
    /// RC3001: a route or its context cannot be started.
    NotStarted,
    /// RC3003: the context is shutting down, so it was not taken in, or was cancelled at the deadline.
    Stopping,
    /// RC5001: a step or a destination failed.
    StepFailed,
    /// RC5002: a body was not valid.
    Invalid,
    /// RC5003: misconfigured; trying again cannot help.
    Misconfigured,
    /// RC5004: no route takes what is sent to this name.
    NoHandler,
    /// RC5010: the other side could not be reached.
    Unreachable,
    /// RC5011: it took longer than allowed.
    TimedOut,
    /// RC5013: refused by a rate.
    RateRefused,
    /// RC5016: what came in could not be read.
    Unreadable,
    /// RC5025: a circuit breaker is open.
    BreakerOpen,
    /// RC5026: refused by a gate.
    Refused,
    /// RC9901: a panic in your own code.
    Panicked,
}

impl Code {
    /// All codes, in their order.
    pub const ALL: [Code; 15] = [
        Code::DuplicateRoute,
        Code::Misplaced,
        Code::NotStarted,
        Code::Stopping,
        Code::StepFailed,
        Code::Invalid,
        Code::Misconfigured,
        Code::NoHandler,
        Code::Unreachable,
        Code::TimedOut,
        Code::RateRefused,
        Code::Unreadable,
        Code::BreakerOpen,
        Code::Refused,
        Code::Panicked,
    ];

    /// Returns the code as it is written in messages, in logs and on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Code::DuplicateRoute => "RC1002",
            Code::Misplaced => "RC2001",
            Code::NotStarted => "RC3001",
            Code::Stopping => "RC3003",
            Code::StepFailed => "RC5001",
            Code::Invalid => "RC5002",
            Code::Misconfigured => "RC5003",
            Code::NoHandler => "RC5004",
            Code::Unreachable => "RC5010",
            Code::TimedOut => "RC5011",
            Code::RateRefused => "RC5013",
            Code::Unreadable => "RC5016",
            Code::BreakerOpen => "RC5025",
            Code::Refused => "RC5026",
            Code::Panicked => "RC9901",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An option that is not accepted: which one, what was given, and what would be accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: option `{option}` is {value}; accepted: {accepted}", Code::Misconfigured)]
pub struct OptionError {
    option: &'static str,
    value: String,
    accepted: String,
}

impl OptionError {
    /// Creates the error for `option`, given as `value`, where only `accepted` would do.
    pub fn new(option: &'static str, value: impl fmt::Display, accepted: impl Into<String>) -> Self {
        OptionError { option, value: value.to_string(), accepted: accepted.into() }
    }

    /// Returns the option's name.
    pub fn option(&self) -> &'static str {
        self.option
    }

    /// Returns what was given.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns what would be accepted.
    pub fn accepted(&self) -> &str {
        &self.accepted
    }

    /// Returns [`Code::Misconfigured`], always.
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
