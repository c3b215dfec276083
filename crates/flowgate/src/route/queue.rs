//! A durable queue at either end of a route: `from(queue(…))` and `to(queue(…))`.
//!
//! Owns the step from tasks to exchanges and back. As a source it is a worker with as many claims as the route's
//! own `concurrency` has slots, so an exchange waits in the store, once, and nowhere in memory. The outcome of the
//! exchange settles the task.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use flowgate_core::{Code, Limits};
use flowgate_tasks::{
    Client, NewTask,
    store::{Store, StoreError},
    worker::{Failure, Handlers, Worker, WorkerOptions},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::{OnceCell, oneshot};

use super::{
    cx::Cx,
    destination::Destination,
    error::Error,
    exchange::Exchange,
    intake::Intake,
    mounted::Task,
    source::{Feed, Source},
    step::{Halt, Outcome},
};

/// As many claims as a worker can have.
const MOST_CLAIMS: u32 = 100_000;
/// As long as a worker can let tasks run on once it is told to stop: when that is over is the context's to say.
const UNTIL_CANCELLED: Duration = Duration::from_secs(24 * 60 * 60);

type Dress<T> = Arc<dyn Fn(NewTask, &T) -> NewTask + Send + Sync>;

/// The durable queue of this name in a store, as a source or a destination. Bodies are stored as JSON.
///
/// As a source it runs the tasks of the [`kind`](Queue::kind) `name`. A task is done when its exchange has ended well
/// or was dropped by a filter. If the exchange fails, the task is tried again as its own retries say, unless trying
/// again cannot help ([`Error::is_retryable`]). If the process dies, its tasks run again when its lease is over.
pub fn queue<T>(name: impl Into<String>, store: Arc<dyn Store>) -> Queue<T> {
    let name = name.into();
    Queue {
        kind: name.clone(),
        options: WorkerOptions { name: name.clone(), queues: vec![name.clone()], ..WorkerOptions::default() },
        name,
        store,
        dress: Arc::new(|task, _| task),
        client: Arc::default(),
        bodies: PhantomData,
    }
}

/// The source and destination that [`queue`] returns. Cheap to clone.
pub struct Queue<T> {
    name: String,
    kind: String,
    store: Arc<dyn Store>,
    options: WorkerOptions,
    dress: Dress<T>,
    client: Arc<OnceCell<Client>>,
    bodies: PhantomData<fn() -> T>,
}

impl<T> Queue<T> {
    /// Sets the kind of its tasks, if that is not the queue's name.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = kind.into();
        self
    }

    /// Sets the options of the source's worker: its lease, and how many tasks it runs at once if the route has no
    /// `concurrency` that says so. Its `drain` is not used: how long tasks may go on is what
    /// [`Context::shutdown`](super::Context::shutdown) is told.
    #[must_use]
    pub fn worker(mut self, options: WorkerOptions) -> Self {
        self.options = WorkerOptions { queues: vec![self.name.clone()], ..options };
        self
    }

    /// Sets what each task that is sent should have: a key, limits, a delay, retries, and so on.
    #[must_use]
    pub fn task(mut self, dress: impl Fn(NewTask, &T) -> NewTask + Send + Sync + 'static) -> Self {
        self.dress = Arc::new(dress);
        self
    }

    /// The options of the worker, which claims no more than the route has slots.
    fn claims(&self, limits: Option<Limits>) -> WorkerOptions {
        let slots = limits.and_then(|limits| limits.max());
        let processes = slots.map_or(self.options.processes, |slots| slots.min(MOST_CLAIMS));
        WorkerOptions { processes, drain: UNTIL_CANCELLED, ..self.options.clone() }
    }
}

impl<T, O> Source<O> for Queue<T>
where
    T: DeserializeOwned + Send + 'static,
    O: Send + 'static,
{
    type Body = T;

    fn check(&self) -> Result<(), Error> {
        self.options.check().map_err(Error::from)
    }

    fn open(&self, intake: Intake<T, O>) -> Result<Feed, Error> {
        let options = self.claims(intake.limits());
        let running = intake.clone();
        let handlers = Handlers::new().on_with(&self.kind, move |context, body: T| {
            let intake = running.clone();
            let exchange = Exchange::new(body).correlated(&format!("task-{}", context.id));
            async move {
                if intake.mounted.site.flights.is_cancelled() {
                    return Err(Failure::not_begun("its context has shut down"));
                }
                match intake.mounted.fly(exchange, intake.mounted.spot).inner().await {
                    Ok(_) | Err(Halt::Dropped) => Ok(()),
                    // Cut off by a shutdown: another process may have it now. That is an attempt, as where a process dies: a
                    // task that may run once only does not run twice.
                    Err(Halt::Failed(error)) if error.code() == Code::Stopping => {
                        Err(Failure::new(error).after(Duration::ZERO))
                    }
                    Err(Halt::Failed(error)) if error.is_retryable() => Err(Failure::new(error)),
                    Err(Halt::Failed(error)) => Err(Failure::last(error)),
                }
            }
        });
        let worker = Worker::new(Arc::clone(&self.store), handlers, options)?;
        // It begins with the feed, when all routes are there: what it claims may be sent to any of them.
        Ok(Feed::new(async move {
            let (_stop, stopped) = oneshot::channel::<()>();
            let task = Task::begin(Arc::clone(&intake.mounted.site));
            // It outlives the feed: when intake stops it claims nothing more, and settles what is under way.
            let working = tokio::spawn(async move {
                let _task = task;
                worker.run(async { drop(stopped.await) }).await
            });
            match working.await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(away(&error)),
                Err(error) => Err(Error::new(Code::Panicked, format!("queue worker: {error}"))),
            }
        }))
    }
}

impl<T: Serialize + Send + Sync + 'static> Destination<T> for Queue<T> {
    type Reply = T;

    async fn send<'a>(&'a self, exchange: Exchange<T>, _: Cx<'a>) -> Outcome<T> {
        let task = NewTask::json(&self.kind, &exchange.body).map_err(Error::of)?.queue(&self.name);
        let task = (self.dress)(task, &exchange.body);
        let client = self.client.get_or_init(|| async { Client::new(Arc::clone(&self.store)) }).await;
        client.send(task).await.map_err(|error| away(&error))?;
        Ok(exchange)
    }
}

/// What a store's failure is to a route.
fn away(error: &StoreError) -> Error {
    match error {
        StoreError::Option(option) => Error::from(option.clone()),
        other => Error::new(Code::Unreachable, other.to_string()),
    }
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Queue {
            name: self.name.clone(),
            kind: self.kind.clone(),
            store: Arc::clone(&self.store),
            options: self.options.clone(),
            dress: Arc::clone(&self.dress),
            client: Arc::clone(&self.client),
            bodies: PhantomData,
        }
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}
