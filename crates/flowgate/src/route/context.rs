//! Routes that run together.
//!
//! Owns the routes of a context and their state, the names by which they call each other, starting and stopping. A definition
//! added to two contexts has state in both.

use std::{
    any::{Any, type_name},
    collections::HashMap,
    fmt,
    future::poll_fn,
    io::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use flowgate_core::Code;
use tokio::{runtime::Handle, task::AbortHandle};

use super::{
    bus::{Bus, Listener},
    clock::{self, Wall},
    definition::{Definition, Route},
    error::Error,
    event::{Event, Scope, What},
    exchange::ExchangeId,
    flight::Flights,
    intake::Intake,
    limiter::{Door, Kind},
    mounted::{Direct, Mounted, Task},
    plan::Link,
    site::Site,
    source::Feed,
    step::BoxFuture,
    timer::Timers,
};
use crate::{
    chance::{Random, chance},
    clock::Clock,
    mailbox::Subscription,
    sync::{Mutex, lock},
};

type LogFn = Box<dyn Fn(&str) + Send + Sync>;

/// How many exchanges of a route's source are under way at once, at most, unless told otherwise.
const INTAKE: u32 = 1_024;

/// Runs a set of routes together: they can call each other by id, share one stream of events, and stop together.
/// Dropping a context stops its sources; exchanges under way go on, and so do the routes that a handle
/// ([`Context::direct`]) or the router leads to.
pub struct Context {
    shared: Arc<Shared>,
    state: Mutex<State>,
}

/// What the routes of a context share.
pub(crate) struct Shared {
    clock: Option<Arc<dyn Clock>>,
    pub(crate) timers: &'static Timers,
    bus: Arc<Bus>,
    random: Random,
    pub(crate) wall: Wall,
    pub(crate) log: LogFn,
    pub(crate) intake: u32,
    /// Whether all exchanges are cancelled.
    is_cancelled: Arc<AtomicBool>,
    /// The routes that can be called, by id. None of what is in here holds on to all of it: that is for those who call.
    callable: RwLock<HashMap<Arc<str>, Arc<dyn Any + Send + Sync>>>,
    #[cfg(feature = "axum")]
    pub(crate) router: Mutex<axum::Router<Arc<Shared>>>,
}

struct State {
    phase: Phase,
    entries: Vec<Entry>,
    feeds: Vec<AbortHandle>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    New,
    Started,
    Stopped,
}

/// A route of the context.
struct Entry {
    site: Arc<Site>,
    links: Vec<Link>,
    open: Option<Box<dyn FnOnce() -> Result<Feed, Error> + Send>>,
}

/// A gate of a route, to look at it and to change its limits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RouteGate {
    /// The route it belongs to.
    pub route: Arc<str>,
    /// The wrapper it belongs to: `concurrency` or `throttle`.
    pub wrapper: &'static str,
    /// Whether that wrapper covers the route or one step.
    pub scope: Scope,
    /// The wrapper's label.
    pub label: Option<String>,
    /// The gate itself.
    pub gate: Door,
}

/// How the shutdown of a context ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The exchanges that had not ended by the deadline and were cancelled, each with its route. An exchange that is
    /// called, and whose caller does not poll it any more, is among them.
    pub cancelled: Vec<(Arc<str>, ExchangeId)>,
}

impl Report {
    /// Whether everything ended in time.
    pub fn is_clean(&self) -> bool {
        self.cancelled.is_empty()
    }
}

impl Context {
    /// Creates a context with default options.
    #[expect(clippy::new_without_default, reason = "a context is made on purpose")]
    pub fn new() -> Self {
        Context::builder().build()
    }

    /// Starts building a context with options of its own.
    pub fn builder() -> ContextBuilder {
        ContextBuilder {
            clock: None,
            listeners: Vec::new(),
            random: None,
            wall: None,
            log: None,
            intake: INTAKE,
        }
    }

    /// Adds a route, which gets state of its own in this context. Only before [`Context::start`], and each id once
    /// (RC1002).
    pub fn add<R: Send + 'static, O: Send + 'static>(&self, route: &Route<R, O>) -> Result<(), Error> {
        let mut state = lock(&self.state);
        let id = &route.definition.plan.id;
        if state.phase != Phase::New {
            let message = format!("route `{id}` was added after its context was started");
            return Err(Error::new(Code::NotStarted, message));
        }
        if state.entries.iter().any(|entry| entry.site.route == *id) {
            return Err(Error::new(Code::DuplicateRoute, format!("route `{id}` already exists")));
        }
        state.entries.push(self.entry(&route.definition)?);
        Ok(())
    }

    fn entry<R: Send + 'static, O: Send + 'static>(
        &self,
        definition: &Arc<Definition<R, O>>,
    ) -> Result<Entry, Error> {
        let site = Arc::new(self.shared.site(definition)?);
        let mounted = Arc::new(Mounted {
            site: Arc::clone(&site),
            chain: definition.chain.clone(),
            spot: definition.spot,
        });
        let (definition, shared) = (Arc::clone(definition), Arc::downgrade(&self.shared));
        let links = definition.plan.links.clone();
        let open = move || {
            let shared = shared.upgrade().expect("a context that starts its routes is there");
            definition.opener.open(Intake::new(mounted, shared, &definition)?)
        };
        Ok(Entry { site, links, open: Some(Box::new(open)) })
    }

    /// Starts all routes: sources begin, and routes can be called by id. Needs a tokio runtime, unless all sources
    /// are `direct` or HTTP. After an error nothing runs, and the context cannot be started any more.
    pub fn start(&self) -> Result<(), Error> {
        let mut state = lock(&self.state);
        if state.phase != Phase::New {
            return Err(Error::new(Code::NotStarted, "the context is already started"));
        }
        let started = self.start_all(&mut state);
        state.phase = if started.is_ok() { Phase::Started } else { Phase::Stopped };
        if started.is_err() {
            state.entries.iter().for_each(|entry| entry.site.flights.stop_intake());
            self.shared.serve_nothing();
        }
        started
    }

    fn start_all(&self, state: &mut State) -> Result<(), Error> {
        let mut feeds = Vec::new();
        for entry in &mut state.entries {
            let open = entry.open.take().expect("a context is started once");
            if let Some(feed) = open()?.0 {
                feeds.push((Arc::clone(&entry.site), feed));
            }
        }
        for entry in &state.entries {
            entry.links.iter().try_for_each(|link| self.shared.check(link, &entry.site.route))?;
        }
        if !feeds.is_empty() {
            let runtime = Handle::try_current().map_err(|error| {
                Error::new(Code::NotStarted, "sources need a tokio runtime").caused_by(error)
            })?;
            state.feeds = feeds.into_iter().map(|(site, feed)| spawn(&runtime, site, feed)).collect();
        }
        Ok(())
    }

    /// Returns a handle on the route with this id, which has to begin with `direct()`. RC5004 if there is none, or if
    /// its bodies have other types.
    pub fn direct<I: Send + 'static, O: Send + 'static>(&self, id: &str) -> Result<Direct<I, O>, Error> {
        let mounted = self.shared.find::<Mounted<I, O>>(id).ok_or_else(|| {
            let (takes, answers) = (type_name::<I>(), type_name::<O>());
            Error::new(
                Code::NoHandler,
                format!("no started route `{id}` takes {takes} and answers {answers}"),
            )
        })?;
        Ok(Direct::new(mounted, Arc::clone(&self.shared)))
    }

    /// Subscribes to the events of all routes from now on.
    pub fn subscribe(&self) -> Subscription<Event> {
        let subscription = self.shared.bus.subscribe();
        lock(&self.state).entries.iter().for_each(|entry| entry.site.relay_gates());
        subscription
    }

    /// Returns the gates of all routes: for a console, for metrics, or to change limits while exchanges run and wait.
    pub fn gates(&self) -> Vec<RouteGate> {
        let state = lock(&self.state);
        let of = |entry: &Entry| {
            let route = Arc::clone(&entry.site.route);
            let gates = entry.site.doors.iter().map(move |(spec, door)| RouteGate {
                route: Arc::clone(&route),
                wrapper: match spec.kind {
                    Kind::Concurrency => "concurrency",
                    Kind::Throttle => "throttle",
                },
                scope: spec.scope,
                label: spec.label.clone(),
                gate: door.clone(),
            });
            gates.collect::<Vec<_>>()
        };
        state.entries.iter().flat_map(of).collect()
    }

    /// Returns how many exchanges and sources wait for a moment of this context's clock: in the pause of a retry,
    /// under a timeout, in a delay, for a schedule. Contexts on the system's clock are counted together.
    pub fn sleeping(&self) -> usize {
        self.shared.timers.len()
    }

    /// Returns the axum router of all routes that take HTTP requests, to be served or nested. Call it after
    /// [`Context::start`].
    #[cfg(feature = "axum")]
    pub fn router(&self) -> axum::Router {
        lock(&self.shared.router).clone().with_state(Arc::clone(&self.shared))
    }

    /// Waits until all sources have ended and nothing is under way.
    ///
    /// Cancel safety: dropping it changes nothing.
    pub async fn finished(&self) {
        let sites = self.sites();
        // One that was empty may not be any more: an exchange of another may have sent something there.
        while let Some(site) = sites.iter().find(|site| !site.flights.is_empty()) {
            site.flights.emptied().await;
        }
    }

    /// Stops the context: it takes nothing in any more, lets exchanges under way go on for up to `drain`, and cancels
    /// those that have not ended by then. The report names them.
    ///
    /// Cancel safety: nothing happens before the first poll. Dropped later, intake stays stopped, and
    /// exchanges under way go on.
    pub async fn shutdown(&self, drain: Duration) -> Report {
        let sites = self.stop_intake();
        let mut over = pin!(self.shared.timers.sleep(drain));
        let mut empty = pin!(self.finished());
        let is_empty = poll_fn(|cx| match empty.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => over.as_mut().poll(cx).map(|()| false),
        })
        .await;
        let mut cancelled = Vec::new();
        if !is_empty {
            self.shared.is_cancelled.store(true, Ordering::SeqCst);
            sites.iter().for_each(|site| site.flights.wake_all());
            for site in &sites {
                let ids = site.flights.cancelled().await;
                cancelled.extend(ids.into_iter().map(|id| (Arc::clone(&site.route), id)));
            }
        }
        Report { cancelled }
    }

    fn stop_intake(&self) -> Vec<Arc<Site>> {
        let mut state = lock(&self.state);
        state.phase = Phase::Stopped;
        state.feeds.drain(..).for_each(|feed| feed.abort());
        drop(state);
        let sites = self.sites();
        sites.iter().for_each(|site| site.flights.stop_intake());
        sites
    }

    fn sites(&self) -> Vec<Arc<Site>> {
        lock(&self.state).entries.iter().map(|entry| Arc::clone(&entry.site)).collect()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        lock(&self.state).feeds.drain(..).for_each(|feed| feed.abort());
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes: Vec<_> = self.sites().iter().map(|site| Arc::clone(&site.route)).collect();
        f.debug_struct("Context").field("routes", &routes).finish_non_exhaustive()
    }
}

/// A feed at work, which is counted until all of it is gone: what it read from is free again before a shutdown is over.
/// The fields are dropped in this order.
struct Feeding {
    feed: BoxFuture<'static, Result<(), Error>>,
    _task: Task,
}

/// Runs a feed as a task of its site.
fn spawn(runtime: &Handle, site: Arc<Site>, feed: BoxFuture<'static, Result<(), Error>>) -> AbortHandle {
    let feeding = Feeding { feed, _task: Task::begin(Arc::clone(&site)) };
    let running = runtime.spawn(async move {
        // As a whole: a block takes single fields of what it only uses in part.
        let mut feeding = feeding;
        // A source that panics has failed like any other: whoever listens is told that nothing more will come.
        let done = poll_fn(|cx| {
            catch_unwind(AssertUnwindSafe(|| feeding.feed.as_mut().poll(cx)))
                .unwrap_or_else(|_| Poll::Ready(Err(Error::new(Code::Panicked, "a source panicked"))))
        })
        .await;
        site.tell(None, || match done {
            Ok(()) => What::SourceCompleted,
            Err(error) => What::SourceFailed { code: error.code() },
        });
    });
    running.abort_handle()
}

impl Shared {
    fn site<R, O>(self: &Arc<Self>, definition: &Definition<R, O>) -> Result<Site, Error> {
        let plan = &definition.plan;
        let doors: Result<_, Error> = plan
            .gates
            .iter()
            .map(|spec| Ok((spec.clone(), spec.build(&plan.id, self.clock.clone())?)))
            .collect();
        let site = Site {
            route: Arc::clone(&plan.id),
            timers: self.timers,
            bus: Arc::clone(&self.bus),
            random: Arc::clone(&self.random),
            doors: doors?,
            circuits: plan.circuits.iter().map(|make| make()).collect(),
            caches: plan.caches.iter().map(|make| make()).collect(),
            context: Arc::downgrade(self),
            flights: Flights::new(Arc::clone(&self.is_cancelled)),
        };
        if self.bus.is_on() {
            site.relay_gates();
        }
        Ok(site)
    }

    pub(crate) fn serve(&self, id: Arc<str>, mounted: Arc<dyn Any + Send + Sync>) {
        self.callable.write().unwrap_or_else(PoisonError::into_inner).insert(id, mounted);
    }

    fn serve_nothing(&self) {
        self.callable.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn find<T: Send + Sync + 'static>(&self, id: &str) -> Option<Arc<T>> {
        let mounted = self.callable.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned();
        mounted?.downcast().ok()
    }

    fn check(&self, link: &Link, from: &str) -> Result<(), Error> {
        let callable = self.callable.read().unwrap_or_else(PoisonError::into_inner);
        match callable.get(link.to.as_str()) {
            Some(mounted) if mounted.as_ref().type_id() == link.mounted => Ok(()),
            found => {
                let (to, bodies) = (&link.to, link.bodies);
                let why = if found.is_some() { "has other bodies" } else { "is not there" };
                let message = format!("route `{from}` sends to route `{to}` as {bodies}, which {why}");
                Err(Error::new(Code::NoHandler, message))
            }
        }
    }
}

/// Collects the options of a [`Context`].
#[must_use = "a builder does nothing until `build`"]
pub struct ContextBuilder {
    clock: Option<Arc<dyn Clock>>,
    listeners: Vec<Listener>,
    random: Option<Random>,
    wall: Option<Wall>,
    log: Option<LogFn>,
    intake: u32,
}

impl ContextBuilder {
    /// Adds a listener, which is called for every event on the thread where it happens. Be quick, and do not block.
    /// Several may be added.
    pub fn listener(mut self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.listeners.push(Box::new(listener));
        self
    }

    /// Limits how many exchanges of one source may be under way at once: default 1,024. At the limit the source
    /// waits. Direct calls and HTTP requests are bounded by their callers instead, and a durable queue by its worker.
    pub fn intake(mut self, intake: u32) -> Self {
        self.intake = intake;
        self
    }

    /// Sets where [`log`](super::log) writes. Default: standard error.
    pub fn log(mut self, log: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.log = Some(Box::new(log));
        self
    }

    /// Replaces the system's clock, so that tests can move time by hand.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Replaces the system's time of day, in nanoseconds since 1970; for tests.
    pub fn wall(mut self, wall: impl Fn() -> i128 + Send + Sync + 'static) -> Self {
        self.wall = Some(Arc::new(wall));
        self
    }

    /// Replaces the random numbers of jitter, which are from 0 to 1; for tests.
    pub fn random(mut self, random: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        self.random = Some(Arc::new(random));
        self
    }

    /// Builds the context, which has no routes yet.
    pub fn build(self) -> Context {
        let shared = Arc::new(Shared {
            timers: Timers::of(self.clock.clone()),
            clock: self.clock,
            bus: Arc::new(Bus::new(self.listeners)),
            random: self.random.unwrap_or_else(chance),
            wall: self.wall.unwrap_or_else(clock::wall),
            log: self.log.unwrap_or_else(|| Box::new(to_stderr)),
            intake: self.intake,
            is_cancelled: Arc::default(),
            callable: RwLock::default(),
            #[cfg(feature = "axum")]
            router: Mutex::default(),
        });
        let state = State { phase: Phase::New, entries: Vec::new(), feeds: Vec::new() };
        Context { shared, state: Mutex::new(state) }
    }
}

impl fmt::Debug for ContextBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextBuilder").field("intake", &self.intake).finish_non_exhaustive()
    }
}

/// A log that nobody can read any more is no reason to fail.
fn to_stderr(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
