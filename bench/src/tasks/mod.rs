//! Durable tasks beside the queues that people use instead, all on one private PostgreSQL that waits for its disk.
//!
//! One file for each group of cases: [`drain`] (with what is inserted on the way), [`embedded`], [`sends`], [`latency`],
//! [`cap`], [`cluster`], [`flat`], [`neighbour`], [`steady`]. What they stand on: [`stage`] has the servers and the programs,
//! [`contestant`] who takes part, [`running`] one program at work, [`fleet`] many of them, [`own`] a store of ours in this
//! process, [`ledger`] what the server counts, [`overlap`] judges a cap from the handlers' own clocks, [`standings`] keeps
//! everybody's figures and sets ours beside them; [`bare`] is the one commit that no hard cap can do without.

mod bare;
pub(crate) mod cap;
pub(crate) mod cluster;
mod contestant;
pub(crate) mod drain;
pub(crate) mod embedded;
pub(crate) mod flat;
mod fleet;
pub(crate) mod latency;
mod ledger;
pub(crate) mod neighbour;
mod overlap;
mod own;
pub(crate) mod running;
pub(crate) mod sends;
pub(crate) mod stage;
mod standings;
pub(crate) mod steady;
