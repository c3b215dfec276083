//! Where the suite plays: a Redis and a PostgreSQL of its own, and a runtime of one thread for whoever asks them.

use flowgate_testkit::{
    Redis,
    postgres::{Options, Postgres},
};
use tokio::runtime::{Builder, Runtime};

use crate::suite::Suite;

/// Which store it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Store {
    Redis,
    Postgres,
}

/// What all cases share.
pub(crate) struct Stage {
    pub(super) redis: Redis,
    redis_url: String,
    postgres_url: String,
    pub(super) runtime: Runtime,
    _postgres: Postgres,
}

impl Stage {
    pub(crate) fn set(_: &Suite) -> Result<Self, String> {
        let redis = Redis::start().map_err(|error| error.to_string())?;
        // Each commit waits for the disk, as one has to whose counts are to be true after a crash.
        let postgres = Postgres::start(Options::durable()).map_err(|error| error.to_string())?;
        let postgres_url = postgres.create_database("shared").map_err(|error| error.to_string())?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("there is no runtime: {error}"))?;
        Ok(Stage { redis_url: redis.url(), redis, postgres_url, runtime, _postgres: postgres })
    }

    pub(super) fn url(&self, store: Store) -> &str {
        match store {
            Store::Redis => &self.redis_url,
            Store::Postgres => &self.postgres_url,
        }
    }
}
