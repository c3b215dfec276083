//! What the tests of routes share: a context under a clock moved by hand, work that ends when the test says so, and a diary
//! of all events.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use flowgate::{
    gate::{Look, What as AtGate},
    route::{BoxError, Context, ContextBuilder, Direct, Error, Event, Exchange, Halt, Route, What},
};
use flowgate_testkit::FakeClock;
use tokio::sync::Semaphore;

pub(crate) const MS: Duration = Duration::from_millis(1);

/// A context whose time stands still until it is moved.
pub(crate) struct Stage {
    pub(crate) context: Context,
    pub(crate) clock: Arc<FakeClock>,
    pub(crate) diary: Diary,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Stage::with(|builder| builder)
    }

    /// With events written down from the start, and other options.
    pub(crate) fn with(options: impl FnOnce(ContextBuilder) -> ContextBuilder) -> Self {
        let (clock, diary) = (FakeClock::new(), Diary::default());
        let writes = diary.clone();
        let builder = Context::builder().clock(clock.clone()).listener(move |event| writes.write(event));
        Stage { context: options(builder).build(), clock, diary }
    }

    /// With nobody listening.
    pub(crate) fn unheard() -> Self {
        let clock = FakeClock::new();
        Stage { context: Context::builder().clock(clock.clone()).build(), clock, diary: Diary::default() }
    }

    /// Adds a route that is called, starts, and gives its handle.
    pub(crate) fn direct<I: Send + 'static, O: Send + 'static>(&self, route: &Route<I, O>) -> Direct<I, O> {
        self.context.add(route).unwrap();
        self.context.start().unwrap();
        self.context.direct(route.id()).unwrap()
    }

    /// The gate at this place among all of the context's.
    pub(crate) fn gate(&self, index: usize) -> Look {
        self.context.gates()[index].gate.look()
    }

    /// In use and waiting at each gate.
    pub(crate) fn gates(&self) -> Vec<(u64, u64)> {
        let looks = self.context.gates().into_iter().map(|gate| gate.gate.look());
        looks.map(|look| (look.in_use, look.waiting)).collect()
    }

    pub(crate) fn advance(&self, span: Duration) {
        self.clock.advance(span);
    }

    /// Nothing is held, nobody waits, nobody sleeps.
    #[track_caller]
    pub(crate) fn assert_quiet(&self) {
        assert!(self.gates().iter().all(|gate| *gate == (0, 0)), "{:?}", self.gates());
        assert_eq!(self.context.sleeping(), 0, "somebody sleeps");
    }
}

/// Work that ends when the test says so.
#[derive(Clone, Default)]
pub(crate) struct Work(Arc<Inside>);

struct Inside {
    running: AtomicUsize,
    most: AtomicUsize,
    started: AtomicUsize,
    ends: Semaphore,
    fails: AtomicUsize,
}

impl Default for Inside {
    fn default() -> Self {
        let count = || AtomicUsize::new(0);
        Inside { running: count(), most: count(), started: count(), ends: Semaphore::new(0), fails: count() }
    }
}

impl Work {
    /// Work that ends at once.
    pub(crate) fn instant() -> Self {
        let work = Work::default();
        work.0.ends.add_permits(Semaphore::MAX_PERMITS / 2);
        work
    }

    /// The next so many that end do so with an error.
    pub(crate) fn fail(self, times: usize) -> Self {
        self.0.fails.store(times, Ordering::SeqCst);
        self
    }

    pub(crate) fn fail_next(&self, times: usize) {
        self.0.fails.store(times, Ordering::SeqCst);
    }

    pub(crate) async fn run<T>(&self, body: T) -> Result<T, BoxError> {
        let _running = Running::begin(Arc::clone(&self.0));
        self.0.ends.acquire().await?.forget();
        let fails = &self.0.fails;
        let is_failing =
            fails.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if is_failing { Err("it did not work".into()) } else { Ok(body) }
    }

    /// As a destination.
    pub(crate) fn step<T: Send + 'static>(
        &self,
    ) -> impl Fn(T) -> std::pin::Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>> + Send + Sync + 'static
    {
        let work = self.clone();
        move |body| {
            let work = work.clone();
            Box::pin(async move { work.run(body).await })
        }
    }

    /// Lets so many end.
    pub(crate) fn end(&self, count: usize) {
        self.0.ends.add_permits(count);
    }

    pub(crate) fn running(&self) -> usize {
        self.0.running.load(Ordering::SeqCst)
    }

    pub(crate) fn most(&self) -> usize {
        self.0.most.load(Ordering::SeqCst)
    }

    pub(crate) fn started(&self) -> usize {
        self.0.started.load(Ordering::SeqCst)
    }
}

struct Running(Arc<Inside>);

impl Running {
    fn begin(inside: Arc<Inside>) -> Self {
        let running = inside.running.fetch_add(1, Ordering::SeqCst) + 1;
        inside.most.fetch_max(running, Ordering::SeqCst);
        inside.started.fetch_add(1, Ordering::SeqCst);
        Running(inside)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// All events, one line each: the name, and what it carries.
#[derive(Clone, Default)]
pub(crate) struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn write(&self, event: &Event) {
        self.0.lock().unwrap().push(told(&event.what));
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Those of this family.
    pub(crate) fn take_of(&self, family: &str) -> Vec<String> {
        self.take().into_iter().filter(|line| line.starts_with(family)).collect()
    }
}

fn told(what: &What) -> String {
    let name = what.name();
    match what {
        What::Concurrency(at) | What::Throttle(at) => {
            let label = at.label.as_deref().map_or(String::new(), |label| format!(" [{label}]"));
            let key = at.key.as_ref().map_or(String::new(), |key| format!(" key={key}"));
            let carries = match at.what {
                AtGate::Queued { depth } => format!(" depth={depth}"),
                AtGate::Acquired { in_use, .. } => format!(" waited={} in_use={in_use}", at.has_waited()),
                AtGate::Released { held } => format!(" held={held:?}"),
                AtGate::Rejected { reason } => format!(" reason={reason}"),
                _ => String::new(),
            };
            format!("{name} {}{label}{key}{carries}", at.scope)
        }
        What::Failed { code } => format!("{name} {code}"),
        What::RetryScheduled { scope, attempt, backoff, code } => {
            format!("{name} {scope} attempt={attempt} backoff={backoff:?} {code}")
        }
        What::RetryExhausted { scope, attempts, code } => {
            format!("{name} {scope} attempts={attempts} {code}")
        }
        What::BreakerOpened { scope }
        | What::BreakerHalfOpened { scope }
        | What::BreakerClosed { scope }
        | What::ErrorRecovered { scope } => format!("{name} {scope}"),
        What::TimeoutExpired { scope, after } => format!("{name} {scope} after={after:?}"),
        What::BreakerRejected { scope, has_fallback } => format!("{name} {scope} fallback={has_fallback}"),
        What::CacheHit { scope, key } | What::CacheMissed { scope, key } => {
            format!("{name} {scope} key={key}")
        }
        What::DelayStarted { scope, span } => format!("{name} {scope} span={span:?}"),
        What::ErrorCaught { scope, code } => format!("{name} {scope} {code}"),
        What::TapFailed { code } | What::SourceFailed { code } => format!("{name} {code}"),
        _ => name.to_owned(),
    }
}

/// The code that something failed with.
#[track_caller]
pub(crate) fn code<T: std::fmt::Debug>(outcome: Result<T, Halt>) -> &'static str {
    outcome.unwrap_err().code().expect("it failed").as_str()
}

/// The whole message.
#[track_caller]
pub(crate) fn message<T: std::fmt::Debug>(outcome: Result<T, Halt>) -> String {
    outcome.unwrap_err().to_string()
}

/// The message of a route that cannot be built.
#[track_caller]
pub(crate) fn refused<R, O>(built: Result<Route<R, O>, Error>) -> String {
    built.unwrap_err().to_string()
}

/// The tenant of `acme:7`.
pub(crate) fn tenant(exchange: &Exchange<String>) -> String {
    exchange.body.split(':').next().unwrap_or_default().to_owned()
}
