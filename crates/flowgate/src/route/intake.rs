//! The way into a route, for its source.
//!
//! Owns what a source may do: run an exchange in its own future, or have it run as a task, of which there are only so many.
//! A source reserves a place first and takes its next message then: so wherever it is stopped, no message is lost.

use std::{fmt, sync::Arc, time::Duration};

use flowgate_core::{Limits, OptionError, Refusal, Tick};
use tokio::runtime::Handle;

use super::{
    context::Shared,
    definition::Definition,
    error::Error,
    exchange::Exchange,
    limiter::Door,
    mounted::{Mounted, Task},
    step::Outcome,
};
use crate::gate::{Gate, Pass};

/// What a source uses to send exchanges into its route. Cheap to clone.
pub struct Intake<B, O> {
    pub(crate) mounted: Arc<Mounted<B, O>>,
    pub(crate) shared: Arc<Shared>,
    /// How many tasks there may be at once: a gate, like every other bound.
    room: Gate,
    outermost: Option<usize>,
}

impl<B: Send + 'static, O: Send + 'static> Intake<B, O> {
    pub(crate) fn new(
        mounted: Arc<Mounted<B, O>>,
        shared: Arc<Shared>,
        definition: &Definition<B, O>,
    ) -> Result<Self, Error> {
        let room = Gate::builder().name(&*definition.plan.id).label("intake").max(shared.intake).build();
        let room = room.map_err(|error| OptionError::new("intake", error.value(), error.accepted()))?;
        Ok(Intake { mounted, shared, room, outermost: definition.outermost })
    }

    /// Returns the route's id.
    pub fn route(&self) -> &str {
        &self.mounted.site.route
    }

    /// Waits until there is room for one more exchange.
    ///
    /// Cancel safety: dropped, it holds no place.
    pub async fn place(&self) -> Result<Place<B, O>, Refusal> {
        let pass = self.room.enter().await?;
        Ok(Place { intake: self.clone(), pass })
    }

    /// Runs an exchange in the caller's own future and waits for its outcome; for sources that answer.
    ///
    /// Cancel safety: dropped, the exchange is cancelled where it stands.
    pub fn call(&self, exchange: Exchange<B>) -> impl Future<Output = Outcome<O>> + Send + '_ {
        self.mounted.fly(exchange, self.mounted.spot)
    }

    /// Returns the limits of the outermost route-scope `concurrency`, if that has no key. A source that has no more
    /// exchanges under way than these limits have slots, such as a durable queue with its claims, leaves nobody in the
    /// gate's line.
    pub fn limits(&self) -> Option<Limits> {
        match &self.mounted.site.doors.get(self.outermost?)?.1 {
            Door::One(gate) => Some(gate.limits()),
            Door::Many(_) => None,
        }
    }

    /// Returns the time, by the context's clock.
    pub fn now(&self) -> Tick {
        self.shared.timers.now()
    }

    /// Returns the time of day, in nanoseconds since 1970.
    pub fn wall(&self) -> i128 {
        (self.shared.wall)()
    }

    /// Waits for `span`, by the context's clock.
    ///
    /// Cancel safety: dropped, nothing is left.
    pub fn sleep(&self, span: Duration) -> impl Future<Output = ()> + Send + use<B, O> {
        self.shared.timers.sleep(span)
    }

    /// Waits until a moment, by the context's clock.
    ///
    /// Cancel safety: dropped, nothing is left.
    pub fn sleep_until(&self, at: Tick) -> impl Future<Output = ()> + Send + use<B, O> {
        self.shared.timers.sleep_until(at)
    }

    /// From now on the route can be called by its name.
    pub(crate) fn serve(&self) {
        let mounted = Arc::clone(&self.mounted);
        self.shared.serve(Arc::clone(&self.mounted.site.route), mounted);
    }
}

impl<B, O> Clone for Intake<B, O> {
    fn clone(&self) -> Self {
        Intake {
            mounted: Arc::clone(&self.mounted),
            shared: Arc::clone(&self.shared),
            room: self.room.clone(),
            outermost: self.outermost,
        }
    }
}

impl<B, O> fmt::Debug for Intake<B, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").field("route", &self.mounted.site.route).finish_non_exhaustive()
    }
}

/// Room for one exchange. It is held until the exchange has ended.
#[must_use = "a place is given back as soon as it is dropped"]
pub struct Place<B, O> {
    intake: Intake<B, O>,
    pass: Pass,
}

impl<B: Send + 'static, O: Send + 'static> Place<B, O> {
    /// Runs an exchange as a task. Its outcome is only told as an event.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn launch(self, exchange: Exchange<B>) {
        self.launch_then(exchange, drop);
    }

    /// Runs an exchange as a task and calls `settled` with its outcome, unless the runtime is dropped first. A
    /// durable queue settles its claim here.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn launch_then(self, exchange: Exchange<B>, settled: impl FnOnce(Outcome<O>) + Send + 'static) {
        let runtime = Handle::current();
        let task = Task::begin(Arc::clone(&self.intake.mounted.site));
        runtime.spawn(async move {
            let _task = task;
            // All of it: what the exchange needs of its context is there until it has ended, like its place.
            let Place { intake, pass: _pass } = self;
            settled(intake.mounted.fly(exchange, intake.mounted.spot).inner().await);
        });
    }
}

impl<B, O> fmt::Debug for Place<B, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("intake", &self.intake).finish_non_exhaustive()
    }
}
