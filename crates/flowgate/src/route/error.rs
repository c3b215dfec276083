//! What can go wrong in a route.
//!
//! Owns the error and what is known of each code: its category, whether trying again can help, what to do, and its page. A
//! refusal of a gate stays the value it is ([`Error::refusal`]).

use std::{error::Error as StdError, fmt};

use flowgate_core::{Code, OptionError, Refusal};

/// Any error of your own code.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// Why an exchange failed, or a route could not be built.
pub struct Error(Box<Inner>);

struct Inner {
    code: Code,
    message: String,
    is_retryable: bool,
    refusal: Option<Refusal>,
    source: Option<BoxError>,
}

/// What kind of mistake a code stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Category {
    /// Routes that do not fit together.
    Definition,
    /// A wrapper or a step in the wrong place.
    Placement,
    /// Starting and stopping.
    Lifecycle,
    /// A step, a source or a destination.
    Step,
    /// A mistake in the program, such as a panic.
    Runtime,
}

impl Error {
    /// Creates an error with this code, which also decides whether it is retryable.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let is_retryable = is_retryable(code);
        Error(Box::new(Inner { code, message: message.into(), is_retryable, refusal: None, source: None }))
    }

    /// Makes an error of whatever a step returned: an [`Error`] stays as it is, everything else becomes RC5001.
    pub fn of(error: impl Into<BoxError>) -> Self {
        Error::coded(Code::StepFailed, error.into())
    }

    /// An [`Error`] stays what it is, all else gets this code.
    pub(crate) fn coded(code: Code, error: BoxError) -> Self {
        match error.downcast::<Error>() {
            Ok(known) => *known,
            Err(other) => Error::new(code, other.to_string()).caused_by(other),
        }
    }

    /// Says whether trying again can help.
    #[must_use]
    pub fn retryable(mut self, is_retryable: bool) -> Self {
        self.0.is_retryable = is_retryable;
        self
    }

    /// Sets what led to it.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<BoxError>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Returns its code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Returns what kind of mistake it is.
    pub fn category(&self) -> Category {
        match self.code().as_str().as_bytes()[2] {
            b'1' => Category::Definition,
            b'2' => Category::Placement,
            b'3' => Category::Lifecycle,
            b'9' => Category::Runtime,
            _ => Category::Step,
        }
    }

    /// Returns what happened, without the code.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns what to do about it.
    pub fn suggestion(&self) -> &'static str {
        suggestion(self.code())
    }

    /// Returns the page about its code, in this repository.
    pub fn docs(&self) -> String {
        format!("docs/errors/{}.md", self.code())
    }

    /// Whether the same exchange may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.0.is_retryable
    }

    /// Returns the gate's refusal, if that is the reason.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.0.refusal.as_ref()
    }

    /// Whether one of the route's own limits refused the exchange. What is behind that limit did not run; steps before
    /// it, and earlier attempts of a `retry` around it, may have.
    pub fn is_shed(&self) -> bool {
        matches!(self.code(), Code::Refused | Code::RateRefused)
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let text = refusal.to_string();
        let message = text.split_once(": ").map_or(text.as_str(), |(_, message)| message);
        let mut error = Error::new(refusal.code(), message).retryable(refusal.is_retryable());
        error.0.refusal = Some(refusal);
        error
    }
}

impl From<OptionError> for Error {
    fn from(error: OptionError) -> Self {
        let message =
            format!("option `{}` is {}; accepted: {}", error.option(), error.value(), error.accepted());
        Error::new(Code::Misconfigured, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code(), self.message())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("code", &self.code())
            .field("message", &self.message())
            .field("is_retryable", &self.is_retryable())
            .field("source", &self.0.source)
            .finish_non_exhaustive()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

fn is_retryable(code: Code) -> bool {
    matches!(
        code,
        Code::StepFailed
            | Code::Unreachable
            | Code::TimedOut
            | Code::RateRefused
            | Code::BreakerOpen
            | Code::Refused
    )
}

fn suggestion(code: Code) -> &'static str {
    match code {
        Code::DuplicateRoute => "give each route of a context an id of its own",
        Code::Misplaced => "declare it once, and before the step it is for",
        Code::NotStarted => "start the context once, inside a tokio runtime, with every route it sends to",
        Code::Stopping => "send it to an instance that is not shutting down",
        Code::StepFailed => {
            "read the message and its source; wrap the step in `retry` if the failure may be temporary"
        }
        Code::Invalid => "fix the body, or the rule it broke",
        Code::Misconfigured => "fix the option named in the message",
        Code::NoHandler => "add a route with this id and these body types, and start the context",
        Code::Unreachable => "check that the other side is running and can be reached from here",
        Code::TimedOut => "allow more time, or find out what it waits for",
        Code::RateRefused => "retry after `retry_after`, or let callers wait: a throttle without `reject`",
        Code::Unreadable => "compare what the source sends with what the route's `input` expects",
        Code::BreakerOpen => "wait for the cooldown, or give the breaker a `fallback`",
        Code::Refused => "retry later, when work has ended and a slot is free; see the reason",
        Code::Panicked => "fix the code that panicked; the panic hook printed where",
        _ => "see the page for its code",
    }
}
