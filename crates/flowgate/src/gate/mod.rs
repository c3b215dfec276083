//! Gates in the process: bounded, fair, keyed, live.
//!
//! Build a [`Gate`], or one with keys ([`KeyedGate`]), and ask it for a [`Pass`]: the slot is taken for as long as the pass lives.
//! Who gets none has a [`Refusal`](crate::Refusal) that says why. [`Gate::look`] has the figures of this moment, a [`Listener`] or
//! a [`Subscription`] hears what happens.
//!
//! For readers of the code: `handle` is what users hold; `engine` finds the desk; `desk` is the lock with the `express` lane
//! beside it; `state` is what happens under the lock (`timing` because time passes, `control` because an operator says
//! so, `reentry` because work would wait for itself), and `brisk` the short way through it; `lanes` (with its `table`) and `line` keep the lanes and who waits; `pass` and
//! `enter` are the two ends of an entry. Who may start is decided in `flowgate-core` only.

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
#[cfg(any(feature = "http", feature = "route"))]
pub(crate) use holding::name as holder_name;
pub use look::{Allowance, LaneLook, Look, Phase, Refusals};
pub use pass::{Pass, Scoped, Standing};
pub(crate) use wakes::wake;

pub use flowgate_core::{Event, Ident, What};
