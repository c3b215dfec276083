//! What Flowgate's tests share.
//!
//! A clock moved by hand ([`FakeClock`]), a future polled by hand ([`Driven`]), a counting allocator
//! ([`Memory`]), a PostgreSQL of one's own ([`postgres`]), a Redis ([`Redis`]), a port for a server
//! ([`free_port`]), and scripts of other languages ([`scripts`]). Nothing here is part of the product.

mod clock;
mod cpu;
#[cfg(not(loom))]
mod look;
mod memory;
mod poll;
mod port;
pub mod postgres;
mod redis;
pub mod scripts;

pub use clock::{FakeClock, LateClock};
pub use cpu::cpu_time;
#[cfg(not(loom))]
pub use look::between_looks;
pub use memory::{Allocator, Memory};
pub use poll::{Driven, asking};
pub use port::free_port;
pub use redis::Redis;
