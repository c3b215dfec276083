//! Where the suite plays: a server on a store of its own, and the end of both.

use std::{env, fs, path::PathBuf, process};

use flowgate_testkit::postgres::{Options, Postgres};
use tokio::runtime::{Builder, Runtime};

use crate::{
    http::{
        process::{Process, free_port},
        stage::{build, leave_on_signal},
    },
    suite::Suite,
};

/// For the server and for whoever asks it.
pub(super) const TOKEN: &str = "a-token-for-the-bench";

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
    pub(crate) fn set(_: &Suite) -> Result<Self, String> {
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
