//! The gate as its users hold it.
//!
//! Owns the public surface: [`Gate`] for a gate without keys, [`KeyedGate`] for one with. Both are cheap handles on one
//! engine; the last one dropped ends the gate, and passes still out end by themselves.

use std::{
    error::Error,
    fmt,
    future::Future,
    marker::PhantomData,
    panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use flowgate_core::{Code, Ident, Key, Limits, OptionError, Refusal, Spot};

#[cfg(feature = "route")]
use super::pass::Stub;
use super::{
    builder::{GateBuilder, check_keyed},
    close::Closing,
    engine::Engine,
    enter::{Enter, OwnedEnter},
    look::{LaneLook, Look},
    name::Name,
    pass::Pass,
    state::Ask,
};
use crate::mailbox::Subscription;

/// A gate without keys: one lane.
#[derive(Clone, Copy, Debug)]
pub enum Single {}

/// A gate with keys: a lane for each.
#[derive(Clone, Copy, Debug)]
pub enum Keyed {}

/// An admission point with limits. Cheap to clone: all clones are the same gate.
///
/// ```
/// use flowgate::Gate;
/// use std::time::Duration;
///
/// # async fn reserve() {}
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let gate = Gate::builder().max(5).queue(50).timeout(Duration::from_secs(2)).build()?;
///
/// let pass = gate.enter().await?; // waits in line, at most two seconds
/// reserve().await;
/// drop(pass); // the slot goes to the next in line
/// # Ok(())
/// # }
/// ```
pub struct Gate<K = Single> {
    engine: Arc<Engine>,
    kind: PhantomData<K>,
}

/// A gate with a lane for each key.
///
/// ```
/// use flowgate::Gate;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let gate = Gate::builder().max(2).rate(20, "1m").keyed().max_keys(10_000).build()?;
/// let pass = gate.enter_key("tenant-42").await?;
/// # Ok(())
/// # }
/// ```
pub type KeyedGate = Gate<Keyed>;

impl Gate {
    /// Starts with nothing set: at least `max` or `rate` has to be.
    pub fn builder() -> GateBuilder {
        GateBuilder::new()
    }

    /// Asks for a pass; await it. See [`Enter`] for weights and for what happens when it is dropped.
    #[inline]
    #[track_caller]
    pub fn enter(&self) -> Enter<'_> {
        Enter::new(&self.engine, None, Spot::here())
    }

    /// As [`Gate::enter`], borrowing nothing.
    #[track_caller]
    pub fn enter_owned(&self) -> OwnedEnter {
        OwnedEnter::new(Arc::clone(&self.engine), None, Spot::here())
    }

    /// A pass now, or a refusal: never waits.
    #[inline]
    #[track_caller]
    pub fn try_enter(&self) -> Result<Pass, Refusal> {
        match self.engine.enter_unheard() {
            Some(pass) => Ok(pass),
            None => self.enter().now(),
        }
    }

    /// As [`Gate::try_enter`] with no code for events on the fast path: for the benchmark that shows what that code costs, and
    /// for nothing else.
    #[doc(hidden)]
    #[inline]
    #[track_caller]
    pub fn try_enter_without_events(&self) -> Result<Pass, Refusal> {
        if self.engine.desk.express.take_deaf() {
            Ok(Pass::plain(self.engine.desk, 0))
        } else {
            self.enter().now()
        }
    }

    /// Spends one start now, or is refused: a rate check. The same as entering and leaving at once, and cheaper.
    #[inline]
    #[track_caller]
    pub fn check(&self) -> Result<(), Refusal> {
        self.engine.check(None, Spot::here())
    }

    /// Runs `work` with a pass: in line first, then to its end. What the work holds is known inside it ([`Pass::scope`]).
    ///
    /// Cancel safety: dropped, it leaves the line, or drops the work and then gives the slot back.
    #[track_caller]
    pub fn run<F: Future>(&self, work: F) -> impl Future<Output = Result<F::Output, Refusal>> {
        let (enter, spot) = (self.enter(), Spot::here());
        async move { Ok(enter.await?.scope_at(spot, work).await) }
    }
}

impl KeyedGate {
    /// Asks for a pass of this key's lane; await it. The empty key is a key.
    #[inline]
    #[track_caller]
    pub fn enter_key<'a>(&'a self, key: &'a str) -> Enter<'a> {
        Enter::new(&self.engine, Some(key), Spot::here())
    }

    /// As [`KeyedGate::enter_key`], borrowing nothing.
    #[track_caller]
    pub fn enter_key_owned(&self, key: Key) -> OwnedEnter {
        OwnedEnter::new(Arc::clone(&self.engine), Some(key), Spot::here())
    }

    /// A pass now, or a refusal: never waits.
    #[inline]
    #[track_caller]
    pub fn try_enter_key(&self, key: &str) -> Result<Pass, Refusal> {
        self.enter_key(key).now()
    }

    /// Asks `key_of` for the key, once, and enters its lane. If `key_of` fails or panics, no slot is touched.
    ///
    /// Cancel safety: as [`Enter`].
    pub async fn enter_by<S: AsRef<str>, E: fmt::Display>(
        &self,
        key_of: impl FnOnce() -> Result<S, E>,
    ) -> Result<Pass, EntryError> {
        let key = match catch_unwind(AssertUnwindSafe(key_of)) {
            Ok(Ok(key)) => key,
            Ok(Err(error)) => return Err(EntryError::key(&self.engine.meta.ident, &error)),
            Err(_) => return Err(EntryError::key(&self.engine.meta.ident, &"it panicked")),
        };
        Ok(self.enter_key(key.as_ref()).await?)
    }

    /// Spends one start of this key's rate now, or is refused.
    #[inline]
    #[track_caller]
    pub fn check_key(&self, key: &str) -> Result<(), Refusal> {
        self.engine.check(Some(&Name::Text(key)), Spot::here())
    }

    /// Runs `work` with a pass of this key's lane; see [`Gate::run`].
    #[track_caller]
    pub fn run<'a, F: Future + 'a>(
        &'a self,
        key: &'a str,
        work: F,
    ) -> impl Future<Output = Result<F::Output, Refusal>> + 'a {
        let (enter, spot) = (self.enter_key(key), Spot::here());
        async move { Ok(enter.await?.scope_at(spot, work).await) }
    }

    /// Pins limits to one key: from now on they hold there, for waiters as well, whatever the gate's limits
    /// are. How long an entrant may wait stays the gate's. `false` if there is no room for another lane.
    pub fn pin(&self, key: &str, limits: Limits) -> Result<bool, OptionError> {
        check_keyed(&limits)?;
        Ok(self.engine.pin(key, limits))
    }

    /// The gate's limits hold for this key again. `false` if none were pinned.
    pub fn unpin(&self, key: &str) -> bool {
        let name = Name::Text(key);
        let (desk, hash) = self.engine.locate(&name);
        desk.at(|state| state.unpin(&Ask::of(desk, Some((&name, hash)))))
    }

    /// This key's lane right now; `None` if it has no state: nothing in flight, nobody waiting, nothing of its rate spent.
    pub fn look_key(&self, key: &str) -> Option<LaneLook> {
        self.engine.look_key(key)
    }

    /// Up to `limit` lanes right now, in no particular order.
    pub fn lanes(&self, limit: usize) -> Vec<LaneLook> {
        self.engine.look_lanes(limit)
    }

    /// Sets other limits, at once, for waiters as well.
    pub fn set_limits(&self, limits: Limits) -> Result<(), OptionError> {
        check_keyed(&limits)?;
        self.engine.set_limits(limits);
        Ok(())
    }
}

impl Gate {
    /// Sets other limits, at once, for waiters as well. Nobody in line is lost or reordered; passes that are
    /// out stay out.
    pub fn set_limits(&self, limits: Limits) {
        self.engine.set_limits(limits);
    }
}

impl<K> Gate<K> {
    /// Asks for a pass at once, in the order of the calls; with a key where the gate has keys. Who has to wait is woken by the
    /// waker of `cx` until it is polled with another.
    #[cfg(any(feature = "http", feature = "route"))]
    pub(crate) fn begin(
        &self,
        key: Option<&Key>,
        spot: Spot,
        cx: &std::task::Context<'_>,
    ) -> super::enter::Begun {
        OwnedEnter::begin(&self.engine, key, spot, cx)
    }

    /// A slot of the express lane, where nobody listens: that is, without a trace. `None` says nothing at all.
    #[cfg(feature = "route")]
    #[inline]
    pub(crate) fn express(&self) -> Option<Stub> {
        self.engine.express()
    }

    /// Asks for a pass on behalf of a place that is not the caller; with a key where the gate has keys.
    #[cfg(feature = "route")]
    pub(crate) fn enter_at<'a>(&'a self, key: Option<&'a str>, spot: Spot) -> Enter<'a> {
        Enter::new(&self.engine, key, spot)
    }

    /// From now on this one hears everything as well.
    #[cfg(feature = "route")]
    pub(crate) fn relay(&self, listener: Box<dyn super::Listener>) {
        self.engine.meta.bus.relay(listener);
        self.engine.refresh();
    }

    pub(crate) fn new(engine: Engine) -> Self {
        Gate { engine: Arc::new(engine), kind: PhantomData }
    }

    /// The limits as they were set last.
    pub fn limits(&self) -> Limits {
        self.engine.limits()
    }

    /// The gate's names.
    pub fn ident(&self) -> &Ident {
        &self.engine.meta.ident
    }

    /// Nobody starts until [`Gate::resume`]; newcomers wait, or are refused (`paused`) where nobody waits.
    pub fn pause(&self) {
        self.engine.at_every_desk(|desk| desk.pause());
    }

    /// Ends a pause: those in line start, within the limits, in their order.
    pub fn resume(&self) {
        self.engine.at_every_desk(|desk| desk.resume());
    }

    /// Closes the gate, at once and for good: newcomers are refused (`closed`). Those in line go on, within the limits, until
    /// `drain` is over, and are refused then. Await the answer to know when all is quiet.
    pub fn close(&self, drain: Duration) -> Closing {
        let deadline = self.engine.meta.time.now().after(drain);
        Closing::new(Arc::clone(&self.engine), deadline)
    }

    /// The gate right now; all numbers belong to one moment.
    pub fn look(&self) -> Look {
        self.engine.look()
    }

    /// The gate's events from now on.
    pub fn subscribe(&self) -> Subscription {
        let subscription = self.engine.meta.bus.subscribe();
        self.engine.refresh();
        subscription
    }
}

impl<K> Clone for Gate<K> {
    fn clone(&self) -> Self {
        Gate { engine: Arc::clone(&self.engine), kind: PhantomData }
    }
}

/// A panic elsewhere leaves a gate whole: no user code runs while its state is being changed.
impl<K> UnwindSafe for Gate<K> {}
impl<K> RefUnwindSafe for Gate<K> {}

impl<K> fmt::Debug for Gate<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("ident", self.ident())
            .field("limits", &self.limits())
            .finish_non_exhaustive()
    }
}

/// Why there is no pass from [`KeyedGate::enter_by`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryError {
    /// The gate refused.
    Refused(Refusal),
    /// The key could not be found: a mistake in the configuration. No slot was touched.
    Key {
        /// Which gate.
        gate: String,
        /// What the key function said.
        message: String,
    },
}

impl EntryError {
    fn key(ident: &Ident, message: &dyn fmt::Display) -> Self {
        EntryError::Key { gate: ident.gate.clone(), message: message.to_string() }
    }

    /// Its code.
    pub fn code(&self) -> Code {
        match self {
            EntryError::Refused(refusal) => refusal.code(),
            EntryError::Key { .. } => Code::Misconfigured,
        }
    }

    /// Whether the same entry may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            EntryError::Refused(refusal) => refusal.is_retryable(),
            EntryError::Key { .. } => false,
        }
    }
}

impl From<Refusal> for EntryError {
    fn from(refusal: Refusal) -> Self {
        EntryError::Refused(refusal)
    }
}

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EntryError::Refused(refusal) => refusal.fmt(f),
            EntryError::Key { gate, message } => {
                write!(f, "{}: gate `{gate}`: the key function failed: {message}", Code::Misconfigured)
            }
        }
    }
}

impl Error for EntryError {}
