//! A route in a context, ready to run.
//!
//! Owns the handle by which it is called. An exchange runs in its caller's own future, which may be a task of ours.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use flowgate_core::Spot;

use super::{
    context::Shared,
    exchange::Exchange,
    flight::Flight,
    site::Site,
    step::{Erased, Halt, Outcome},
};
pub(crate) struct Mounted<I, O> {
    pub(crate) site: Arc<Site>,
    pub(crate) chain: Erased<I, O>,
    /// The place of its `.from()`.
    pub(crate) spot: Spot,
}

impl<I: Send + 'static, O: Send + 'static> Mounted<I, O> {
    pub(crate) fn fly(&self, exchange: Exchange<I>, sent_at: Spot) -> Flight<'_, I, O> {
        Flight::new(&self.site, &self.chain, exchange, sent_at)
    }
}

/// A task of ours, counted until it has ended or its runtime dropped it.
pub(crate) struct Task(Arc<Site>);

impl Task {
    pub(crate) fn begin(site: Arc<Site>) -> Self {
        site.flights.begin_task();
        Task(site)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.flights.end_task();
    }
}

/// A handle to call a route that begins with `direct()`. Cheap to clone. It may outlive its
/// [`Context`](super::Context). A step that calls another route of its own context uses
/// [`direct_to`](super::direct_to) instead: with a handle in it, the context would hold on to itself.
pub struct Direct<I, O> {
    mounted: Arc<Mounted<I, O>>,
    /// What the route needs of its context: the routes that it sends to, and the log.
    context: Arc<Shared>,
}

impl<I: Send + 'static, O: Send + 'static> Direct<I, O> {
    pub(crate) fn new(mounted: Arc<Mounted<I, O>>, context: Arc<Shared>) -> Self {
        Direct { mounted, context }
    }

    /// Sends a body through the route and waits for the outcome.
    ///
    /// Cancel safety: the exchange runs inside this future. Dropped, it is cancelled where it stands: it leaves every line,
    /// its work is dropped, and its slots come back with it.
    #[track_caller]
    pub fn call(&self, body: I) -> impl Future<Output = Result<O, Halt>> + Send + '_ {
        Call { flight: self.mounted.fly(Exchange::new(body), Spot::here()) }
    }

    /// Like [`Direct::call`], with headers and names of your own.
    ///
    /// Cancel safety: as [`Direct::call`].
    #[track_caller]
    pub fn send(&self, exchange: Exchange<I>) -> impl Future<Output = Outcome<O>> + Send + '_ {
        self.mounted.fly(exchange, Spot::here())
    }
}

/// An exchange of which only the body is asked for in the end.
struct Call<'a, I, O> {
    flight: Flight<'a, I, O>,
}

impl<I: Send + 'static, O: Send + 'static> Future for Call<'_, I, O> {
    type Output = Result<O, Halt>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<O, Halt>> {
        Pin::new(&mut self.flight).poll(cx).map_ok(|exchange| exchange.body)
    }
}

impl<I, O> Clone for Direct<I, O> {
    fn clone(&self) -> Self {
        Direct { mounted: Arc::clone(&self.mounted), context: Arc::clone(&self.context) }
    }
}

impl<I, O> fmt::Debug for Direct<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct").field("route", &self.mounted.site.route).finish_non_exhaustive()
    }
}
