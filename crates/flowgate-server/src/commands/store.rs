//! Opening the store for one command.

use std::{io, sync::Arc};

use flowgate_tasks::store::{Postgres, Shelf, Sqlite, Store};

use super::failure::Failure;
use crate::{
    cli::StoreOptions,
    config::{Config, StoreAddress},
};

/// Loads the configuration, opens its store, and does something with both.
pub(super) fn with_store<T>(
    options: &StoreOptions,
    work: impl AsyncFnOnce(Arc<dyn Store>, &Config) -> Result<T, Failure>,
) -> Result<T, Failure> {
    with_shelf(options, async move |store, config| work(store, config).await)
}

/// The same, for who looks at more than tasks.
pub(super) fn with_shelf<T>(
    options: &StoreOptions,
    work: impl AsyncFnOnce(Arc<dyn Shelf>, &Config) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let config = options.sources().load()?.config;
    block_on(async {
        let store = open(&config.store).await?;
        work(store, &config).await
    })
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

/// Prints this.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    io::Write::write_all(&mut io::stdout(), text.as_bytes()).map_err(Failure::Write)
}
