//! The demo from its start to its end.
//!
//! Owns the runtime, the socket and the order of the end: no newcomers, gates closed, passes back, connections done.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{net::TcpListener, runtime::Runtime, time::timeout};

use super::{
    app::App,
    failure::Failure,
    greeting::{farewell, greeting, in_haste},
    routes::routes,
};
use crate::{cli::DemoOptions, signals::Signals, terminal::say};

/// How long those in line and in flight have to finish.
const DRAIN: Duration = Duration::from_secs(5);
/// How long connections have to send what is left once the gates are empty.
const LAST_BYTES: Duration = Duration::from_secs(1);

/// Serves the demo until a signal asks to stop.
pub(crate) fn serve(options: &DemoOptions) -> Result<(), Failure> {
    let app = Arc::new(App::new(options)?);
    let runtime = Runtime::new().map_err(Failure::Start)?;
    runtime.block_on(run(app, options.listen))
}

async fn run(app: Arc<App>, address: SocketAddr) -> Result<(), Failure> {
    // Before anybody knows the address: whoever reads it may send a signal at once.
    let mut signals = Signals::listen().map_err(Failure::Start)?;
    let listen = |error| Failure::Listen { address, error };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    say(&greeting(listener.local_addr().map_err(listen)?, &app));

    let stopped = Arc::clone(&app);
    let server = axum::serve(listener, routes(Arc::clone(&app)))
        .with_graceful_shutdown(async move { stopped.closing().await });
    let mut serving = tokio::spawn(server.into_future());
    tokio::select! {
        _ = signals.next() => {}
        served = &mut serving => {
            return served.expect("the server neither panics nor is cancelled").map_err(Failure::Serve);
        }
    }

    say(&format!(
        "stopping: nothing new is accepted, and work under way has {DRAIN:?} to finish (a second signal stops at once)"
    ));
    tokio::select! {
        drained = app.close(DRAIN) => say(&farewell(DRAIN, &drained)),
        stop = signals.next() => {
            say(&in_haste(app.work.look().in_use + app.tenants.look().in_use));
            return Err(Failure::Interrupted(stop));
        }
    }
    // Whoever is slower than this loses the end of an answer, not a pass.
    let _ = timeout(LAST_BYTES, serving).await;
    Ok(())
}
