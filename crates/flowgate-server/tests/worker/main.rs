//! `flowgate worker` and the commands beside it, as real processes on both stores.

mod cancel;
mod caps;
mod children;
mod commands;
mod crash;
mod examples;
mod explain;
mod kit;
mod news;
mod program;
mod progress;
mod record;
mod starting;
