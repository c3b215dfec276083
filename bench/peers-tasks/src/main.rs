//! One durable queue at work: what `cargo xtask bench tasks` starts, once for each thing that it measures.
//!
//! `flowgate-bench-peers <peer> <command> --database <url> [--option value]...` does one thing with one peer and tells what
//! came of it in lines of JSON; lines that do not begin with `{` are the peers' own. A peer is a type with the trait
//! [`peer::Peer`], and a line in [`peers::run`]. The peers on node speak the same way.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the lines on stdout are the whole point of it"
)]

mod floor;
mod order;
mod peer;
mod peers;
mod play;
mod task;

use std::{
    env,
    io::{self, Write},
    process,
};

use order::Order;

#[tokio::main]
async fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let done = match Order::parse(&words) {
        Ok(order) => peers::run(order).await,
        Err(error) => Err(error.into()),
    };
    let code = match done {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("error: {error}");
            1
        }
    };
    let _ = io::stdout().flush();
    // Not by returning: the runtime would wait for whoever still waits for a word on stdin.
    process::exit(code)
}
