//! Lanes in Redis 6 or newer.
//!
//! [`connection`] speaks the protocol, [`lanes`] has the scripts and is the store.

mod connection;
mod lanes;

pub(crate) use lanes::Redis;
