//! The gateway and the layers beside nginx and HAProxy, over loopback.
//!
//! One file for each group of cases: [`proxied`], [`refused`], [`overload`], [`idle`], [`slow`], [`layer`], [`flood`]. What
//! they stand on: [`stage`] has the folder and the programs, [`process`] starts and ends them, [`proxies`] writes their
//! configuration, [`role`] is this very program as one of the servers ([`upstream`], [`fragile`], [`hello`]); [`wrk`],
//! [`open_loop`] and [`crowd`] are the load, [`wire`] reads answers, [`accounting`] what the kernel counts, and [`rounds`]
//! gives everybody a turn.

pub(crate) mod accounting;
mod crowd;
pub(crate) mod flood;
mod fragile;
mod hello;
pub(crate) mod idle;
pub(crate) mod layer;
mod open_loop;
pub(crate) mod overload;
pub(crate) mod process;
pub(crate) mod proxied;
mod proxies;
pub(crate) mod refused;
pub(crate) mod role;
mod rounds;
pub(crate) mod slow;
pub(crate) mod stage;
pub(crate) mod tools;
mod upstream;
mod wire;
mod wrk;
