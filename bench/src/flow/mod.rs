//! The flow-control server: messages in, deliveries out, beside a bare client and beside BullMQ.
//!
//! One file for each group of cases: [`through`], [`latency`], [`keys`], [`memory`]. What they stand on: [`stage`] has the
//! server, its stores and the peer, [`endpoint`] is who gets the deliveries, [`client`] who publishes.

mod client;
mod endpoint;
pub(crate) mod keys;
pub(crate) mod latency;
pub(crate) mod memory;
pub(crate) mod stage;
pub(crate) mod through;
