//! Whether the tables are still those that a process began with.
//!
//! Owns the comparison. A database that was restored, or dropped and made anew, under a running process gives
//! the numbers of before to others: of workers, of leases, of lanes. What the process knows by its number is
//! somebody else's there, and what it settles is lost to them.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};

use tokio_postgres::{Client, Error, SimpleQueryMessage};

use crate::store::StoreError;

/// What no restore keeps: the numbers of the database and of a table that no step ever makes anew.
pub(super) const TABLES: &str = "SELECT concat_ws('/', (SELECT oid FROM pg_database WHERE datname = current_database()), \
    to_regclass('flowgate.migrations')::oid)";
/// And which cluster they are in: in two new ones both may have the same.
const CLUSTER: &str = "SELECT system_identifier FROM pg_control_system()";

const REPLACED: &str = "its tables are not the ones this process started with: they were restored, dropped and recreated, \
    or replaced by those of another cluster (pg_upgrade, a logical replica). This process no longer uses them: restart it \
    (and \
    stop everything that uses a database before you restore or upgrade it)";

/// Which tables these are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    tables: String,
    /// Where a role may know.
    cluster: Option<String>,
}

impl Identity {
    pub(super) async fn of(client: &Client) -> Result<Self, Error> {
        let tables = first(client, TABLES).await?.unwrap_or_default();
        let cluster = match first(client, CLUSTER).await {
            Err(error) if error.as_db_error().is_some() => None,
            told => told?,
        };
        Ok(Identity { tables, cluster })
    }

    fn is(&self, other: &Identity) -> bool {
        let differ =
            self.cluster.as_ref().zip(other.cluster.as_ref()).is_some_and(|(ours, other)| ours != other);
        self.tables == other.tables && !differ
    }
}

async fn first(client: &Client, sql: &str) -> Result<Option<String>, Error> {
    let told = client.simple_query(sql).await?;
    Ok(told.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    }))
}

/// What a process began with.
#[derive(Default)]
pub(super) struct Known {
    first: OnceLock<Identity>,
    is_replaced: AtomicBool,
}

impl Known {
    /// Whether the tables were others when somebody looked last. They may come back: another server may have had their
    /// address for a while.
    pub(super) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Acquire)
    }

    /// Fails if these tables are not those that were there first.
    pub(super) fn judge(&self, found: &Identity) -> Result<(), StoreError> {
        self.see(self.first.get_or_init(|| found.clone()).is(found))
    }

    /// The same, of a connection that is open: of the same cluster, then.
    pub(super) fn judge_tables(&self, found: &str) -> Result<(), StoreError> {
        self.see(self.first.get().is_none_or(|first| first.tables == found))
    }

    fn see(&self, is_same: bool) -> Result<(), StoreError> {
        self.is_replaced.store(!is_same, Ordering::Release);
        if is_same {
            return Ok(());
        }
        Err(StoreError::Database { doing: "checking its identity", why: REPLACED.to_owned() })
    }
}
