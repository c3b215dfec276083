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

use flowgate_core::{Code, Ident, Key, Limits, OptionError, Rate, Refusal, Spot};

#[cfg(feature = "route")]
use super::pass::Stub;
use super::{
    builder::{GateBuilder, check_keyed},
    close::Closing,
    engine::Engine,
    enter::{Enter, OwnedEnter},
    look::{Allowance, LaneLook, Look},
    name::Name,
    pass::Pass,
    state::Ask,
};
use crate::mailbox::Subscription;

/// Marks a gate without keys: it has one lane.
#[derive(Clone, Copy, Debug)]
pub enum Single {}

/// Marks a gate with keys: it has a lane for each key.
#[derive(Clone, Copy, Debug)]
pub enum Keyed {}

/// Bounds how much work is in flight at once, how often work starts, or both. Cheap to clone: all clones are the same
/// gate.
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

/// A gate with a separate lane, and so separate limits, for each key.
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
    /// Starts building a gate. Set at least `max` or `rate`.
    pub fn builder() -> GateBuilder {
        GateBuilder::new()
    }

    /// Waits for a pass; `.await` it. See [`Enter`] for weights, and for what happens when it is dropped.
    #[inline]
    #[track_caller]
    pub fn enter(&self) -> Enter<'_> {
        Enter::new(&self.engine, None, Spot::here())
    }

    /// Like [`Gate::enter`], but the returned future borrows nothing.
    #[track_caller]
    pub fn enter_owned(&self) -> OwnedEnter {
        OwnedEnter::new(Arc::clone(&self.engine), None, Spot::here())
    }

    /// Returns a pass or a refusal at once; never waits.
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

    /// Checks the rate: uses up one start, or is refused. Does the same as entering and leaving at once, and is
    /// cheaper.
    #[inline]
    #[track_caller]
    pub fn check(&self) -> Result<(), Refusal> {
        self.engine.check(None, Spot::here())
    }

    /// Waits for a pass, then runs `work` under it to its end. Inside `work` the gate knows which pass it holds (see
    /// [`Pass::scope`]).
    ///
    /// Cancel safety: dropped, it leaves the line, or drops the work and then gives the slot back.
    #[track_caller]
    pub fn run<F: Future>(&self, work: F) -> impl Future<Output = Result<F::Output, Refusal>> {
        let (enter, spot) = (self.enter(), Spot::here());
        async move { Ok(enter.await?.scope_at(spot, work).await) }
    }
}

impl KeyedGate {
    /// Waits for a pass of this key's lane; `.await` it. The empty string is a key like any other.
    #[inline]
    #[track_caller]
    pub fn enter_key<'a>(&'a self, key: &'a str) -> Enter<'a> {
        Enter::new(&self.engine, Some(key), Spot::here())
    }

    /// Like [`KeyedGate::enter_key`], but the returned future borrows nothing.
    #[track_caller]
    pub fn enter_key_owned(&self, key: Key) -> OwnedEnter {
        OwnedEnter::new(Arc::clone(&self.engine), Some(key), Spot::here())
    }

    /// Returns a pass of this key's lane or a refusal at once; never waits.
    #[inline]
    #[track_caller]
    pub fn try_enter_key(&self, key: &str) -> Result<Pass, Refusal> {
        self.enter_key(key).now()
    }

    /// Calls `key_of` once for the key, then waits for a pass of that key's lane. If `key_of` fails or panics, no
    /// slot is touched.
    ///
    /// Cancel safety: as [`Enter`].
    #[track_caller]
    pub fn enter_by<S: AsRef<str>, E: fmt::Display>(
        &self,
        key_of: impl FnOnce() -> Result<S, E>,
    ) -> impl Future<Output = Result<Pass, EntryError>> {
        let spot = Spot::here();
        async move {
            let key = match catch_unwind(AssertUnwindSafe(key_of)) {
                Ok(Ok(key)) => key,
                Ok(Err(error)) => return Err(EntryError::key(&self.engine.meta.ident, &error)),
                Err(_) => return Err(EntryError::key(&self.engine.meta.ident, &"it panicked")),
            };
            Ok(Enter::new(&self.engine, Some(key.as_ref()), spot).await?)
        }
    }

    /// Checks this key's rate: uses up one start, or is refused.
    #[inline]
    #[track_caller]
    pub fn check_key(&self, key: &str) -> Result<(), Refusal> {
        self.engine.check(Some(&Name::Text(key)), Spot::here())
    }

    /// Runs `work` under a pass of this key's lane; see [`Gate::run`].
    #[track_caller]
    pub fn run<'a, F: Future + 'a>(
        &'a self,
        key: &'a str,
        work: F,
    ) -> impl Future<Output = Result<F::Output, Refusal>> + 'a {
        let (enter, spot) = (self.enter_key(key), Spot::here());
        async move { Ok(enter.await?.scope_at(spot, work).await) }
    }

    /// Gives one key limits of its own, which replace the gate's from now on, also for those already waiting. How
    /// long an entry may wait is still the gate's. Returns `false` if there is no room for another lane.
    pub fn pin(&self, key: &str, limits: Limits) -> Result<bool, OptionError> {
        check_keyed(&limits)?;
        Ok(self.engine.pin(key, limits))
    }

    /// Removes a key's own limits, so that the gate's apply again. Returns `false` if it had none.
    pub fn unpin(&self, key: &str) -> bool {
        let name = Name::Text(key);
        let (desk, hash) = self.engine.locate(&name);
        desk.at(|state| state.unpin(&Ask::of(desk, Some((&name, hash)))))
    }

    /// Returns the state of this key's lane, or `None` if it has none: nothing in flight, nobody waiting, nothing
    /// used of its rate.
    pub fn look_key(&self, key: &str) -> Option<LaneLook> {
        self.engine.look_key(key)
    }

    /// Returns the rate that applies to this key, if any, and what is left of it; `None` beside it means all of it.
    /// Cheaper than [`KeyedGate::look_key`].
    pub fn rate_of_key(&self, key: &str) -> Option<(Rate, Option<Allowance>)> {
        self.engine.rate_of_key(key)
    }

    /// Returns the state of up to `limit` lanes, in no particular order.
    pub fn lanes(&self, limit: usize) -> Vec<LaneLook> {
        self.engine.look_lanes(limit)
    }

    /// Changes the limits at once, also for those already waiting.
    pub fn set_limits(&self, limits: Limits) -> Result<(), OptionError> {
        check_keyed(&limits)?;
        self.engine.set_limits(limits);
        Ok(())
    }
}

impl Gate {
    /// Changes the limits at once, also for those already waiting. Nobody in line is lost or reordered, and passes
    /// already given out stay valid.
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

    /// Returns the limits as they were last set.
    pub fn limits(&self) -> Limits {
        self.engine.limits()
    }

    /// Returns the gate's name, label and scope.
    pub fn ident(&self) -> &Ident {
        &self.engine.meta.ident
    }

    /// Stops everybody from starting until [`Gate::resume`]. Newcomers wait, or are refused (`paused`) if the gate
    /// has no line.
    pub fn pause(&self) {
        self.engine.at_every_desk(|desk| desk.pause());
    }

    /// Ends a pause. Those in line start in their order, within the limits.
    pub fn resume(&self) {
        self.engine.at_every_desk(|desk| desk.resume());
    }

    /// Closes the gate for good. Newcomers are refused (`closed`) from now on; those in line may still start, within
    /// the limits, until `drain` has passed, and are refused then. Await the returned future to know when everything
    /// has ended.
    pub fn close(&self, drain: Duration) -> Closing {
        let deadline = self.engine.meta.time.now().after(drain);
        Closing::new(Arc::clone(&self.engine), deadline)
    }

    /// Returns the state of the gate; all numbers belong to the same moment.
    pub fn look(&self) -> Look {
        self.engine.look()
    }

    /// Subscribes to the gate's events from now on.
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

/// Why [`KeyedGate::enter_by`] returned no pass.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryError {
    /// The gate refused the entry.
    Refused(Refusal),
    /// The key function failed: a configuration error. No slot was touched.
    Key {
        /// The name of the gate.
        gate: String,
        /// What the key function said.
        message: String,
    },
}

impl EntryError {
    fn key(ident: &Ident, message: &dyn fmt::Display) -> Self {
        EntryError::Key { gate: ident.gate.clone(), message: message.to_string() }
    }

    /// Returns the error code.
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
