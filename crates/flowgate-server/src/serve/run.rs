//! The server from its start to its end.
//!
//! Owns the runtime, the socket, and the order of the end: no newcomers, nothing more is claimed, what is under way ends or goes
//! back to its line, the log is written. It is the same whether a signal asks for it or a part of the server ended by itself.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use flowgate_tasks::{
    store::{DEAD_KEPT, Shelf, StoreError},
    worker::{Ending, News, Worker, WorkerOptions},
};
use tokio::{net::TcpListener, runtime::Runtime, sync::watch, task::JoinHandle, time::timeout};

use super::{
    StoreAt,
    accept::Accepting,
    failure::Failure,
    greeting::{Token, greeting},
    parts::{Part, Parts},
};
use crate::{
    api::{self, Gates},
    cli::ServeOptions,
    clock,
    config::{Config, FlowControlMode, Sources, host},
    console::{self, Console, Parts as ConsoleParts},
    delivery::{Courier, Egress, Outward, QUEUE},
    files,
    gateway::{Beside, Handle, without_gateway},
    message::Space,
    metrics::{self, Watched},
    office::{Desk, Secrets},
    signals::Signals,
    terminal::say,
    top,
    traces::Tracer,
};

/// How long deliveries under way have to finish. What has not ended by then is delivered again after the next start.
const DRAIN: Duration = Duration::from_secs(10);
/// How long connections have to send what is left.
const LAST_BYTES: Duration = Duration::from_secs(1);
/// How long the log is kept.
const LOG: Duration = Duration::from_secs(3 * 24 * 60 * 60);
const PRUNE: Duration = Duration::from_secs(60);

/// Serves what the command line and the configuration say, until a signal asks to stop.
pub(crate) fn serve(options: &ServeOptions, config: &Config, sources: Sources) -> Result<(), Failure> {
    if options.dev && !config.server.listen.ip().is_loopback() {
        return Err(Failure::Exposed(config.server.listen));
    }

    files::raise();
    let runtime = Runtime::new().map_err(Failure::Start)?;
    runtime.block_on(run(options, config, sources))
}

async fn run(options: &ServeOptions, config: &Config, sources: Sources) -> Result<(), Failure> {
    let address = config.server.listen;
    // Before anybody knows the address: whoever reads it may send a signal at once.
    let mut signals = Signals::listen().map_err(Failure::Start)?;
    let listen = |error| Failure::Listen { address, error };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let at = options.store.clone().unwrap_or_else(|| StoreAt::from(&config.store)).absolute();
    let failed = |error| Failure::Store { at: at.to_string(), error };
    let Opened { store, mut desk, log, token } = tokio::select! {
        opened = open(options, config, &at) => opened.map_err(failed)?,
        // The store may have much to do for it, or hang: what was begun is undone, as by a crash.
        _ = signals.next() => {
            say("stopped: it had not started yet");
            return Ok(());
        }
    };
    let (tracer, tracing) = Tracer::start(&options.traces, &desk.meter);
    desk.tracer = tracer;
    let gateway = match &config.gateway {
        Some(config) => Some(Beside::start(config, sources).await?),
        None => heed_hangups().map(|()| None)?,
    };
    let url = gateway.as_ref().map(Beside::url);
    let here = listener.local_addr().map_err(listen)?;

    let (closing, closed) = watch::channel(false);
    let console = console(&desk, gateway.as_ref(), &at, &closed, config.server.max_requests)?;
    let hub = Arc::clone(console.0.hub());
    let paths = paths(options, &desk, gateway.as_ref(), console, &closed);
    let accepting = Accepting::new(listener, config.server.max_connections, config.server.idle_timeout)?;
    let worker = worker(options, config, here, &desk, &closed)?;
    let (meter, handle) = (Arc::clone(&desk.meter), gateway.as_ref().map(Beside::handle));
    let upkeep = [tokio::spawn(Arc::clone(&desk.secrets).keep_up()), tokio::spawn(prune(Arc::clone(&store)))];
    drop(desk);
    tokio::spawn(hub.run(until(closed.clone())));
    say(&greeting(here, url.as_deref(), &at, &token, options.deny_private));

    let (parts, mut ends) = Parts::new();
    let mut serving = parts.start(Part::Api, accepting.serve(paths, closed.clone()));
    let delivering = parts.start(Part::Deliveries, worker.run(until(closed.clone())));
    let gateway = gateway.map(|gateway| parts.start(Part::Gateway, gateway.run(until(closed), say)));
    let failed = tokio::select! {
        _ = signals.next() => None,
        part = ends.recv() => part,
    };

    let why = failed.map_or_else(String::new, |part| format!("{part} ended by itself; "));
    say(&format!(
        "{why}stopping: nothing new is accepted, and work under way has {DRAIN:?} to finish (a second signal stops at once)"
    ));
    closing.send_replace(true);
    let ended = async {
        let gateway = async { gateway?.await.ok() };
        let (delivered, gateway) = tokio::join!(delivering, gateway);
        // One that panicked has said so.
        (delivered.map_err(|_| Failure::Ended(Part::Deliveries)), gateway.map_or(0, |ended| ended.cut))
    };
    let active = || handle.as_ref().map_or(0, Handle::active);
    let (delivered, cut) = tokio::select! {
        ended = ended => ended,
        stop = signals.next() => {
            say(&in_haste(meter.under_way(), meter.requests_under_way(), active()));
            return Err(Failure::Interrupted(stop));
        }
    };
    upkeep.iter().for_each(|task| task.abort());
    // Whoever is slower than this loses the end of an answer, not a message.
    if timeout(LAST_BYTES, &mut serving).await.is_err() {
        serving.abort();
    }
    write_out(log).await;
    let _ = timeout(LAST_BYTES, tracing).await;
    say(&farewell(&delivered?.map_err(Failure::Deliver)?, cut));
    failed.map_or(Ok(()), |part| Err(Failure::Ended(part)))
}

/// A gateway hears them itself.
fn heed_hangups() -> Result<(), Failure> {
    tokio::spawn(without_gateway(say).map_err(Failure::Start)?);
    Ok(())
}

/// What the store is asked for before anything is served.
struct Opened {
    store: Arc<dyn Shelf>,
    desk: Desk,
    log: JoinHandle<()>,
    token: Token,
}

async fn open(options: &ServeOptions, config: &Config, at: &StoreAt) -> Result<Opened, StoreError> {
    let store = at.open().await?;
    if let Some(mode) = config.server.flow_control_mode {
        store.set_latest(mode == FlowControlMode::Latest).await?;
    }
    let (desk, log) = Desk::open(Arc::clone(&store), options.dev).await?;
    let desk = desk.with_deliveries(options.deliveries);
    let token = token(options, &desk).await?;
    Ok(Opened { store, desk, log, token })
}

/// The console, and the gates of the API, one of which its requests share with those of the API.
fn console(
    desk: &Desk,
    gateway: Option<&Beside>,
    at: &StoreAt,
    closed: &watch::Receiver<bool>,
    max_requests: u32,
) -> Result<(Console, Gates), Failure> {
    let gates = Gates::new(max_requests)?;
    desk.meter.watch(gates.clone());
    let console = Console::new(ConsoleParts {
        desk: desk.clone(),
        requests: gates.requests.clone(),
        gateway: gateway.map(Beside::handle),
        store_name: at.to_string(),
        closed: closed.clone(),
    })?;
    Ok((console, gates))
}

pub(super) async fn until(mut closed: watch::Receiver<bool>) {
    // A sender that is gone has nothing more to say: then it ends as well.
    let _ = closed.wait_for(|is_closed| *is_closed).await;
}

/// All paths of this server.
fn paths(
    options: &ServeOptions,
    desk: &Desk,
    gateway: Option<&Beside>,
    (console, gates): (Console, Gates),
    closed: &watch::Receiver<bool>,
) -> Router {
    let watched = Watched {
        desk: desk.clone(),
        gateway: gateway.map(Beside::handle),
        closing: closed.clone(),
        is_open: options.metrics_open,
    };
    let top = top::routes(desk.clone(), watched.gateway.clone());
    let paths =
        metrics::routes(watched, api::routes(desk.clone(), gates)).merge(top).merge(console::routes(console));
    match gateway {
        Some(gateway) => paths.merge(gateway.routes(desk.clone(), options.metrics_open)),
        None => paths,
    }
}

fn worker(
    options: &ServeOptions,
    config: &Config,
    here: SocketAddr,
    desk: &Desk,
    closed: &watch::Receiver<bool>,
) -> Result<Worker, Failure> {
    let outward = Outward {
        denies_private: options.deny_private,
        proxy: config.server.egress_proxy.clone(),
        trusted: config.server.egress_ca.clone(),
    };
    let courier = Courier::new(desk.clone(), Egress::new(&outward)?, closed.clone());
    let worker = WorkerOptions {
        // In a fleet, each has its own.
        name: format!("flowgate serve on {}, {here}", host()),
        processes: options.deliveries,
        queues: vec![QUEUE.to_owned()],
        drain: DRAIN,
        lease: options.lease,
        ..WorkerOptions::default()
    };
    let worker = Worker::new(desk.store.clone(), courier.handlers(), worker)?;
    // A store that fails is told by whoever is asked, and dead letters are listed.
    Ok(worker.listen(|news| {
        if let News::Unread(_) | News::Unheard { .. } = news {
            say(&news.to_string());
        }
    }))
}

/// The token to show. A store that has none gets one.
async fn token(options: &ServeOptions, desk: &Desk) -> Result<Token, StoreError> {
    let token = if options.dev {
        Token::Dev
    } else if let Some(token) = &options.token {
        Secrets::keep(&*desk.store, "given at start", token, Space::default()).await?;
        Token::Known
    } else if desk.secrets.has_tokens() {
        Token::Known
    } else {
        Token::New(Secrets::create(&*desk.store, "first", Space::default()).await?)
    };
    desk.secrets.refresh().await?;
    Ok(token)
}

/// Removes what is old, a little at a time.
async fn prune(store: Arc<dyn Shelf>) {
    loop {
        let before = |kept: Duration| clock::tick(clock::now().saturating_sub(kept.as_millis() as u64));
        while store.prune(before(LOG), before(DEAD_KEPT)).await.is_ok_and(|removed| removed > 0) {}
        tokio::time::sleep(PRUNE).await;
    }
}

/// Waits for the end of the log.
async fn write_out(log: JoinHandle<()>) {
    if timeout(DRAIN, log).await.is_err() {
        say("the store did not accept the last lines of the log in time: they are lost");
    }
}

/// What a second signal leaves undone.
fn in_haste(deliveries: u64, requests: u64, connections: usize) -> String {
    let deliveries = match deliveries {
        0 => "nothing was being delivered".to_owned(),
        1 => "1 delivery was cut off and will be made again when its lease ends".to_owned(),
        count => {
            format!("{count} deliveries were cut off and will be made again when their lease ends")
        }
    };
    let requests = match requests {
        0 => String::new(),
        1 => "; 1 request to the API was not answered".to_owned(),
        count => format!("; {count} requests to the API were not answered"),
    };
    format!("stopped at once: {deliveries}{requests}{}", of_gateway(connections))
}

fn of_gateway(cut: usize) -> String {
    match cut {
        0 => String::new(),
        1 => "; 1 connection of the gateway was cut".to_owned(),
        cut => format!("; {cut} connections of the gateway were cut"),
    }
}

fn farewell(ending: &Ending, cut: usize) -> String {
    let cut = of_gateway(cut);
    let (again, dead) = (ending.stopped.len(), ending.stopped_dead.len());
    let deliveries = |count: usize| match count {
        1 => "1 delivery was".to_owned(),
        count => format!("{count} deliveries were"),
    };
    match (again, dead) {
        (0, 0) => format!("stopped: nothing was left under way{cut}"),
        (again, 0) => format!("stopped: {} cut off and will be made again{cut}", deliveries(again)),
        (0, dead) => format!("stopped: {} cut off at the last attempt{cut}", deliveries(dead)),
        (again, dead) => format!(
            "stopped: {} cut off and will be made again, {dead} of them not: it was the last attempt{cut}",
            deliveries(again + dead)
        ),
    }
}
