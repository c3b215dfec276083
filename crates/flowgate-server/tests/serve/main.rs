//! The binary over real sockets: the laws of the gates as someone outside sees them.

mod client;
mod command_line;
mod controls;
mod gates;
mod server;
mod stopping;
