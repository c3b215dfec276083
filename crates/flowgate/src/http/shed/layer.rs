//! The layer and its options.
//!
//! Owns the signals and the one task that reads them, which ends with the layer.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use flowgate_core::OptionError;
use http::{StatusCode, request::Parts};
use tokio::runtime::Handle;
use tower_layer::Layer;

use super::{
    clock::Ticks,
    pressure::{EVERY, Ramp, Share, Signals},
    service::Shedding,
};
use crate::{
    http::{answer::Answer, front::FrontBuilder, scope::Scope},
    sync::{AtomicBool, Ordering},
};

/// Refuses a rising share of requests, with 503, while the process is under pressure; a plain [`Layer`]. The signals
/// are read on the runtime that serves the first request.
///
/// ```
/// use flowgate::http::LoadShed;
/// use std::time::Duration;
///
/// # fn example() -> Result<(), flowgate::OptionError> {
/// let shed = LoadShed::builder()
///     .runtime_delay(Duration::from_millis(50), Duration::from_millis(250))
///     .rss(1 << 30, 2 << 30)
///     .exempt_path("/healthz")
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LoadShed {
    shared: Arc<Shared>,
}

/// What all services of one layer share.
pub(super) struct Shared {
    pub(super) front: crate::http::front::Front,
    pub(super) share: Share,
    signals: Signals,
    is_watched: AtomicBool,
}

/// Collects the options of a [`LoadShed`].
#[must_use = "a builder does nothing until `build`"]
pub struct LoadShedBuilder {
    front: FrontBuilder,
    signals: Signals,
    wrong: Option<OptionError>,
}

impl LoadShed {
    /// Starts building a layer that watches nothing yet: at least one signal has to be set.
    pub fn builder() -> LoadShedBuilder {
        let front = FrontBuilder::new(Scope::Global, Answer::default());
        LoadShedBuilder { front, signals: Signals::default(), wrong: None }
    }

    /// Returns the share of requests that is refused right now, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.shared.share.now()
    }
}

impl LoadShedBuilder {
    /// Watches how late the runtime wakes a task: refusals begin at `soft`, and at `hard` everything is refused.
    pub fn runtime_delay(mut self, soft: Duration, hard: Duration) -> Self {
        let ramp = Ramp::new("runtime_delay", soft.as_secs_f64(), hard.as_secs_f64());
        self.signals.delay = self.keep(ramp);
        self
    }

    /// Watches how many bytes of memory are resident, on systems that tell (Linux).
    pub fn rss(mut self, soft: u64, hard: u64) -> Self {
        let ramp = Ramp::new("rss", soft as f64, hard as f64);
        self.signals.rss = self.keep(ramp);
        self
    }

    /// Watches what a function returns: the share to refuse, from 0 (healthy) to 1.
    pub fn health(mut self, health: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        self.signals.health = Some(Arc::new(health));
        self
    }

    /// Exempts this path: its requests are never refused. `/internal/*` means everything below `/internal/`.
    pub fn exempt_path(mut self, path: &str) -> Self {
        self.front.exempt_path(path);
        self
    }

    /// Exempts requests for which `is_exempt` returns `true`.
    pub fn exempt(mut self, is_exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.front.exempt(is_exempt);
        self
    }

    /// Sets the status of a refusal. Default: 503.
    pub fn status(mut self, status: StatusCode) -> Self {
        self.front.answer(|answer| answer.status(status));
        self
    }

    /// Sets everything about how a request is refused, replacing what was set before.
    pub fn answer(mut self, answer: Answer) -> Self {
        self.front.answer(|_| Ok(answer));
        self
    }

    /// Builds the layer, or returns the first option that is wrong.
    pub fn build(self) -> Result<LoadShed, OptionError> {
        if let Some(error) = self.wrong {
            return Err(error);
        }
        let Signals { delay, rss, health } = &self.signals;
        if delay.is_none() && rss.is_none() && health.is_none() {
            let accepted = "at least one of `runtime_delay`, `rss` and `health`";
            return Err(OptionError::new("signals", "empty", accepted));
        }
        let front = self.front.build()?;
        let shared = Shared {
            front,
            share: Share::default(),
            signals: self.signals,
            is_watched: AtomicBool::new(false),
        };
        Ok(LoadShed { shared: Arc::new(shared) })
    }

    fn keep(&mut self, ramp: Result<Ramp, OptionError>) -> Option<Ramp> {
        ramp.map_err(|error| self.wrong.get_or_insert(error)).ok()
    }
}

impl Shared {
    /// Starts reading the signals, once, where there is a runtime to read them on.
    pub(super) fn watch(self: &Arc<Self>) {
        if self.is_watched.load(Ordering::Relaxed) || self.is_watched.swap(true, Ordering::Relaxed) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            self.is_watched.store(false, Ordering::Relaxed);
            return;
        };
        let watch = Watch(Arc::downgrade(self));
        runtime.spawn(async move {
            let mut ticks = Ticks::every(EVERY);
            loop {
                let late = ticks.next().await;
                let Some(shared) = watch.0.upgrade() else { return };
                shared.signals.read(&shared.share, late);
            }
        });
    }
}

/// Held by the task that reads the signals. Should its runtime end before the layer does, nothing is shed for what was read
/// there, and the next request starts another.
struct Watch(Weak<Shared>);

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.share.set(0.0);
            shared.is_watched.store(false, Ordering::Relaxed);
        }
    }
}

impl<S> Layer<S> for LoadShed {
    type Service = Shedding<S>;

    fn layer(&self, inner: S) -> Shedding<S> {
        Shedding::new(inner, Arc::clone(&self.shared))
    }
}

impl std::fmt::Debug for LoadShedBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Signals { delay, rss, health } = &self.signals;
        f.debug_struct("LoadShedBuilder")
            .field("runtime_delay", delay)
            .field("rss", rss)
            .field("health", &health.is_some())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for LoadShed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadShed").field("share", &self.share()).finish_non_exhaustive()
    }
}
