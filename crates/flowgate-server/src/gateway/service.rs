//! The gateway from its start to its end.
//!
//! Owns the workers, the order of a reload and the order of the end: no newcomers, what is under way finishes, the rest is cut.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use flowgate::{
    Gate, Limits, OptionError, Tick,
    clock::{Alarm, Clock, SystemClock},
};
use tokio::{
    net::TcpListener,
    sync::{Mutex, mpsc, oneshot},
    task::spawn_blocking,
    time::sleep,
};

use super::{
    cores::Core,
    figures::Figures,
    table::Table,
    tls::{Tls, TlsError},
    worker::{Hand, Load, Newcomer, Order},
};
use crate::{config, metrics::GatewayLook};

/// How long nobody is accepted after the system could not give us a connection: it has none to give right now.
const BREATHER: Duration = Duration::from_millis(50);

/// The gateway, ready to run.
#[derive(Debug)]
pub(crate) struct Gateway {
    listener: TcpListener,
    hands: Vec<Hand>,
    shared: Arc<Shared>,
}

/// A running gateway, for those who look at it or change it.
#[derive(Clone, Debug)]
pub(crate) struct Handle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    connections: Gate,
    workers: Vec<mpsc::Sender<Order>>,
    /// How many connections each worker has.
    loads: Vec<Arc<Load>>,
    /// One reload after the other.
    in_force: Mutex<InForce>,
}

#[derive(Debug)]
struct InForce {
    config: config::Gateway,
    table: Arc<Table>,
}

/// Why the gateway could not start, or not change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Failure {
    #[error(transparent)]
    Option(#[from] OptionError),

    #[error("gateway: {0}")]
    Tls(#[from] TlsError),

    #[error(
        "the gateway cannot listen on {address}: {error}; choose another with --gateway-listen (port 0 takes any free one)"
    )]
    Listen { address: SocketAddr, error: io::Error },

    #[error("the gateway cannot start: {0}")]
    Start(io::Error),

    #[error("the gateway has stopped")]
    Stopped,
}

/// How the gateway ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// How many connections had to be cut because what was under way on them did not finish in time.
    pub(crate) cut: usize,
}

/// An alarm for nobody.
struct Nothing;

impl Alarm for Nothing {
    fn ring(&'static self) {}
}

impl Gateway {
    /// Takes the address and starts the workers. Nobody is served before [`Gateway::run`].
    pub(crate) async fn start(config: &config::Gateway) -> Result<Self, Failure> {
        let tls = config.tls.as_ref().map(Tls::load).transpose()?;
        let table = Arc::new(Table::build(config, None, &mut Vec::new())?);
        let connections = Gate::builder().name("connections").max(config.max_connections.get()).build()?;
        let listen = |error| Failure::Listen { address: config.listen, error };
        let listener = TcpListener::bind(config.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        // The thread that rings alarms is started with the first one. A worker's would stay where that worker is.
        SystemClock::default().wake_at(Tick::NEVER, &Nothing);
        let cores = Core::of(config.workers.get(), config.pin_workers);
        let hand = |(number, core)| Hand::start(number, core, Arc::clone(&table), tls.clone());
        let hands = cores.into_iter().enumerate().map(hand);
        let hands: Vec<Hand> = hands.collect::<io::Result<_>>().map_err(Failure::Start)?;
        let workers = hands.iter().map(Hand::orders).collect();
        let loads = hands.iter().map(Hand::gauge).collect();
        let in_force = Mutex::new(InForce { config: config.clone(), table });
        let shared = Arc::new(Shared { address, connections, workers, loads, in_force });
        Ok(Gateway { listener, hands, shared })
    }

    pub(crate) fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Serves until `shutdown`, then lets what is under way finish for as long as the configuration says.
    ///
    /// Cancel safety: dropped, the workers end at once.
    pub(crate) async fn run(self, shutdown: impl Future<Output = ()>) -> Ended {
        let Gateway { listener, hands, shared } = self;
        {
            let mut shutdown = pin!(shutdown);
            let mut accepting = pin!(accept(&listener, &hands, &shared.connections));
            tokio::select! {
                () = &mut shutdown => {}
                () = &mut accepting => {}
            }
        }
        drop(listener);
        let drain = shared.in_force.lock().await.config.drain;
        for hand in &hands {
            hand.order(Order::Drain(drain)).await;
        }
        // Threads are waited for where that may take its time.
        let joined = spawn_blocking(|| hands.into_iter().filter_map(Hand::join).sum());
        Ended { cut: joined.await.unwrap_or(0) }
    }
}

/// Accepts connections, as many as may be open, and deals them to the worker with the fewest; ends when there is no worker.
async fn accept(listener: &TcpListener, hands: &[Hand], connections: &Gate) {
    loop {
        // Its place first: those for whom there is none wait in the system's own line, not in ours.
        let Ok(pass) = connections.enter().await else { return };
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(BREATHER).await;
            continue;
        };
        let Some(hand) = hands.iter().min_by_key(|hand| hand.load()) else { return };
        // Nothing is lost without it but a little time.
        let _ = stream.set_nodelay(true);
        let Ok(stream) = stream.into_std() else { continue };
        let newcomer = Newcomer { stream, peer, place: hand.place(pass) };
        if !hand.order(Order::Serve(newcomer)).await {
            return;
        }
    }
}

impl Handle {
    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Another configuration from now on, for new requests and for all who wait; what is under way goes on. What is told is
    /// what will not change before the next start. Nothing has changed if it fails.
    ///
    /// Cancel safety: dropped, the change may be in force on some workers and not yet on others; the next one sets it right.
    pub(crate) async fn reload(&self, config: &config::Gateway) -> Result<Vec<String>, Failure> {
        let mut in_force = self.0.in_force.lock().await;
        let tls = config.tls.as_ref().map(Tls::load).transpose()?;
        let connections = Limits::builder().max(config.max_connections.get()).build()?;
        let mut notes = Vec::new();
        if config.listen != in_force.config.listen {
            notes.push("`listen` changes with the next start".to_owned());
        }
        if config.workers != in_force.config.workers {
            notes.push("`workers` changes with the next start".to_owned());
        }
        if config.pin_workers != in_force.config.pin_workers {
            notes.push("`pin_workers` changes with the next start".to_owned());
        }
        let table = Arc::new(Table::build(config, Some(&in_force.table), &mut notes)?);
        self.0.connections.set_limits(connections);
        // What a running gateway cannot change stays as it is: the next file is held against that, and not against this one.
        let mut config = config.clone();
        config.listen = in_force.config.listen;
        config.workers = in_force.config.workers;
        config.pin_workers = in_force.config.pin_workers;
        *in_force = InForce { config, table: Arc::clone(&table) };
        for worker in &self.0.workers {
            let (done, is_done) = oneshot::channel();
            let order = Order::Use(Arc::clone(&table), tls.clone(), done);
            worker.send(order).await.map_err(|_| Failure::Stopped)?;
            is_done.await.map_err(|_| Failure::Stopped)?;
        }
        Ok(notes)
    }

    /// How many of its connections are not at rest.
    pub(crate) fn active(&self) -> usize {
        let count = |of: fn(&Load) -> &AtomicUsize| -> usize {
            self.0.loads.iter().map(|load| of(load).load(Ordering::Relaxed)).sum()
        };
        count(|load| &load.open).saturating_sub(count(|load| &load.resting))
    }

    /// Its gates right now, for whoever watches them.
    pub(crate) async fn look(&self) -> GatewayLook {
        let table = Arc::clone(&self.0.in_force.lock().await.table);
        let count = |of: fn(&Load) -> &AtomicUsize| {
            self.0.loads.iter().map(|load| of(load).load(Ordering::Relaxed)).sum()
        };
        GatewayLook {
            connections: count(|load| &load.open),
            resting: count(|load| &load.resting),
            routes: table.limited().map(|(name, limit)| (name.to_owned(), limit.look())).collect(),
        }
    }

    /// The gateway right now.
    pub(crate) async fn figures(&self) -> Figures {
        let table = Arc::clone(&self.0.in_force.lock().await.table);
        let count = |of: fn(&Load) -> &AtomicUsize| {
            self.0.loads.iter().map(|load| of(load).load(Ordering::Relaxed)).sum()
        };
        Figures::of(&table, count(|load| &load.open), count(|load| &load.resting))
    }
}
