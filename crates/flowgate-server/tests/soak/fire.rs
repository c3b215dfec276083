//! The servers, and what happens to them.

use std::{
    collections::HashMap,
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

use flowgate_testkit::postgres::Postgres;
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::runtime::Handle;

use crate::{
    kit::{DEADLINE, Kit, Server},
    lanes::{Chance, LANES, Lane},
};

/// How long a server may be silent before others take what it held.
const LEASE: &str = "2s";
/// How often somebody hears how it goes.
const REPORT: Duration = Duration::from_secs(30);
const UNPIN: &str = "unpin?parallelism=true&rate=true";

/// Servers on one store.
pub(crate) struct Fleet {
    kit: Kit,
    servers: Mutex<Vec<Option<Server>>>,
    /// Where they are, or were last.
    known: Mutex<Vec<(SocketAddr, String)>>,
}

impl Fleet {
    pub(crate) fn start(kit: Kit, count: usize) -> Self {
        let servers: Vec<Server> = (0..count).map(|_| begin(&kit)).collect();
        let known = servers.iter().map(place).collect();
        Fleet { kit, servers: Mutex::new(servers.into_iter().map(Some).collect()), known: Mutex::new(known) }
    }

    /// One of them, which may be gone.
    pub(crate) fn anyone(&self, chance: &mut Chance) -> (SocketAddr, String) {
        let known = self.known.lock().unwrap();
        known[chance.of(known.len() as u64) as usize].clone()
    }

    fn servers(&self) -> MutexGuard<'_, Vec<Option<Server>>> {
        self.servers.lock().unwrap()
    }

    /// Ends one of them, and starts another in its place.
    fn replace(&self, index: usize, end: impl FnOnce(Server)) {
        let old = self.servers()[index].take().unwrap();
        end(old);
        let new = begin(&self.kit);
        self.known.lock().unwrap()[index] = place(&new);
        self.servers()[index] = Some(new);
    }

    /// The first of them, taken out while it is asked.
    fn with<T>(&self, ask: impl FnOnce(&Server) -> T) -> T {
        let server = self.servers()[0].take().unwrap();
        let answer = ask(&server);
        self.servers()[0] = Some(server);
        answer
    }

    /// Asks one of them when the fire is over.
    pub(crate) async fn ask(&self, path: &str) -> Value {
        let server = self.servers()[0].take().unwrap();
        let answer = server.get(path).await;
        self.servers()[0] = Some(server);
        answer
    }

    /// Whether this many runs ended well, and none is left.
    pub(crate) async fn succeeded(&self, runs: usize) {
        let mut states: HashMap<String, usize> = HashMap::new();
        let mut cursor = String::new();
        loop {
            let page = self.ask(&format!("/v2/workflows/events?count=100{cursor}")).await;
            for run in page["runs"].as_array().unwrap() {
                *states.entry(run["workflowState"].as_str().unwrap().to_owned()).or_default() += 1;
            }
            match page["cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(states, HashMap::from([("RUN_SUCCESS".to_owned(), runs)]));
    }

    /// Waits until nothing of this lane is in flight and nothing waits.
    pub(crate) async fn is_empty(&self, lane: &Lane) {
        let server = self.servers()[0].take().unwrap();
        if lane.is_in_order {
            let path = format!("/v2/queues/{}", lane.name);
            server.until(&path, "an empty queue", |queue| queue["lag"] == 0).await;
        } else {
            server.key(lane.name, 0, 0).await;
        }
        self.servers()[0] = Some(server);
    }

    /// What they take of memory now.
    pub(crate) fn memory(&self) -> String {
        let resident: Vec<String> = self
            .servers()
            .iter()
            .flatten()
            .map(|server| format!("{} MiB", server.resident() >> 20))
            .collect();
        format!("memory {}", resident.join(", "))
    }
}

fn begin(kit: &Kit) -> Server {
    kit.server_with(&["--dev", "--lease", LEASE])
}

fn place(server: &Server) -> (SocketAddr, String) {
    (server.address, server.token.clone())
}

/// What may happen.
#[derive(Clone, Copy)]
enum Strike {
    Kill,
    Stop,
    KillDatabase,
    Change,
}

/// One after the other, and again: all of it happens in the first few seconds.
const STRIKES: [Strike; 9] = {
    use Strike::{Change, Kill, KillDatabase, Stop};
    [Kill, Change, KillDatabase, Change, Kill, Stop, Change, Kill, Change]
};

/// What happens to a fleet.
pub(crate) struct Fire {
    fleet: Arc<Fleet>,
    cluster: Option<Arc<Postgres>>,
    chance: Chance,
    next: usize,
    burnt: Burnt,
}

/// What happened.
#[derive(Default)]
pub(crate) struct Burnt {
    length: Duration,
    killed: u32,
    stopped: u32,
    databases: u32,
    changes: u32,
}

impl fmt::Display for Burnt {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Burnt { length, killed, stopped, databases, changes } = self;
        write!(
            to,
            "{} s; servers killed {killed} times and stopped {stopped} times, the database killed {databases} times, \
             limits changed {changes} times",
            length.as_secs()
        )
    }
}

impl Fire {
    pub(crate) fn new(fleet: Arc<Fleet>, cluster: Option<Arc<Postgres>>) -> Self {
        Fire { fleet, cluster, chance: Chance::new(7), next: 0, burnt: Burnt::default() }
    }

    /// For so long; then everybody is there again, and all limits are as they were sent.
    pub(crate) fn burn(mut self, length: Duration, handle: &Handle, report: &dyn Fn(Duration)) -> Burnt {
        let (began, mut told) = (Instant::now(), Duration::ZERO);
        while began.elapsed() < length {
            thread::park_timeout(Duration::from_millis(200 + self.chance.of(1_500)));
            self.strike(handle);
            if began.elapsed() - told >= REPORT {
                told = began.elapsed();
                report(told);
            }
        }
        for lane in LANES.iter().filter(|lane| !lane.is_in_order) {
            // A database that has just come back may not be heard at once.
            while !self.change(handle, lane.name, "resume") || !self.change(handle, lane.name, UNPIN) {
                assert!(began.elapsed() < length + DEADLINE, "the limits of {} stay changed", lane.name);
            }
        }
        self.burnt.length = began.elapsed();
        self.burnt
    }

    /// The next thing that happens.
    fn strike(&mut self, handle: &Handle) {
        let index = self.chance.of(self.fleet.servers().len() as u64) as usize;
        let what = STRIKES[self.next % STRIKES.len()];
        self.next += 1;
        match (what, &self.cluster) {
            (Strike::Kill, _) | (Strike::KillDatabase, None) => {
                self.fleet.replace(index, Server::kill_nine);
                self.burnt.killed += 1;
            }
            (Strike::Stop, _) => {
                self.fleet.replace(index, |server| assert_eq!(server.stop(), Some(0)));
                self.burnt.stopped += 1;
            }
            (Strike::KillDatabase, Some(cluster)) => {
                cluster.kill_nine().unwrap();
                cluster.restart().unwrap();
                self.burnt.databases += 1;
            }
            (Strike::Change, _) => {
                // Never above what was sent, so that what was promised for it holds all the time.
                let lane = &LANES[self.chance.of(LANES.len() as u64 - 1) as usize];
                let how = match (self.chance.of(5), lane.parallelism) {
                    (0, _) => "pause".to_owned(),
                    (1 | 2, _) => "resume".to_owned(),
                    (3, Some(parallelism)) => format!("pin?parallelism={}", parallelism.div_ceil(2)),
                    _ => UNPIN.to_owned(),
                };
                self.change(handle, lane.name, &how);
            }
        }
    }

    /// Whether it was done. A key that nothing was sent to yet is not known, and has nothing to change.
    fn change(&mut self, handle: &Handle, key: &str, how: &str) -> bool {
        let path = format!("/v2/flowControl/{key}/{how}");
        let answer = self.fleet.with(|server| handle.block_on(server.ask(Method::POST, &path, &[], "")));
        self.burnt.changes += 1;
        answer.status.is_success() || answer.status == StatusCode::NOT_FOUND
    }
}
