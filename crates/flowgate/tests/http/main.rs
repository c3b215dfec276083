//! The laws H1 to H8, over real sockets.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod answers;
mod bodies;
mod clients;
mod companions;
mod examples;
mod held;
mod kit;
mod live;
mod nested;
mod scopes;
mod shapes;
mod tunnels;
mod wording;
