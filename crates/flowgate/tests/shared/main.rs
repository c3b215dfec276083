//! Shared gates on real stores: several members of a fleet in one process, and several processes.
//!
//! Each law is tried on PostgreSQL and on Redis.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]
#![allow(clippy::print_stdout, reason = "which store a test was on is told when it fails")]

mod busy;
mod edge;
mod entering;
mod fleet;
mod flight;
mod kit;
mod late;
mod leases;
mod limits;
mod outage;
mod sweeping;
