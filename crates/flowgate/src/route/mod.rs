//! Routes: pipelines from a source through steps, with the whole resilience chain.
//!
//! Begin with [`Route::new`], end with `build`, and add the [`Route`] to a [`Context`]. A wrapper that is
//! declared before `.from()` covers the whole route; a wrapper after it covers the next step.
//!
//! For readers of the code, in reading order:
//!
//! - `draft`: a route before its source, with the wrappers around the whole of it in their fixed order.
//! - `steps`: a route after its source. Both end in a `definition`, which has no state.
//! - `context`: runs routes together, and builds a `site` for each: its state.
//! - `flight`: one exchange on its way.
//! - `wrap` has the wrappers, `op` the operations, `source` and `destination` the two ends.
//!
//! Limits are gates (`limiter`): nothing is counted here.

mod bus;
mod clock;
mod context;
mod cx;
mod definition;
mod destination;
mod draft;
mod error;
mod event;
mod exchange;
mod flight;
mod intake;
mod limiter;
mod mounted;
mod op;
mod plan;
#[cfg(feature = "route-queue")]
mod queue;
#[cfg(feature = "axum")]
mod respond;
mod site;
mod source;
mod step;
mod steps;
mod timer;
mod wrap;

pub use crate::mailbox::Subscription;
pub use context::{Context, ContextBuilder, Report, RouteGate};
pub use cx::Cx;
pub use definition::{Head, Route};
pub use destination::{Destination, DirectTo, Log, direct_to, log};
#[cfg(feature = "route-http")]
pub use destination::{Http, HttpReply, http};
pub use draft::Draft;
pub use error::{BoxError, Category, Error};
pub use event::{AtGate, Event, Scope, What};
pub use exchange::{Exchange, ExchangeId, Headers};
pub use intake::{Intake, Place};
pub use limiter::Door;
pub use mounted::Direct;
pub use op::{Cases, Choice, Enrich, Fan, Filter, Multicast, Split, Tap, To, Transform, Validate};
#[cfg(feature = "route-queue")]
pub use queue::{Queue, queue};
pub use source::{
    Channel, CronSource, DirectSource, Feed, Source, TimerSource, Values, channel, cron, direct, timer,
    values,
};
#[cfg(feature = "axum")]
pub use source::{HttpSource, http_in};
pub use step::{Halt, Outcome, Start, Step, Then};
pub use steps::{Branch, Next, Steps};
pub use wrap::{
    Bare, Bounded, Broken, Cache, Cached, Caught, CircuitBreaker, Complete, Concurrency, Delayed, Failure,
    Jitter, Retried, Retry, Stacked, Throttle, Throttled, Timed, Wrap,
};
