//! `flowgate simulate` from outside, and beside the real engine.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod agreement;
mod command_line;
mod durable;
mod program;
mod replay;
