//! Reading the configuration again, and putting it in force.
//!
//! Owns the way from whoever asks, a signal or `flowgate reload`, to the running gateway.

use std::io::{self, IsTerminal as _};

use super::service::{Failure, Handle};
use crate::config::{ConfigErrors, Sources};

const NO_GATEWAY: &str =
    "not reloaded: this server has no gateway, and everything else is read only at startup";

/// Reloads a running gateway from where its configuration came from.
#[derive(Clone, Debug)]
pub(crate) struct Reloader {
    sources: Sources,
    gateway: Handle,
}

/// Why nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ReloadError {
    #[error(transparent)]
    Config(#[from] ConfigErrors),

    #[error(transparent)]
    Gateway(#[from] Failure),

    #[error("the configuration no longer has a [gateway]: stop the server to stop its gateway")]
    Gone,
}

impl Reloader {
    pub(crate) fn new(sources: Sources, gateway: Handle) -> Self {
        Reloader { sources, gateway }
    }

    pub(crate) fn gateway(&self) -> &Handle {
        &self.gateway
    }

    /// Reads the configuration and puts it in force; what is told is what will not change before the next start.
    ///
    /// Cancel safety: as [`Handle::reload`].
    pub(crate) async fn reload(&self) -> Result<Vec<String>, ReloadError> {
        let loaded = self.sources.load()?;
        let config = loaded.config.gateway.ok_or(ReloadError::Gone)?;
        Ok(self.gateway.reload(&config).await?)
    }

    /// Reloads with each SIGHUP, for ever, and says what came of it.
    ///
    /// Cancel safety: dropped, no further signal is heard.
    #[cfg(unix)]
    pub(crate) async fn on_signals(self, mut hangups: Hangups, say: impl Fn(&str)) {
        while hangups.0.recv().await.is_some() {
            say(&said(&self.reload().await));
        }
        std::future::pending::<()>().await;
    }

    /// There are no such signals here.
    #[cfg(not(unix))]
    pub(crate) async fn on_signals(self, _: Hangups, _: impl Fn(&str)) {
        std::future::pending::<()>().await;
    }
}

/// What came of a reload, in words.
pub(crate) fn said(outcome: &Result<Vec<String>, ReloadError>) -> String {
    match outcome {
        Ok(notes) if notes.is_empty() => "reloaded".to_owned(),
        Ok(notes) => format!("reloaded; {}", notes.join("; ")),
        Err(error) => format!("not reloaded, and nothing has changed: {error}"),
    }
}

/// SIGHUP, heard from the moment this is made.
#[derive(Debug)]
pub(crate) struct Hangups(#[cfg(unix)] tokio::signal::unix::Signal);

impl Hangups {
    #[cfg(unix)]
    pub(crate) fn listen() -> io::Result<Self> {
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).map(Hangups)
    }

    #[cfg(not(unix))]
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Hangups())
    }
}

/// For a server without a gateway: a SIGHUP that nobody hears would end it on the spot, and `systemctl reload` sends one. A
/// server that was started at a terminal ends, for there the signal says that the terminal is gone.
///
/// Cancel safety: dropped, it says nothing of the signals that come.
pub(crate) fn without_gateway(say: impl Fn(&str)) -> io::Result<impl Future<Output = ()>> {
    let hangups = (!io::stdin().is_terminal()).then(Hangups::listen).transpose()?;
    Ok(async move {
        #[cfg(unix)]
        if let Some(mut hangups) = hangups {
            while hangups.0.recv().await.is_some() {
                say(NO_GATEWAY);
            }
        }
        #[cfg(not(unix))]
        drop((hangups, say));
    })
}
