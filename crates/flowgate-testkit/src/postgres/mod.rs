//! A PostgreSQL of one's own, for tests and benchmarks.
//!
//! [`Postgres`] is a server with a fresh, empty cluster in a temporary folder, on a free port of loopback, run by an
//! unprivileged user. It may crash and come back, and leaves nothing behind: not even when the test process is killed.
//! Nothing here touches a server that the machine runs for itself.

mod binaries;
mod cluster;
mod error;
mod log;
mod options;
mod pooler;
mod psql;
mod user;
mod watchdog;

pub use cluster::Postgres;
pub use error::Error;
pub use options::Options;
pub use pooler::pool_transactions;
