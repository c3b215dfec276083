//! The layer, and what all services made of it share.
//!
//! Owns the shared state: one layer mounted twice, and all clones of its services, are one client.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use http::request::Parts;
use tower_layer::Layer;

use super::{
    backoff::Backoff,
    builder::ClientBuilder,
    clock::Stopwatch,
    destination::Destinations,
    service::Client,
    verdict::{Codes, Limit},
};
use crate::chance::Random;
use crate::gate::Gate;

/// A layer for callers of an API with limits. It sends again what was refused before it ran, as the server asks and
/// within a budget, and slows down by itself before it is refused.
///
/// ```
/// use flowgate::http::client::ClientLayer;
/// use std::time::Duration;
///
/// let layer = ClientLayer::builder().max_retries(3).deadline(Duration::from_secs(20)).build()?;
/// # Ok::<(), flowgate::OptionError>(())
/// ```
#[derive(Clone)]
pub struct ClientLayer {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) key: KeyFn,
    pub(super) codes: Codes,
    pub(super) max_body: usize,
    pub(super) backoff: Backoff,
    pub(super) max_retries: u32,
    pub(super) max_wait: Duration,
    pub(super) deadline: Option<Duration>,
    pub(super) random: Random,
    pub(super) on_retry: Option<RetryFn>,
    pub(super) places: Destinations,
    pub(super) clock: Stopwatch,
}

pub(super) type KeyFn = Box<dyn Fn(&Parts) -> Option<String> + Send + Sync>;
pub(super) type RetryFn = Box<dyn Fn(&Retry<'_>) + Send + Sync>;

/// A request that is about to be sent again; told before the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry<'a> {
    /// The key of its destination.
    pub key: &'a str,
    /// The number of this retry, counted from 1.
    pub attempt: u32,
    /// How long it waits.
    pub delay: Duration,
    /// Why it was refused: a reason's word, or the code in the response's body.
    pub reason: &'a str,
    /// Which kind of limit refused it.
    pub limit: Limit,
}

impl ClientLayer {
    /// Creates a layer with default options.
    pub fn new() -> Self {
        ClientLayer::builder().build().expect("the defaults are accepted")
    }

    /// Starts building a layer.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    pub(super) fn of(shared: Shared) -> Self {
        ClientLayer { shared: Arc::new(shared) }
    }

    /// Returns the gate before one destination, to look at or to listen to, or `None` if nothing is known of this
    /// key. Its `max` is what this client allows itself right now.
    pub fn gate(&self, key: &str) -> Option<Gate> {
        self.shared.places.gate(key)
    }
}

impl Default for ClientLayer {
    fn default() -> Self {
        ClientLayer::new()
    }
}

impl<S> Layer<S> for ClientLayer {
    type Service = Client<S>;

    fn layer(&self, inner: S) -> Client<S> {
        Client::new(inner, Arc::clone(&self.shared))
    }
}

impl Shared {
    /// A hook that panics has been reported by the panic hook, and changes nothing for the request.
    pub(super) fn tell(&self, retry: &Retry<'_>) {
        if let Some(on_retry) = &self.on_retry {
            let _ = catch_unwind(AssertUnwindSafe(|| on_retry(retry)));
        }
    }
}

impl fmt::Debug for ClientLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { max_retries, backoff, deadline, .. } = &*self.shared;
        f.debug_struct("ClientLayer")
            .field("max_retries", max_retries)
            .field("backoff", backoff)
            .field("deadline", deadline)
            .finish_non_exhaustive()
    }
}
