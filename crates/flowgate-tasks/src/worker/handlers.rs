//! What runs tasks: functions of serde types, by the kind of task.
//!
//! Owns the step from a task's bytes to a function's argument and from its result to bytes. It knows no store.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use foldhash::HashMap;
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;

use super::begun::Begun;
use crate::task::TaskId;

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The message.
    pub error: String,
    /// Whether no further attempt can help: the task is dead then.
    pub is_final: bool,
    /// How long to wait before the next attempt, instead of the task's own backoff.
    pub retry_after: Option<Duration>,
    /// Whether the run never began: the task goes back to the front of its line, and no attempt is used up.
    pub is_not_begun: bool,
}

impl Failure {
    /// Creates a failure after which the task may be tried again.
    pub fn new(error: impl fmt::Display) -> Self {
        Failure { error: error.to_string(), is_final: false, retry_after: None, is_not_begun: false }
    }

    /// Creates a failure after which no further attempt can help: the task is dead.
    pub fn last(error: impl fmt::Display) -> Self {
        Failure { is_final: true, ..Failure::new(error) }
    }

    /// Says that the run could not begin. No attempt is used up, so a handler must not say this again and again
    /// without a pause.
    pub fn not_begun(error: impl fmt::Display) -> Self {
        Failure { is_not_begun: true, ..Failure::new(error) }
    }

    /// Sets the wait before the next attempt.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }
}

/// Any error is a failure that another attempt may mend.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::new(error)
    }
}

/// What a handler can know about its run.
#[derive(Clone, Debug)]
pub struct Context {
    /// The task.
    pub id: TaskId,
    /// Its kind.
    pub kind: Arc<str>,
    /// The number of this attempt, counted from 1.
    pub attempt: u32,
    /// For handlers that say when a run has begun ([`Handlers::say_when_begun`]).
    pub begun: Begun,
}

type Run = Pin<Box<dyn Future<Output = Result<Vec<u8>, Failure>> + Send>>;
type Handler = Arc<dyn Fn(Context, Bytes) -> Run + Send + Sync>;

/// The functions by which a worker runs tasks, one for each kind.
///
/// ```
/// use flowgate_tasks::worker::{Failure, Handlers};
///
/// let handlers = Handlers::new()
///     .on("double", |number: i64| async move { Ok::<_, Failure>(number * 2) })
///     .on("shout", |(text, times): (String, usize)| async move {
///         if times > 100 {
///             return Err(Failure::last("that is too loud"));
///         }
///         Ok(text.to_uppercase().repeat(times))
///     });
/// ```
#[derive(Clone, Default)]
pub struct Handlers {
    by_kind: HashMap<Arc<str>, Handler>,
    fallback: Option<Handler>,
    say_when_begun: bool,
}

impl Handlers {
    /// Creates an empty set of handlers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs tasks of this kind by a function that takes a JSON value. Its result is kept as JSON, if the task asks
    /// for that.
    #[must_use]
    pub fn on<T, R, E, F, Fut>(self, kind: &str, function: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        R: Serialize + Send + 'static,
        E: Into<Failure> + Send + 'static,
        F: Fn(T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        self.on_with(kind, move |_, argument| function(argument))
    }

    /// Like [`Handlers::on`], and the function gets a [`Context`] too.
    #[must_use]
    pub fn on_with<T, R, E, F, Fut>(self, kind: &str, function: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        R: Serialize + Send + 'static,
        E: Into<Failure> + Send + 'static,
        F: Fn(Context, T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        self.on_bytes(kind, move |context, body| {
            let argument = serde_json::from_slice::<T>(&body);
            let run = argument.map(|argument| function(context, argument));
            async move {
                // What cannot be read now cannot be read later.
                let run = run.map_err(|error| {
                    Failure::last(format_args!("its body does not match what its handler takes: {error}"))
                })?;
                let result = run.await.map_err(Into::into)?;
                serde_json::to_vec(&result).map_err(|error| {
                    Failure::last(format_args!("its result cannot be written as JSON: {error}"))
                })
            }
        })
    }

    /// Runs tasks of this kind by a function that takes bytes. They are those of the store's reply, not a copy.
    #[must_use]
    pub fn on_bytes<F, Fut>(mut self, kind: &str, function: F) -> Self
    where
        F: Fn(Context, Bytes) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<u8>, Failure>> + Send + 'static,
    {
        self.by_kind.insert(kind.into(), Arc::new(move |context, body| Box::pin(function(context, body))));
        self
    }

    /// Runs tasks of all other kinds by this function. Without it, a task of an unknown kind fails and is tried
    /// again, because another worker may know the kind.
    #[must_use]
    pub fn otherwise<F, Fut>(mut self, function: F) -> Self
    where
        F: Fn(Context, Bytes) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<u8>, Failure>> + Send + 'static,
    {
        self.fallback = Some(Arc::new(move |context, body| Box::pin(function(context, body))));
        self
    }

    /// Declares that these handlers may have to wait before a run begins, and say when it has, by `context.begun.say()`. The
    /// task's timeout counts from then on. A task that is stopped before that uses up no attempt, and one whose `good_until`
    /// passes before that is stopped ([`Begun::by`]).
    #[must_use]
    pub fn say_when_begun(mut self) -> Self {
        self.say_when_begun = true;
        self
    }

    pub(super) fn begun(&self, by: Option<Instant>) -> Begun {
        if self.say_when_begun { Begun::to_be_said(by) } else { Begun::at_once(by) }
    }

    /// This kind, by the name that is here already if it is known.
    pub(super) fn name_of(&self, kind: &str) -> Arc<str> {
        self.by_kind.get_key_value(kind).map_or_else(|| Arc::from(kind), |(known, _)| Arc::clone(known))
    }

    /// The run of a task. Nothing of a handler is called before it is polled: what panics there is the task's.
    pub(super) fn run(
        &self,
        context: Context,
        body: Bytes,
    ) -> impl Future<Output = Result<Vec<u8>, Failure>> + Send + use<> {
        let handler = self.by_kind.get(&context.kind).or(self.fallback.as_ref());
        let handler = handler.cloned().ok_or_else(|| {
            let known = self.by_kind.keys().map(|kind| format!("`{kind}`")).collect::<Vec<_>>().join(", ");
            Failure::new(format_args!("this worker has no handler for `{}`; it has: {known}", context.kind))
        });
        async move { handler?(context, body).await }
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_kind.keys()).finish()
    }
}
