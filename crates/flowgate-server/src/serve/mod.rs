//! `flowgate serve`: the flow-control server, with the gateway beside it.
//!
//! Reading order: [`run`] starts and stops everything; [`accept`] has its connections, [`linger`] how one ends
//! whose client is still sending, and [`stall`] one whose client does not read; [`store_at`] opens the store; [`greeting`]
//! is what it says on the terminal.

mod accept;
mod failure;
mod greeting;
mod linger;
mod parts;
mod run;
mod stall;
mod store_at;

pub(crate) use failure::Failure;
pub(crate) use run::serve;
pub(crate) use store_at::StoreAt;
