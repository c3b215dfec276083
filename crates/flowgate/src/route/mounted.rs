//! A route in a context, ready to run.
//!
//! Owns the two ways in: a call, which runs in the caller's own future, and a task, which is ours.

use std::{
    any::Any,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use flowgate_core::Spot;
use tokio::runtime::Handle;

use super::{
    exchange::Exchange,
    flight::Flight,
    site::Site,
    step::{Erased, Halt, Outcome},
};
use crate::gate::Pass;

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

    /// Runs the exchange as a task, which holds the place until it has ended.
    pub(crate) fn launch(
        self: &Arc<Self>,
        runtime: &Handle,
        exchange: Exchange<I>,
        place: Pass,
        settled: impl FnOnce(Outcome<O>) + Send + 'static,
    ) {
        let task = Task::begin(Arc::clone(&self.site));
        let mounted = Arc::clone(self);
        runtime.spawn(async move {
            let _task = task;
            let _place = place;
            settled(mounted.fly(exchange, mounted.spot).inner().await);
        });
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

/// A handle to call a route that begins with `direct()`. Cheap to clone.
pub struct Direct<I, O> {
    mounted: Arc<Mounted<I, O>>,
}

impl<I: Send + 'static, O: Send + 'static> Direct<I, O> {
    pub(crate) fn new(mounted: Arc<Mounted<I, O>>) -> Self {
        Direct { mounted }
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

    /// As a part of another exchange's way.
    pub(crate) fn send_on(&self, exchange: Exchange<I>, sent_at: Spot) -> Flight<'_, I, O> {
        self.mounted.fly(exchange, sent_at).inner()
    }

    pub(crate) fn into_any(self) -> Arc<dyn Any + Send + Sync> {
        Arc::new(self)
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
        Direct { mounted: Arc::clone(&self.mounted) }
    }
}

impl<I, O> fmt::Debug for Direct<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct").field("route", &self.mounted.site.route).finish_non_exhaustive()
    }
}
