//! What Flowgate's tests share.
//!
//! A clock moved by hand ([`FakeClock`]), a waker that counts ([`CountingWaker`]) with a way to poll once, and a counting
//! allocator ([`Memory`]). Nothing here is part of the product.

mod clock;
mod memory;
mod poll;

pub use clock::FakeClock;
pub use memory::{Allocator, Memory};
pub use poll::{CountingWaker, poll_once};
