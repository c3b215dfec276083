//! `flowgate serve`: the flow-control server, with the gateway beside it.
//!
//! Reading order: [`run`] starts and stops everything; [`accept`] has its connections, and [`linger`] how one ends
//! whose client is still sending; [`store_at`] opens the store; [`greeting`] is what it says on the terminal.

mod accept;
mod failure;
mod greeting;
mod linger;
mod parts;
mod run;
mod store_at;

pub(crate) use failure::Failure;
pub(crate) use run::serve;
pub(crate) use store_at::StoreAt;
