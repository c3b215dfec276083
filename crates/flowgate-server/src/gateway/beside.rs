//! The gateway beside the program's own server.
//!
//! Owns what the two have in common: one configuration, one start, one end, and the signal that reloads.

use std::future::Future;

use axum::Router;

use super::{
    admin::routes,
    reload::{Hangups, Reloader},
    service::{Ended, Failure, Gateway, Handle},
};
use crate::{
    config::{self, Sources},
    office::Desk,
    terminal::reached_at,
};

/// The gateway, started, with all that goes with it.
#[derive(Debug)]
pub(crate) struct Beside {
    gateway: Gateway,
    reloader: Reloader,
    hangups: Hangups,
    is_tls: bool,
}

impl Beside {
    /// Starts the gateway; `sources` are where a reload finds the configuration again.
    ///
    /// Cancel safety: dropped, there is none.
    pub(crate) async fn start(config: &config::Gateway, sources: Sources) -> Result<Self, Failure> {
        // Before anybody knows that it runs: whoever does may send a signal at once.
        let hangups = Hangups::listen().map_err(Failure::Start)?;
        let gateway = Gateway::start(config).await?;
        let reloader = Reloader::new(sources, gateway.handle());
        Ok(Beside { gateway, reloader, hangups, is_tls: config.tls.is_some() })
    }

    /// Where it can be reached from this machine.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}", reached_at(self.reloader.gateway().address()))
    }

    /// What shows its figures while it runs.
    pub(crate) fn handle(&self) -> Handle {
        self.gateway.handle()
    }

    /// The paths of the program's own server that belong to it, for whoever has a token of `desk`; its figures, if they are open,
    /// for everybody.
    pub(crate) fn routes(&self, desk: Desk, is_open: bool) -> Router {
        routes(self.reloader.clone(), desk, is_open)
    }

    /// Serves until `shutdown`, reloads with each signal meanwhile, and drains.
    ///
    /// Cancel safety: dropped, the gateway ends at once.
    pub(crate) async fn run(self, shutdown: impl Future<Output = ()>, say: impl Fn(&str)) -> Ended {
        let Beside { gateway, reloader, hangups, .. } = self;
        let served = gateway.run(shutdown);
        tokio::select! {
            ended = served => ended,
            () = reloader.on_signals(hangups, say) => Ended { cut: 0 },
        }
    }
}
