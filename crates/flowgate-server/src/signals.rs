//! Signals that ask the process to stop.
//!
//! Owns waiting for them: SIGINT and SIGTERM, or Ctrl-C where there are no such signals.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

#[derive(Debug)]
pub(crate) struct Signals {
    #[cfg(unix)]
    interrupt: Signal,
    #[cfg(unix)]
    terminate: Signal,
}

#[cfg(unix)]
impl Signals {
    /// From now on no signal is missed.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The next one.
    ///
    /// Cancel safety: dropped while waiting, it takes nothing.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
impl Signals {
    /// Nothing to prepare.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Signals {})
    }

    /// The next Ctrl-C; never, if the process cannot hear one.
    pub(crate) async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
