//! What every store of tasks has to do, tested on each of them.
//!
//! A test is written once, against a [`kit::Kit`], and runs on every store. At its end everything is counted again.

#[macro_use]
mod kit;
mod model;

mod ahead;
mod cancel;
mod caps;
mod dead;
mod dedupe;
mod explain;
mod leases;
mod limits;
#[cfg(feature = "postgres")]
mod offers;
mod order;
mod reentry;
mod runs;
mod shares;
mod shelf;
mod sqlite;
mod time;
mod unread;
mod worker;
