//! A worker: one thread, one runtime, its own connections.
//!
//! Owns the loop that takes connections and orders, moves the worker's clock on, and ends. Nothing of a request is shared with
//! another worker but the gates.

use std::{
    cell::{Cell, RefCell},
    io,
    net::{SocketAddr, TcpStream},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc as std_mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use flowgate::Pass;
use tokio::{
    runtime::{Builder, LocalOptions},
    sync::{mpsc, oneshot},
    time::{Interval, MissedTickBehavior, interval, timeout},
};

use super::{
    client::Client,
    clock::{Clock, TICK},
    connection::Connection,
    cores::{Core, Post},
    io::{ClientIo, Socket},
    spare::Spare,
    table::Table,
    tasks::{Spawner, Tasks},
    tls::Tls,
    view::View,
    watch::{Stage, Watch, Watched},
};

/// Connections that wait for their worker to take them: a moment's worth.
const MOST_ORDERS: usize = 256;

/// What a worker is told.
#[derive(Debug)]
pub(super) enum Order {
    Serve(Newcomer),
    /// Another table from now on; told back when requests are seen by it.
    Use(Arc<Table>, Option<Tls>, oneshot::Sender<()>),
    /// No more requests than are under way, for so long.
    Drain(Duration),
}

/// A connection that was just accepted.
#[derive(Debug)]
pub(super) struct Newcomer {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) place: Place,
}

/// How many connections a worker has.
#[derive(Debug, Default)]
pub(super) struct Load {
    pub(super) open: AtomicUsize,
    /// Those of them that are at rest.
    pub(super) resting: AtomicUsize,
}

/// A connection's place among all that may be open, and on its worker.
#[derive(Debug)]
pub(super) struct Place {
    _pass: Pass,
    load: Arc<Load>,
}

/// A worker as others see it.
#[derive(Debug)]
pub(super) struct Hand {
    orders: mpsc::Sender<Order>,
    load: Arc<Load>,
    thread: JoinHandle<usize>,
}

/// A worker as its own tasks see it.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) spawner: Spawner,
    pub(super) spare: Spare,
    /// HTTP/2 connections to upstreams: they end by themselves when nobody needs them.
    upstreams: Spawner,
    view: RefCell<Rc<View>>,
    tls: RefCell<Option<Tls>>,
    is_draining: Cell<bool>,
    load: Arc<Load>,
    post: Post,
}

/// A connection at rest.
pub(super) struct Resting(Arc<Load>);

impl Hand {
    /// Starts a worker.
    pub(super) fn start(number: usize, core: Core, table: Arc<Table>, tls: Option<Tls>) -> io::Result<Self> {
        let (orders, inbox) = mpsc::channel(MOST_ORDERS);
        let mut builder = Builder::new_current_thread();
        builder.enable_all();
        let name = format!("flowgate-gw-{number}");
        let load = Arc::new(Load::default());
        let own = Arc::clone(&load);
        let (told, built) = std_mpsc::sync_channel(1);
        let thread = thread::Builder::new().name(name).spawn(move || {
            let post = core.keep();
            builder.on_thread_start(post.release());
            let runtime = builder.build_local(LocalOptions::default());
            let _ = told
                .send(runtime.as_ref().err().map(|error| io::Error::new(error.kind(), error.to_string())));
            let Ok(runtime) = runtime else { return 0 };
            runtime.block_on(async { Worker::new(table, tls, own, post).run(inbox).await })
        })?;
        // Whoever has none of its own would end the gateway with the first connection.
        built.recv().map_err(io::Error::other)?.map_or(Ok(()), Err)?;
        Ok(Hand { orders, load, thread })
    }

    /// How many connections it has.
    pub(super) fn load(&self) -> usize {
        self.load.open.load(Ordering::Relaxed)
    }

    /// A place on this worker.
    pub(super) fn place(&self, pass: Pass) -> Place {
        self.load.open.fetch_add(1, Ordering::Relaxed);
        Place { _pass: pass, load: Arc::clone(&self.load) }
    }

    /// Hands it an order; `false` if it is gone.
    ///
    /// Cancel safety: dropped, the order is not given.
    pub(super) async fn order(&self, order: Order) -> bool {
        self.orders.send(order).await.is_ok()
    }

    /// A way to give it orders, and no more.
    pub(super) fn orders(&self) -> mpsc::Sender<Order> {
        self.orders.clone()
    }

    /// A way to see its load, and no more.
    pub(super) fn gauge(&self) -> Arc<Load> {
        Arc::clone(&self.load)
    }

    /// Waits for its end: how many tasks had to be ended.
    pub(super) fn join(self) -> Option<usize> {
        self.thread.join().ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.load.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Resting {
    fn drop(&mut self) {
        self.0.resting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Worker {
    fn new(table: Arc<Table>, tls: Option<Tls>, load: Arc<Load>, post: Post) -> Rc<Self> {
        let clock = Rc::new(Clock::new());
        let spawner = Spawner { tasks: Rc::default(), clock: Rc::clone(&clock) };
        let upstreams = Spawner { tasks: Rc::new(Tasks::default()), clock };
        let view = RefCell::new(View::new(table, None, &upstreams));
        let (tls, is_draining) = (RefCell::new(tls), Cell::new(false));
        Rc::new(Worker { spawner, spare: Spare::default(), upstreams, view, tls, is_draining, load, post })
    }

    /// The routes as they are now.
    pub(super) fn view(&self) -> Rc<View> {
        Rc::clone(&self.view.borrow())
    }

    /// The deadline of the task that is being polled.
    pub(super) fn watch(&self) -> Rc<Watch> {
        let current = self.spawner.tasks.current.borrow();
        Rc::clone(current.as_ref().expect("all tasks of a worker are watched"))
    }

    /// One of its connections is at rest, until this is dropped.
    pub(super) fn resting(&self) -> Resting {
        self.load.resting.fetch_add(1, Ordering::Relaxed);
        Resting(Arc::clone(&self.load))
    }

    pub(super) fn client(&self, peer: SocketAddr, io: &ClientIo, watch: &Rc<Watch>) -> Rc<Client> {
        Client::new(peer, io.is_tls(), Rc::clone(watch), self.view().table.idle_timeout)
    }

    pub(super) fn is_draining(&self) -> bool {
        self.is_draining.get()
    }

    pub(super) fn tls(&self) -> Option<Tls> {
        self.tls.borrow().clone()
    }

    /// Works until it is told to drain, or whoever gives orders is gone; how many tasks had to be ended.
    async fn run(self: Rc<Self>, mut inbox: mpsc::Receiver<Order>) -> usize {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let order = tokio::select! {
                order = inbox.recv() => order,
                () = self.passing(&mut ticks) => continue,
            };
            self.spawner.clock.turn();
            match order {
                Some(Order::Serve(newcomer)) => self.take(newcomer),
                Some(Order::Use(table, tls, done)) => {
                    self.change(table, tls);
                    // Whoever asked may be gone; the table is in force all the same.
                    let _ = done.send(());
                }
                Some(Order::Drain(span)) => return self.drain(span, &mut ticks).await,
                None => return self.drain(Duration::ZERO, &mut ticks).await,
            }
        }
    }

    /// Lets time pass: one tick, or until a task has ended.
    async fn passing(&self, ticks: &mut Interval) {
        let (tasks, upstreams) = (&self.spawner.tasks, &self.upstreams.tasks);
        let is_idle = tasks.is_empty() && !self.view.borrow().has_idle();
        tokio::select! {
            () = tasks.one_ended(), if !tasks.is_empty() => {}
            () = upstreams.one_ended(), if !upstreams.is_empty() => {}
            _ = ticks.tick(), if !is_idle => self.tick(),
            else => std::future::pending().await,
        }
    }

    fn tick(&self) {
        self.spawner.clock.turn();
        self.spawner.tasks.watches.tick();
        self.post.tick();
        self.view.borrow().sweep();
    }

    fn take(self: &Rc<Self>, Newcomer { stream, peer, place }: Newcomer) {
        let Ok(stream) = tokio::net::TcpStream::from_std(stream) else { return };
        let socket = Socket::new(stream);
        let places = (&self.spawner.clock, &self.spawner.tasks.watches, &self.spawner.tasks.current);
        let task = Watched::new(places, Rc::downgrade(&socket), place, |watch| {
            watch.begin(Stage::Head, self.view.borrow().table.header_timeout);
            Connection::new(Rc::clone(self), socket, peer, Rc::clone(watch))
        });
        self.spawner.tasks.spawn(task);
    }

    fn change(&self, table: Arc<Table>, tls: Option<Tls>) {
        let view = View::new(table, Some(&self.view()), &self.upstreams);
        *self.view.borrow_mut() = view;
        *self.tls.borrow_mut() = tls;
    }

    /// Lets what is under way go on for so long, and ends the rest.
    async fn drain(&self, span: Duration, ticks: &mut Interval) -> usize {
        self.is_draining.set(true);
        self.spawner.tasks.watches.wake_all();
        // The loop below ends by itself, or by the clock.
        let _ = timeout(span, self.emptied(ticks)).await;
        let left = self.spawner.tasks.len();
        self.spawner.tasks.abort();
        while !self.spawner.tasks.is_empty() {
            self.spawner.tasks.one_ended().await;
        }
        left
    }

    /// Waits until nothing is under way.
    async fn emptied(&self, ticks: &mut Interval) {
        while !self.spawner.tasks.is_empty() {
            self.passing(ticks).await;
        }
    }
}
