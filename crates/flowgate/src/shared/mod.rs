//! Gates whose limits hold over a fleet: the same gate, with its lanes in PostgreSQL or Redis.
//!
//! Start a gate of the same name on the same store in every process. Then the work in flight and the rate of
//! starts are bounded over all of them together, exactly. The rules are those of gates in the process. A
//! store has none: it only keeps what they come to.
//!
//! ```text
//! Gate (handle.rs) → Enter (enter.rs) → Pass (pass.rs)     what users hold; they write into the book and go on
//!   └ Book (book.rs)                                        who of this process holds and waits, lane by lane
//!       └ Service (service.rs)                              takes the news of all lanes to the store, round after round
//!           ├ Document (document.rs)                        a lane as the store keeps it, and what becomes of it: pure
//!           └ Store (store.rs)                              load, swap, lease, wake: PostgreSQL or Redis
//! ```

mod alarms;
mod answers;
mod book;
mod builder;
mod codec;
mod document;
mod enter;
mod handle;
mod lease;
mod look;
#[cfg(test)]
mod model;
mod name;
mod pass;
mod plan;
#[cfg(feature = "shared-postgres")]
mod postgres;
#[cfg(feature = "shared-redis")]
mod redis;
mod service;
mod store;

pub use builder::{GateBuilder, OnOutage, StartError};
pub use enter::Enter;
pub use handle::{Gate, KeyedGate};
pub use look::Look;
pub use pass::Pass;
pub use store::StoreError;
