//! The demo from its start to its end.
//!
//! Owns the runtime, the socket and the order of the end: no newcomers, gates closed, passes back, connections done.

use std::{sync::Arc, time::Duration};

use tokio::{net::TcpListener, runtime::Runtime, time::timeout};

use super::{
    app::App,
    failure::Failure,
    greeting::{farewell, greeting, say},
    routes::routes,
};
use crate::{
    cli::ServeOptions,
    config::{Config, Sources},
    gateway::Beside,
    signals::Signals,
};

/// How long those in line and in flight have to finish.
const DRAIN: Duration = Duration::from_secs(5);
/// How long connections have to send what is left once the gates are empty.
const LAST_BYTES: Duration = Duration::from_secs(1);

/// Serves what the configuration says, the gateway beside the demo, until a signal asks to stop.
pub(crate) fn serve(options: &ServeOptions, config: &Config, sources: Sources) -> Result<(), Failure> {
    let app = Arc::new(App::new(options)?);
    let runtime = Runtime::new().map_err(Failure::Start)?;
    runtime.block_on(run(app, config, sources))
}

async fn run(app: Arc<App>, config: &Config, sources: Sources) -> Result<(), Failure> {
    let address = config.server.listen;
    // Before anybody knows the address: whoever reads it may send a signal at once.
    let mut signals = Signals::listen().map_err(Failure::Start)?;
    let listen = |error| Failure::Listen { address, error };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let gateway = match &config.gateway {
        Some(config) => Some(Beside::start(config, sources).await?),
        None => None,
    };
    let url = gateway.as_ref().map(Beside::url);
    say(&greeting(listener.local_addr().map_err(listen)?, url.as_deref(), &app));

    let mut paths = routes(Arc::clone(&app));
    if let Some(gateway) = &gateway {
        paths = paths.merge(gateway.routes());
    }
    let stopped = Arc::clone(&app);
    let server = axum::serve(listener, paths).with_graceful_shutdown(async move { stopped.closing().await });
    let mut serving = tokio::spawn(server.into_future());
    let stopped = Arc::clone(&app);
    let gateway =
        gateway.map(|gateway| tokio::spawn(gateway.run(async move { stopped.closing().await }, say)));
    tokio::select! {
        () = signals.next() => {}
        served = &mut serving => {
            return served.expect("the server neither panics nor is cancelled").map_err(Failure::Serve);
        }
    }

    say(&format!(
        "stopping: no newcomers, and {DRAIN:?} for what is under way (a second signal ends it now)"
    ));
    let ended = async {
        let gateway = async { Some(gateway?.await.expect("the gateway neither panics nor is cancelled")) };
        tokio::join!(app.close(DRAIN), gateway)
    };
    tokio::select! {
        (drained, gateway) = ended => say(&farewell(DRAIN, drained, gateway)),
        () = signals.next() => {
            say("stopped at once");
            return Ok(());
        }
    }
    // Whoever is slower than this loses the end of an answer, not a pass.
    let _ = timeout(LAST_BYTES, serving).await;
    Ok(())
}
