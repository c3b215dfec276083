//! Loom models of the slots, the line and the express lane: every interleaving, up to some preemptions.
//!
//! `cargo xtask loom` runs them. Each model is a handful of steps on two or three threads; what must hold is asked once all
//! are done, and the bound at each moment. A future is polled by hand: one that waits must have been woken before it is
//! polled again, so a lost wake-up shows as such and not as a hang. Time stands still unless a model moves it.

#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod desks;
mod kit;
mod lanes;
mod line;
mod live;
mod rate;
