//! R1 to R8: routes.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod cancel;
mod crowd;
mod ends;
mod examples;
mod keys;
mod kit;
mod order;
mod seed;
mod shutdown;
mod web;
mod wrappers;
