//! The server itself: from an empty folder to its end.
//!
//! Owns the folder and the process. What it starts is gone when the value is, and when the process is.

use std::{
    env, fs,
    io::{self, pipe},
    os::unix::{fs::DirBuilderExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::{
        Mutex, MutexGuard, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use super::{
    binaries::Binaries, error::Error, log::Log, options::Options, psql, user::User, watchdog::Watchdog,
};

/// The name of the superuser.
const ROLE: &str = "flowgate";
/// Longer than any start on a busy machine.
const START: Duration = Duration::from_secs(60);
/// By then the server itself has killed what did not listen.
const END: Duration = Duration::from_secs(30);
/// PostgreSQL cuts longer names.
const NAME: usize = 50;

/// A private PostgreSQL, run by an unprivileged user in a temporary folder.
pub struct Postgres {
    // Dropped after `drop` below has stopped the server; then it finds nothing to do.
    _watchdog: Watchdog,
    binaries: Binaries,
    user: User,
    options: Options,
    folder: PathBuf,
    port: u16,
    life: Mutex<Option<Life>>,
}

/// From a start to a crash.
struct Life {
    child: Child,
    log: Log,
}

impl Postgres {
    /// The server that all tests of this process share. Each test takes a database of its own.
    ///
    /// # Panics
    ///
    /// If it cannot be started; the message says what to install.
    pub fn shared() -> &'static Postgres {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(|| match Postgres::start(Options::default()) {
            Ok(postgres) => postgres,
            Err(error) => panic!("{error}"),
        })
    }

    /// Starts a server with a cluster of its own, and waits until it takes connections.
    pub fn start(options: Options) -> Result<Self, Error> {
        let binaries = Binaries::find()?;
        let user = User::unprivileged()?;
        let folder = new_folder().map_err(Error::system("a temporary folder"))?;
        // From here on, whatever fails leaves nothing behind.
        let watchdog = user.own(&folder).and_then(|()| Watchdog::over(&folder, &user));
        let watchdog = watchdog.inspect_err(|_| drop(fs::remove_dir_all(&folder)))?;
        let port = crate::free_port().map_err(Error::system("a free port"))?;
        let postgres =
            Postgres { _watchdog: watchdog, binaries, user, options, folder, port, life: Mutex::new(None) };
        postgres.make_cluster()?;
        postgres.restart()?;
        Ok(postgres)
    }

    /// The URL of the database `postgres`, which is there from the start.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The port of loopback it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder of the cluster, the socket beside it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes an empty database, and gives its URL. Its name begins as said; a number makes it a new one on each call.
    pub fn create_database(&self, name: &str) -> Result<String, Error> {
        static MADE: AtomicU32 = AtomicU32::new(1);
        let plain = |character: char| {
            if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '_' }
        };
        let name: String = name.chars().map(plain).take(NAME).collect();
        let name = format!("{name}_{}", MADE.fetch_add(1, Ordering::Relaxed));
        self.psql(&self.url(), &format!("create database \"{name}\""))?;
        Ok(self.url_of(&name))
    }

    /// Removes the database of this URL, whoever is connected to it.
    pub fn drop_database(&self, url: &str) -> Result<(), Error> {
        let (_, name) = url.rsplit_once('/').unwrap_or(("", url));
        self.psql(&self.url(), &format!("drop database \"{name}\" with (force)")).map(drop)
    }

    /// Runs statements with `psql` in the database of the URL; gives the rows, a line each, columns apart by `|`.
    pub fn psql(&self, url: &str, sql: &str) -> Result<String, Error> {
        psql::run(&self.binaries, url, sql)
    }

    /// Kills every process of the server with SIGKILL, as a crash would, and waits until all are gone. The folder stays;
    /// [`restart`](Self::restart) recovers from it.
    pub fn kill_nine(&self) -> Result<(), Error> {
        // Stopped first, so that it neither starts new ones nor sees the others go.
        self.end("kill -s STOP $1; kill -s KILL $(cat /proc/$1/task/$1/children) $1")
    }

    /// Stops the server in good order, and waits until it is gone. Whoever is connected is cut off.
    pub fn stop(&self) -> Result<(), Error> {
        self.end("kill -s INT $1")
    }

    /// Starts the server again on the same folder and port, and waits until it takes connections. One that runs is stopped
    /// first.
    pub fn restart(&self) -> Result<(), Error> {
        self.stop()?;
        let mut life = self.life();
        let (reader, writer) = pipe().map_err(Error::system("a pipe"))?;
        let mut command = self.user.command(self.binaries.path("postgres"), &self.folder);
        command.arg("-D").arg(self.folder.join("data")).arg("-k").arg(&self.folder);
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]).args(self.options.words());
        let clone = writer.try_clone().map_err(Error::system("a pipe"))?;
        // Ctrl-C is for us alone: the watchdog ends it.
        command.process_group(0).stdin(Stdio::null()).stdout(clone).stderr(writer);
        let child = command.spawn().map_err(Error::system("postgres"))?;
        // It holds our copies of the writing end; without it, only the server's are left.
        drop(command);
        let log = Log::follow(reader);
        let is_ready = log.is_ready_within(START);
        let said = log.last_words();
        *life = Some(Life { child, log });
        drop(life);
        if is_ready {
            return Ok(());
        }
        self.end("kill -s KILL $1")?;
        Err(Error::Failed { what: "postgres did not start".to_owned(), said })
    }

    fn make_cluster(&self) -> Result<(), Error> {
        let mut initdb = self.user.command(self.binaries.path("initdb"), &self.folder);
        initdb.arg("-D").arg(self.folder.join("data")).args(["-U", ROLE]);
        // Nothing in it is worth waiting for: the server's own options say what is.
        initdb.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]);
        let output = initdb.stdin(Stdio::null()).output().map_err(Error::system("initdb"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
        Err(Error::Failed { what: "initdb".to_owned(), said })
    }

    fn url_of(&self, database: &str) -> String {
        format!("postgres://{ROLE}@127.0.0.1:{}/{database}", self.port)
    }

    /// Ends the server with a line of shell, `$1` being its first process; nothing if it does not run.
    fn end(&self, line: &str) -> Result<(), Error> {
        let mut life = self.life();
        let Some(Life { child, log }) = life.as_mut() else { return Ok(()) };
        // `setpriv` became the server: it is the same process.
        let mut shell = Command::new("sh");
        shell.args(["-c", line, "sh", &child.id().to_string()]).stdin(Stdio::null()).stderr(Stdio::null());
        shell.status().map_err(Error::system("sh"))?;
        if !log.is_gone_within(END) {
            let said = log.last_words();
            return Err(Error::Failed { what: "postgres did not end".to_owned(), said });
        }
        child.wait().map_err(Error::system("postgres"))?;
        *life = None;
        Ok(())
    }

    fn life(&self) -> MutexGuard<'_, Option<Life>> {
        self.life.lock().expect("no panic under the server's lock")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Its data is thrown away, so it need not be in order. If this fails, the watchdog goes on trying.
        if self.end("kill -s QUIT $1").is_ok() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// A new folder that nobody else may look into.
fn new_folder() -> io::Result<PathBuf> {
    static MADE: AtomicU32 = AtomicU32::new(1);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let folder = env::temp_dir().join(format!("flowgate-postgres-{}-{number}", process::id()));
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => fs::DirBuilder::new().mode(0o700).create(&folder)?,
    }
    Ok(folder)
}
