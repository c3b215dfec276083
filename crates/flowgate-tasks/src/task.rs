//! A task as its sender describes it: what to run, and under which limits.
//!
//! Owns the options of a task and their defaults. It knows no store: names become rows elsewhere.

use std::{fmt, time::Duration};

use flowgate_core::{Limits, OptionError, Tick, backoff};

use crate::{record::Record, terms};

/// The queue of a task that names none.
pub const DEFAULT_QUEUE: &str = "default";
/// The queue of a server's own work, the messages that it delivers. A worker that serves all queues does not serve
/// this one; a worker that names it does. The SQL for PostgreSQL contains this name too.
pub const SERVER_QUEUE: &str = "flowgate:messages";
/// The longest name of a queue, key, kind or dedupe id, in bytes.
pub const MAX_NAME: usize = 512;
/// The longest body, in bytes.
pub const MAX_BODY: usize = 16 * 1024 * 1024;
/// The longest wait between two attempts.
const MAX_BACKOFF: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// The heaviest task.
pub const MAX_WEIGHT: u32 = 1_000_000;

/// The number of a task. All tasks of a store share one sequence, so it is also the order in which they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub i64);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A moment, or a time from when the store accepts the task, measured by the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// This long after the task is accepted.
    After(Duration),
    /// At this moment: nanoseconds since the Unix epoch.
    At(Tick),
}

/// `1s after it was sent`.
impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            When::After(span) => write!(f, "{span:?} after it was sent"),
            When::At(at) => write!(f, "{} ns since 1970", at.as_nanos()),
        }
    }
}

impl When {
    pub(crate) fn resolve(self, now: Tick) -> Tick {
        match self {
            When::After(span) => now.after(span),
            When::At(at) => at,
        }
    }
}

/// How often a task is tried, and how long it waits between two attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// How often it may start in all, counting attempts whose worker died: 1 to 1,000.
    pub max_attempts: u32,
    /// The wait after the first failure: up to 366 days.
    pub backoff: Duration,
    /// The factor by which each wait grows: 1 to 1,000.
    pub factor: u32,
    /// The longest wait: up to 366 days.
    pub max_backoff: Duration,
}

impl Default for Retry {
    /// Three attempts, with waits of one and two seconds: enough for a restart on the other side, and a failure is
    /// known soon.
    fn default() -> Self {
        Retry {
            max_attempts: 3,
            backoff: Duration::from_secs(1),
            factor: 2,
            max_backoff: Duration::from_secs(300),
        }
    }
}

impl Retry {
    /// Returns the wait after the failure of attempt number `attempt`, counted from 1.
    pub fn wait_after(&self, attempt: u32) -> Duration {
        backoff(self.backoff, f64::from(self.factor), self.max_backoff, attempt)
    }
}

/// A task to send. By default it has queue `default`, no key, priority 0, no delay and three attempts.
///
/// ```
/// # use std::time::Duration;
/// # use flowgate_tasks::NewTask;
/// let task = NewTask::new("resize", br#"{"image": 7}"#.to_vec())
///     .queue("images")
///     .priority(-1)
///     .delay(Duration::from_secs(10));
/// ```
#[derive(Clone, Debug)]
pub struct NewTask {
    pub(crate) queue: String,
    pub(crate) key: Option<String>,
    pub(crate) limits: Option<Limits>,
    pub(crate) priority: i16,
    pub(crate) start: Option<When>,
    pub(crate) good_until: Option<When>,
    pub(crate) weight: u32,
    pub(crate) dedupe: Option<Dedupe>,
    /// The moment of the note that is written with it, and how it begins.
    pub(crate) noted: Option<(Tick, Vec<u8>)>,
    pub(crate) record: Record,
}

/// Another task of the same id, sent within the window, is not stored.
#[derive(Clone, Debug)]
pub(crate) struct Dedupe {
    pub(crate) id: String,
    pub(crate) window: Duration,
}

impl NewTask {
    /// Creates a task for the handler called `kind`.
    pub fn new(kind: impl Into<String>, body: Vec<u8>) -> Self {
        NewTask {
            queue: DEFAULT_QUEUE.to_owned(),
            key: None,
            limits: None,
            priority: 0,
            start: None,
            good_until: None,
            weight: 1,
            dedupe: None,
            noted: None,
            record: Record { kind: kind.into(), body, retry: Retry::default(), timeout: None, keep: None },
        }
    }

    /// Creates a task for the handler called `kind`, whose body is this value as JSON.
    pub fn json(kind: impl Into<String>, body: &impl serde::Serialize) -> Result<Self, OptionError> {
        let wrong =
            |error: serde_json::Error| OptionError::new("body", error, "a value that can be written as JSON");
        serde_json::to_vec(body).map(|body| NewTask::new(kind, body)).map_err(wrong)
    }

    /// Sets the queue it waits in. Default: `default`.
    #[must_use]
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.queue = name.into();
        self
    }

    /// Sets its key. All tasks of one key share the key's slots and rate, whatever their queue.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the limits that apply to its key while it waits: a max, a rate, or both. Without a key they are an error,
    /// and so are limits that only gates have (`queue`, `timeout`, `reject`, `codel`, `adaptive`).
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Sets its priority among all that wait in its queue: the lowest starts first. Default: 0.
    #[must_use]
    pub fn priority(mut self, priority: i16) -> Self {
        self.priority = priority;
        self
    }

    /// Lets it join the line this long after it was sent.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.start = Some(When::After(delay));
        self
    }

    /// Lets it join the line at this moment.
    #[must_use]
    pub fn not_before(mut self, at: Tick) -> Self {
        self.start = Some(When::At(at));
        self
    }

    /// Sets when it expires: if it has not started by then, it never does, and is told as expired.
    #[must_use]
    pub fn good_until(mut self, until: When) -> Self {
        self.good_until = Some(until);
        self
    }

    /// Sets how often it is tried.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.record.retry = retry;
        self
    }

    /// Limits how long one run may take; a longer one is stopped and counts as failed. Default: no limit.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.record.timeout = Some(timeout);
        self
    }

    /// Sets how many slots of its key it takes. Default: 1.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Sets an id against duplicates: another task with this id, sent within `window`, is not stored, and its sender
    /// gets the number of this one.
    #[must_use]
    pub fn dedupe(mut self, id: impl Into<String>, window: Duration) -> Self {
        self.dedupe = Some(Dedupe { id: id.into(), window });
        self
    }

    /// Keeps its result for this long after it ended. Default: nothing is left of it when it is done.
    #[must_use]
    pub fn keep_result(mut self, keep: Duration) -> Self {
        self.record.keep = Some(keep);
        self
    }

    /// Writes a note of this moment together with the task, as the first of its notes: these bytes, followed by its
    /// body. Default: none. See [`Shelf::notes`](crate::store::Shelf::notes).
    #[must_use]
    pub fn noted(mut self, at: Tick, beginning: Vec<u8>) -> Self {
        self.noted = Some((at, beginning));
        self
    }

    /// The note that is written with it: its moment and its bytes.
    pub(crate) fn note(&self) -> Option<(Tick, Vec<u8>)> {
        let (at, beginning) = self.noted.as_ref()?;
        Some((*at, [beginning.as_slice(), &self.record.body].concat()))
    }

    /// About how many bytes a store is told of it.
    pub(crate) fn size(&self) -> usize {
        const REST: usize = 64;
        let Record { kind, body, .. } = &self.record;
        let noted = self.noted.as_ref().map_or(0, |(_, beginning)| beginning.len() + body.len());
        kind.len() + body.len() + noted + REST
    }

    /// Returns the name of the handler that runs it.
    pub fn kind(&self) -> &str {
        &self.record.kind
    }

    /// Renames its key and its dedupe id; for a store that several namespaces share.
    #[must_use]
    pub fn renamed(mut self, rename: impl Fn(String) -> String) -> Self {
        self.key = self.key.map(&rename);
        self.dedupe = self.dedupe.map(|dedupe| Dedupe { id: rename(dedupe.id), ..dedupe });
        self
    }

    /// Replaces the body by one made from it.
    #[must_use]
    pub fn with_body(mut self, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Self {
        self.record.body = change(self.record.body);
        self
    }

    /// The first option that cannot be.
    pub(crate) fn check(&self) -> Result<(), OptionError> {
        let names = [
            ("queue", Some(self.queue.as_str())),
            ("kind", Some(self.record.kind.as_str())),
            ("dedupe", self.dedupe.as_ref().map(|dedupe| dedupe.id.as_str())),
        ];
        for (option, name) in names {
            if name.is_some_and(|name| name.is_empty() || name.len() > MAX_NAME || name.contains('\0')) {
                let name = name.unwrap_or_default();
                return Err(OptionError::new(option, format_args!("{name:?}"), accepted_name()));
            }
        }
        if let Some(key) = self.key.as_ref().filter(|key| key.len() > MAX_NAME || key.contains('\0')) {
            return Err(OptionError::new("key", format_args!("{key:?}"), accepted_name()));
        }
        if self.limits.is_some() && self.key.is_none() {
            return Err(OptionError::new("limits", "set without a key", "limits only together with a key"));
        }
        self.limits.as_ref().map_or(Ok(()), terms::check)?;
        let heaviest = self.limits.map_or(MAX_WEIGHT, |limits| limits.heaviest().min(MAX_WEIGHT));
        if !(1..=heaviest).contains(&self.weight) {
            return Err(OptionError::new("weight", self.weight, format!("an integer from 1 to {heaviest}")));
        }
        let attempts = self.record.retry.max_attempts;
        if !(1..=1000).contains(&attempts) {
            return Err(OptionError::new("max_attempts", attempts, "an integer from 1 to 1000"));
        }
        let Retry { backoff, factor, max_backoff, .. } = self.record.retry;
        if !(1..=1000).contains(&factor) {
            return Err(OptionError::new("factor", factor, "an integer from 1 to 1000"));
        }
        for (option, span) in [("backoff", backoff), ("max_backoff", max_backoff)] {
            if span > MAX_BACKOFF {
                return Err(OptionError::new(option, format_args!("{span:?}"), "a duration up to 366 days"));
            }
        }
        let is_over_before = match (self.start, self.good_until) {
            (Some(When::After(start)), Some(When::After(end))) => end <= start,
            (Some(When::At(start)), Some(When::At(end))) => end <= start,
            // Which comes first, only the store's clock says.
            _ => false,
        };
        if let (true, Some(start), Some(end)) = (is_over_before, self.start, self.good_until) {
            let given = format!("{end}, and it is delayed until {start}");
            return Err(OptionError::new(
                "good_until",
                given,
                "a moment after the task's delay, or it could never start",
            ));
        }
        if self.record.body.len() > MAX_BODY {
            let size = format!("{} bytes", self.record.body.len());
            return Err(OptionError::new("body", size, format!("up to {MAX_BODY} bytes")));
        }
        Ok(())
    }
}

fn accepted_name() -> String {
    format!("1 to {MAX_NAME} bytes of text without NUL")
}
