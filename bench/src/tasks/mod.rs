//! Durable tasks beside the queues that people use instead, all on one private PostgreSQL that waits for its disk.
//!
//! One file for each group of cases: [`drain`] (with what is inserted on the way), [`sends`], [`latency`], [`cap`]. What
//! they stand on: [`stage`] has the servers and the programs, [`contestant`] who takes part, [`running`] one program at
//! work, [`ledger`] what the server counts, [`overlap`] judges a cap from the handlers' own clocks, [`standings`] keeps
//! everybody's figures and sets ours beside them.

pub(crate) mod cap;
mod contestant;
pub(crate) mod drain;
pub(crate) mod latency;
mod ledger;
mod overlap;
pub(crate) mod running;
pub(crate) mod sends;
pub(crate) mod stage;
mod standings;
