//! Opening the store for one command.

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::Arc,
};

use flowgate_tasks::store::{Postgres, Shelf, Sqlite, Store};
use serde_json::Value;

use super::failure::Failure;
use crate::{
    cli::StoreOptions,
    config::{Config, StoreAddress},
    terminal::{json, plain_lines},
};

/// Loads the configuration, opens its store, and does something with both.
pub(super) fn with_store<T>(
    options: &StoreOptions,
    work: impl AsyncFnOnce(Arc<dyn Store>, &Config) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let config = options.sources().load()?.config;
    block_on(async {
        let store = open(&config.store).await?;
        work(store, &config).await
    })
}

/// The same for a store that has to be there: who only looks, or looks in the wrong folder, makes none.
pub(super) fn with_known<T>(
    options: &StoreOptions,
    work: impl AsyncFnOnce(Arc<dyn Shelf>, &Config) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let config = options.sources().load()?.config;
    is_there(&config.store)?;
    block_on(async {
        let store = open(&config.store).await?;
        work(store, &config).await
    })
}

/// Fails for a file that is not there. Of a database, opening it says so.
pub(crate) fn is_there(address: &StoreAddress) -> Result<(), Failure> {
    match address {
        StoreAddress::Sqlite(path) if !path.exists() => Err(Failure::NoStore(address.to_string())),
        _ => Ok(()),
    }
}

/// Runs to the end on this thread.
pub(super) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(Failure::Start)?.block_on(work)
}

/// Opens it, and brings its tables up to date.
pub(super) async fn open(address: &StoreAddress) -> Result<Arc<dyn Shelf>, Failure> {
    let failed = |error| Failure::Open { address: address.to_string(), error };
    Ok(match address {
        StoreAddress::Sqlite(path) => Arc::new(Sqlite::open(path).map_err(failed)?),
        StoreAddress::Postgres(url) => Arc::new(Postgres::connect(url).await.map_err(failed)?),
    })
}

/// Prints this, whoever wrote it.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    print_bytes(plain_lines(text).as_bytes())
}

/// Prints this for programs.
pub(super) fn print_json(value: &Value) -> Result<(), Failure> {
    print_bytes(json(value).as_bytes())
}

/// Prints what a task brought: as it is, unless a terminal would obey it.
pub(super) fn print_result(bytes: &[u8]) -> Result<(), Failure> {
    match io::stdout().is_terminal() {
        true => print(&format!("{}\n", String::from_utf8_lossy(bytes))),
        false => print_bytes(&[bytes, b"\n"].concat()),
    }
}

fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    io::stdout().write_all(bytes).map_err(Failure::Write)
}
