//! The store itself: its connections, and how they come back.
//!
//! Owns five connections: sends, turns, upkeep, renewals of leases, and everything else; and the one that listens. Each
//! is made when it is first needed and made anew when it broke.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, atomic::AtomicI64},
    time::Duration,
};

use tokio::{
    sync::{Mutex, OwnedMutexGuard, broadcast},
    time::Instant,
};

use super::{
    identity::Known,
    lanes::Lanes,
    memory::Memory,
    migrate,
    notify::{Hearing, Listener},
    orphans::{self, Search},
    rows::stored,
    runs, send,
    session::{Plans, Session, failed, in_time},
    tls::Address,
    turn, upkeep,
};
use crate::{
    clock::{Look, SystemWall, Wall},
    store::{Board, Reply, StoreError, Wake},
    worker::clock::now,
};

/// How many wake-ups one who listens may be behind.
const WAKES: usize = 1024;

/// How a store connects.
#[derive(Clone, Default)]
pub struct PostgresOptions {
    /// A clock instead of the server's own: for tests, which move time by hand. Otherwise leave it out, so
    /// that every process of a fleet agrees on the server's time.
    pub clock: Option<Arc<dyn Wall>>,
}

impl std::fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresOptions").field("has_clock", &self.clock.is_some()).finish()
    }
}

/// Tasks in PostgreSQL. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Postgres {
    pub(super) shared: Arc<Shared>,
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Postgres").field("address", &self.shared.address).finish_non_exhaustive()
    }
}

pub(super) struct Shared {
    address: Address,
    options: PostgresOptions,
    pub(super) known: Known,
    sends: Arc<Mutex<Slot>>,
    turns: Arc<Mutex<Slot>>,
    upkeep: Arc<Mutex<Slot>>,
    beats: Arc<Mutex<Slot>>,
    rest: Arc<Mutex<Slot>>,
    /// Up to which key those that hold nothing were swept away.
    pub(super) swept: AtomicI64,
    /// Where what lost workers held is looked for.
    pub(super) orphans: Arc<Search>,
    /// What time it was when upkeep looked last.
    pub(super) seen: std::sync::Mutex<Option<Look>>,
    pub(super) lanes: Lanes,
    pub(super) turning: Memory,
    /// Workers of this process that sends may claim for.
    pub(super) offers: Board,
    pub(super) wakes: broadcast::Sender<Wake>,
    /// What this store's own wake-ups for others are marked with: it wakes its own workers without a detour.
    pub(super) mark: String,
    listener: Mutex<Option<Listener>>,
}

/// Where a connection is kept.
#[derive(Default)]
pub(super) struct Slot {
    session: Option<Session>,
    /// When the last one could not be had, and why.
    failed: Option<(Instant, StoreError)>,
}

/// Which connection does a job, and the statements it has prepared.
#[derive(Clone, Copy)]
pub(super) enum Line {
    Sends,
    Turns,
    Upkeep,
    /// A renewal waits for no row but its worker's, and behind nobody.
    Beats,
    Rest,
}

impl Postgres {
    /// Connects to the database of this URL, and brings its tables up to date.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::connect_with(url, PostgresOptions::default()).await
    }

    /// Connects with options.
    pub async fn connect_with(url: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        let address = Address::parse(url)?;
        let asked = async { address.keeps_sessions().await.map_err(failed("connecting")) };
        if !in_time(asked).await? {
            return Err(StoreError::Database { doing: "connecting", why: Address::POOLED.to_owned() });
        }
        migrate::run(&address).await?;
        let (wakes, _) = broadcast::channel(WAKES);
        let shared = Shared {
            address,
            options,
            known: Known::default(),
            sends: Arc::default(),
            turns: Arc::default(),
            upkeep: Arc::default(),
            beats: Arc::default(),
            rest: Arc::default(),
            swept: AtomicI64::new(0),
            orphans: Arc::default(),
            seen: std::sync::Mutex::default(),
            lanes: Lanes::default(),
            turning: Memory::default(),
            offers: Board::default(),
            wakes,
            mark: format!("{:016x}", RandomState::new().hash_one(0)),
            listener: Mutex::default(),
        };
        let store = Postgres { shared: Arc::new(shared) };
        *store.shared.listener.lock().await =
            Some(Listener::start(&store.shared.address, store.shared.hearing()).await?);
        Ok(store)
    }

    /// Runs a job to its end on one connection, whether or not somebody still waits for its reply.
    pub(super) fn job<T, F, R>(&self, line: Line, work: F) -> Reply<'_, T>
    where
        T: Send + 'static,
        F: FnOnce(Arc<Shared>, Lease) -> R + Send + 'static,
        R: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let job = tokio::spawn(async move {
                let session = shared.session(line).await?;
                work(shared, session).await
            });
            job.await.unwrap_or_else(|gone| {
                Err(StoreError::Database { doing: "working", why: format!("its job ended early: {gone}") })
            })
        })
    }
}

impl Shared {
    /// Whoever has to hear what others say.
    fn hearing(&self) -> Hearing {
        let (wakes, mark) = (self.wakes.clone(), self.mark.clone());
        Hearing { wakes, mark, orphans: Arc::clone(&self.orphans) }
    }

    /// The time, if it is not the server's to tell.
    pub(super) fn told_time(&self) -> Option<i64> {
        self.options.clock.as_ref().map(|clock| stored(clock.now()))
    }

    /// What has passed by a clock that nobody sets.
    pub(super) fn passed(&self) -> Duration {
        self.options.clock.as_ref().map_or_else(|| SystemWall.passed(), |clock| clock.passed())
    }

    /// A connection for this line, alone.
    async fn session(&self, line: Line) -> Result<Lease, StoreError> {
        let (slot, statements, plans) = match line {
            // A send may claim.
            Line::Sends => (&self.sends, &[&[send::STATEMENTS], turn::STATEMENTS][..], Plans::ByIndex),
            Line::Turns => (&self.turns, &[turn::STATEMENTS][..], Plans::ByIndex),
            // It settles what the lost left.
            Line::Upkeep => (
                &self.upkeep,
                &[&[upkeep::STATEMENTS, orphans::STATEMENTS], turn::STATEMENTS][..],
                Plans::ByIndexSoon,
            ),
            Line::Beats => (&self.beats, &[][..], Plans::Any),
            // Among them are those that count everything.
            Line::Rest => (&self.rest, &[&[runs::READS][..]][..], Plans::Any),
        };
        let asked = now();
        let mut slot = Arc::clone(slot).lock_owned().await;
        if self.known.is_replaced() || slot.session.as_ref().is_none_or(Session::is_closed) {
            slot.session = None;
            // Whoever waited for one that could not be had need not try in their turn.
            if let Some((_, error)) = slot.failed.as_ref().filter(|(at, _)| *at > asked) {
                return Err(error.clone());
            }
            let opened =
                Session::open(&self.address, &self.known, &statements.concat().concat(), plans).await;
            slot.failed = opened.as_ref().err().map(|error| (now(), error.clone()));
            slot.session = Some(opened?);
            self.turning.marks.forget();
        }
        Ok(Lease { slot, is_clean: true })
    }
}

/// A connection in use. One that is given back in the middle of a transaction is closed.
pub(super) struct Lease {
    slot: OwnedMutexGuard<Slot>,
    is_clean: bool,
}

impl std::ops::Deref for Lease {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.slot.session.as_ref().expect("a connection is leased only while it is open")
    }
}

impl Lease {
    /// A transaction begins.
    pub(super) fn begin(&mut self) {
        self.is_clean = false;
    }

    /// The transaction is over, one way or the other.
    pub(super) fn end(&mut self) {
        self.is_clean = true;
    }

    /// Ends a transaction that failed. `false`: the connection is gone, and nobody knows what became of it.
    pub(super) async fn roll_back(&mut self) -> bool {
        let is_known = self.run("ROLLBACK").await.is_ok();
        if is_known {
            self.end();
        }
        is_known
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_clean {
            self.slot.session = None;
        }
    }
}
