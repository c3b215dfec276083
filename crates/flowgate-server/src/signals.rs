//! Signals that ask the process to stop.
//!
//! Owns waiting for them: SIGINT and SIGTERM, or Ctrl-C where there are no such signals.

use std::{fmt, io};

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Which of them came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Interrupt,
    #[cfg(unix)]
    Terminate,
}

impl Stop {
    /// What shells tell of a process that such a signal ended: 128 and its number.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Stop::Interrupt => 130,
            #[cfg(unix)]
            Stop::Terminate => 143,
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stop::Interrupt => "interrupted",
            #[cfg(unix)]
            Stop::Terminate => "terminated",
        })
    }
}

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
    pub(crate) async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.interrupt.recv() => Stop::Interrupt,
            _ = self.terminate.recv() => Stop::Terminate,
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
    pub(crate) async fn next(&mut self) -> Stop {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Stop::Interrupt
    }
}
