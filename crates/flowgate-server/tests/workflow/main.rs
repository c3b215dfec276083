//! Workflows from outside: the official clients, unmodified, against a real server on every store.
//!
//! What is claimed about deliveries is measured by the endpoint that receives them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

#[macro_use]
#[path = "../flow/kit.rs"]
#[allow(dead_code, reason = "each set of tests uses its own part")]
mod kit;
#[path = "../flow/endpoint.rs"]
#[allow(dead_code, reason = "each set of tests uses its own part")]
mod endpoint;

mod bad_input;
mod clients;
mod commands;
mod guide;
mod hangs;
mod letters;
mod load;
mod namespaces;
