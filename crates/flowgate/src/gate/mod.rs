//! Gates in the process: bounded, fair, keyed, live.
//!
//! Build a [`Gate`], or one with keys ([`KeyedGate`]), and ask it for a [`Pass`]: the slot is taken for as
//! long as the pass lives. An entry that gets no pass gets a [`Refusal`](crate::Refusal), which says why.
//! [`Gate::look`] has the figures of this moment, and a [`Listener`] or a [`Subscription`] hears what
//! happens.
//!
//! For readers of the code, in reading order:
//!
//! - `handle`: what users hold, built by `builder`.
//! - `enter` and `pass`: the two ends of an entry. `full` is what a few passes carry beside their slot,
//!   `wait` what a waiter brings along, `seat` where it reads its fate.
//! - `engine`: finds the desk of a key, and turns its answer into passes, refusals and events (`bus`).
//! - `desk`: a lock, with the `express` lane beside it; `wakes` is what is done when the lock is gone.
//! - `state`: what happens under the lock. `brisk` is the short way through it, `timing` what happens because
//!   time passes (`due` has the moments), `control` what an operator does, `reentry` (with `holding`) work
//!   that would wait for itself, `backlogs` lines under CoDel.
//! - `lanes` (with its `table`) and `line`: the lanes, and the waiters. `slab` is their memory, `quota` how
//!   many lanes there may be.
//! - `look`, `meta`, `close`, `name`: figures, what desks share, draining, and the form of a key.
//!
//! Who may start is decided in `flowgate-core` only.

mod backlogs;
mod brisk;
mod builder;
mod bus;
mod close;
mod control;
mod desk;
mod due;
mod engine;
mod enter;
mod express;
mod full;
mod handle;
mod holding;
mod lanes;
mod line;
mod lone;
mod look;
mod meta;
mod name;
mod pass;
mod quota;
mod reentry;
mod seat;
mod slab;
mod state;
mod table;
mod timing;
mod wait;
mod wakes;

pub use crate::mailbox::Subscription;
pub use builder::GateBuilder;
pub use bus::{Listener, Notice};
pub use close::{Closing, Drained};
#[cfg(any(feature = "http", feature = "route"))]
pub(crate) use enter::Begun;
pub use enter::{Enter, OwnedEnter};
pub use handle::{EntryError, Gate, Keyed, KeyedGate, Single};
#[cfg(feature = "route")]
pub(crate) use holding::Guard;
#[cfg(feature = "http")]
pub(crate) use holding::name as holder_name;
pub use look::{Allowance, LaneLook, Look, Phase, Refusals};
#[cfg(feature = "route")]
pub(crate) use pass::Stub;
pub use pass::{Pass, Scoped, Standing};
pub(crate) use wakes::{discard, wake};

pub use flowgate_core::{Event, Ident, What};
