//! Tasks in one SQLite file, for everything that runs on one machine. One thread writes: it commits everything that
//! waits for it in one transaction. Another waits for the disk and sends the answers, while the first goes on with
//! the next transaction. A third reads. Whether a task may start is never decided here: each turn asks the crate's
//! plan, inside that transaction.
//!
//! Several processes may share the file. Between them there are no wake-ups, only a slow poll for changes.

mod ahead;
mod audit;
mod candidates;
mod claim;
mod disk;
mod error;
mod keys;
mod lanes;
mod leases;
mod limits;
mod log;
mod look;
mod notes;
mod open;
mod runs;
mod send;
mod settle;
mod sheet;
mod shelf;
mod store;
mod threads;
mod turn;
mod upkeep;
mod why;

pub use store::Sqlite;
