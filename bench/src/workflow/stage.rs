//! Where the suite plays: a server on a store of its own, and the end of both.

use std::{env, fs, path::PathBuf, process};

use flowgate_testkit::postgres::{Options, Postgres};
use tokio::runtime::{Builder, Runtime};

use crate::{
    http::{
        accounting::Ticks,
        process::{Process, free_port},
        stage::{build, leave_on_signal},
    },
    suite::Suite,
};

/// A group of cases: measures those that are wanted.
pub(crate) type Group = fn(&mut Suite, &Stage) -> Result<(), String>;

/// For the server and for whoever asks it.
pub(super) const TOKEN: &str = "a-token-for-the-bench";

/// Plays all groups, one after the other. One that fails is told, and the others go on.
pub(crate) fn play_all(groups: &[Group], suite: &mut Suite) {
    let before = Ticks::now();
    match Stage::set() {
        Ok(stage) => groups.iter().for_each(|group| {
            if let Err(error) = group(suite, &stage) {
                suite.remark(format!("not measured: {error}"));
            }
        }),
        Err(error) => return suite.remark(format!("nothing was measured: {error}")),
    }
    if let (Some(before), false) = (before, suite.cases().is_empty()) {
        before.remark_on_others(suite);
    }
}

/// Which store the server is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Store {
    Sqlite,
    Postgres,
}

/// What all cases share.
pub(crate) struct Stage {
    folder: PathBuf,
    postgres: Postgres,
    program: PathBuf,
    /// Of the workflow.
    pub(super) runtime: Runtime,
}

impl Stage {
    fn set() -> Result<Self, String> {
        let folder = env::temp_dir().join(format!("flowgate-bench-{}", process::id()));
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        leave_on_signal(folder.clone());
        let postgres = Postgres::start(Options::durable()).map_err(|error| error.to_string())?;
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(|error| format!("there is no runtime: {error}"))?;
        Ok(Stage { folder, postgres, program: build()?, runtime })
    }

    /// A server on an empty store.
    pub(super) fn server(&self, store: Store) -> Result<Process, String> {
        let port = free_port()?;
        let at = match store {
            Store::Sqlite => format!("sqlite:{}", self.folder.join(format!("bench-{port}.db")).display()),
            Store::Postgres => {
                self.postgres.create_database("workflow").map_err(|error| error.to_string())?
            }
        };
        let listen = format!("127.0.0.1:{port}");
        let words = ["serve", "--listen", &listen, "--store", &at, "--token", TOKEN].map(str::to_owned);
        Process::start("flowgate", &self.program, &words, port, &self.folder)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
