//! The gates of the demo.
//!
//! Owns them and what goes with them for as long as the server runs. It knows no HTTP.

use std::{sync::Arc, time::Duration};

use flowgate::{
    Gate, KeyedGate, OptionError,
    gate::{Drained, GateBuilder},
};
use tokio::sync::watch;

use super::tally::Tally;
use crate::cli::DemoOptions;

/// Keys in use, and keys whose rate still remembers something: enough for a demo, and bounded.
const MOST_TENANTS: u32 = 1_000;
/// How many pages may watch at once.
const MOST_WATCHERS: u32 = 64;
/// How many loads may be made at once.
const MOST_LOADS: u32 = 8;

#[derive(Debug)]
pub(super) struct App {
    /// One lane with a line: waits, then refuses.
    pub(super) work: Gate,
    pub(super) work_tally: Arc<Tally>,
    /// A lane for each tenant, with a rate: refuses at once.
    pub(super) tenants: KeyedGate,
    pub(super) tenants_tally: Arc<Tally>,
    /// The demo's own bounds, by the means it shows.
    pub(super) watchers: Gate,
    pub(super) loads: Gate,
    closing: watch::Sender<bool>,
}

impl App {
    /// All gates, or the first option that is wrong.
    pub(super) fn new(options: &DemoOptions) -> Result<Self, OptionError> {
        let work_tally = Arc::new(Tally::default());
        let tenants_tally = Arc::new(Tally::default());
        Ok(App {
            work: line(Gate::builder().name("work").max(options.max), options)
                .listener(Tally::ears(&work_tally))
                .build()?,
            work_tally,
            tenants: Gate::builder()
                .name("tenants")
                .max(options.max)
                .rate(options.rate, options.period)
                .reject()
                .listener(Tally::ears(&tenants_tally))
                .keyed()
                .max_keys(MOST_TENANTS)
                .build()?,
            tenants_tally,
            watchers: Gate::builder().name("watchers").max(MOST_WATCHERS).reject().build()?,
            loads: Gate::builder().name("loads").max(MOST_LOADS).reject().build()?,
            closing: watch::Sender::new(false),
        })
    }

    /// Closes both gates and waits until they are empty, or `drain` is over.
    ///
    /// Cancel safety: dropped, the gates stay closed.
    pub(super) async fn close(&self, drain: Duration) -> (Drained, Drained) {
        self.closing.send_replace(true);
        tokio::join!(self.work.close(drain), self.tenants.close(drain))
    }

    /// Resolves when the gates begin to close: what has no end of its own ends then.
    ///
    /// Cancel safety: it may be dropped at any time.
    pub(super) async fn closing(&self) {
        // The sender is ours: it outlives the wait.
        let _ = self.closing.subscribe().wait_for(|is_closing| *is_closing).await;
    }
}

fn line(gate: GateBuilder, options: &DemoOptions) -> GateBuilder {
    match options.queue {
        0 => gate.reject(),
        queue => gate.queue(queue).timeout(options.timeout),
    }
}
