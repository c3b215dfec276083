//! Tasks in PostgreSQL 14 or newer: the store of a fleet.
//!
//! Any number of processes share one database, and none of them leads. What keeps the bounds is the database's own
//! transactions: whoever claims for a key holds the key's row.
//!
//! **Order of locks.** A turn that gives something back locks its keys in the order of their ids and waits for them; a turn
//! that may take more than it gives back locks the cluster's row, then queues in the order of their ids. After that nobody
//! waits: further keys and tasks are taken only where nobody else has them, and counters that only go down come last. So no
//! two turns can wait for each other.

mod ahead;
mod changes;
mod connect;
mod idle;
mod keys;
mod lanes;
mod limits;
mod look;
mod marks;
mod migrate;
mod notify;
mod rows;
mod runs;
mod scene;
mod send;
mod session;
mod settle;
mod shelf;
mod store;
mod tls;
mod turn;
mod upkeep;
mod why;

pub use connect::{Postgres, PostgresOptions};
