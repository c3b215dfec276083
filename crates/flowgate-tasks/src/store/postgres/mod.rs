//! Tasks in PostgreSQL 14 or newer: the store of a fleet.
//! Any number of processes share one database, and none of them is the leader. The database's own transactions keep
//! the bounds: a turn that claims for a key holds the key's row.
//!
//! Reading order:
//!
//! - [`connect`] has the store and its connections, [`session`] one connection and its statements.
//! - [`send`] takes tasks in; [`direct`] is a send that claims at once, [`straight`] one of
//!   a single statement.
//! - [`turn`] settles and claims: [`gather`] reads and locks, [`ready`] finds lanes, [`scene`] is what the plan sees,
//!   [`heavy`] weighs tasks, [`settle`] and `write` store the outcome. [`swap`] and [`swap_keys`] are turns of one
//!   statement, [`balance`] a turn that changes no count.
//! - [`cancel`] finds a task wherever it is.
//! - [`upkeep`] is what time brings about; [`orphans`] is what lost workers held; [`idle`] and [`marks`] tidy lanes
//!   behind a turn; [`promised`] are those that somebody's open transaction may still fill.
//! - [`notify`] wakes other processes; [`identity`] and [`pooled`] make sure that the database is the intended one.
//!
//! **Order of locks.** A turn that gives something back locks its keys in the order of their ids and waits
//! for them. A turn that may take more than it gives back locks the cluster's row, then queues in the order
//! of their ids. After that nobody waits: further keys and tasks are taken only where nobody else has them,
//! and counters that only go down come last. So no two turns can wait for each other.
//!
//! A transaction that changes what all turns read (a cap, the rule for all keys) waits for them first, by the
//! table of leases, for a moment at a time: turns that begin meanwhile stand behind it. A transaction that
//! makes a lane shares its key, and a sweep takes only keys that nobody has: so no lane is without its key. A
//! turn of one statement waits for the rows of its worker, of the keys that it settles and of its own leases,
//! in this order, and for nothing after that. Should two transactions wait for each other all the same, the
//! one that is told to give way tries again. A cancellation takes tasks, lanes and leases only where nobody
//! else has them, and looks again for the others with no lock in its hands; so does upkeep
//! for what expires.
//!
//! A send locks the keys whose newest limits it changes, in the order of their ids, then the idle lanes it
//! fills, in theirs. A send that claims for a worker goes on as a turn that waits for nobody: the cluster's
//! row, queues, keys and tasks are taken only where nobody else has them. Lanes it writes last are of keys
//! that it has, and were ready when it began: whoever had filled one of them and waited for a lane of ours
//! would have to have begun before us and after us. One of a single statement shares its lane and then its
//! worker: whoever has the row of one to himself waits for nothing of the other.

mod ahead;
mod balance;
#[cfg(test)]
mod beside;
mod cancel;
mod columns;
mod connect;
#[cfg(test)]
mod costs;
mod direct;
mod gather;
mod heavy;
mod identity;
mod idle;
mod keys;
mod lanes;
mod limits;
mod look;
mod marks;
mod memory;
mod migrate;
mod notes;
mod notify;
mod orphans;
mod packs;
mod pooled;
mod promised;
mod ready;
mod rows;
mod runs;
mod scene;
mod send;
mod session;
mod settle;
mod shelf;
mod store;
mod straight;
mod swap;
mod swap_keys;
mod tls;
mod turn;
mod upkeep;
mod why;
mod write;

pub use connect::{Postgres, PostgresOptions};
pub use tls::{Address, Stream};
