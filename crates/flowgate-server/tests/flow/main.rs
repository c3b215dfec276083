//! The flow-control server from outside: real processes, real sockets, both stores.
//!
//! What is claimed about deliveries is measured by the endpoint that receives them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

#[macro_use]
mod kit;
mod api;
mod bad_input;
mod bounds;
mod browser;
mod bulk;
mod callbacks;
mod commands;
mod console;
mod crash;
mod delivery;
mod door;
mod egress;
mod endpoint;
mod filters;
mod fleet;
mod limits;
mod metrics;
mod namespaces;
mod outage;
mod overload;
mod production;
mod prometheus;
mod queues;
mod schema;
mod sdk;
mod shapes;
mod stopping;
mod top;
mod traces;
