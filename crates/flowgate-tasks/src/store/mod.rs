//! Where tasks wait: one interface, two stores.
//!
//! `seam` says what a store must do, `seen` what a look into it tells, `shelf` and `runs` what a server needs in
//! addition to tasks. A store has no rules of its own: the crate's plan decides, inside the store's transaction.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod alike;
#[cfg_attr(
    not(feature = "postgres"),
    expect(dead_code, reason = "sends of the other store claim for nobody")
)]
mod offers;
mod pins;
#[cfg(feature = "postgres")]
mod postgres;
mod runs;
mod seam;
mod seen;
mod shelf;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "postgres")]
pub(crate) use offers::{Board, Taken};
pub use offers::{Offer, Offered};
pub use pins::Half;
#[cfg(feature = "postgres")]
pub use postgres::{Address, Postgres, PostgresOptions, Stream};
pub use runs::{NewStep, Run, RunChange, RunOutcome, RunQuery, RunState, RunStep, RunWrite};
pub use seam::*;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use seam::{CANCELLING, Leaving, MOST_IDLE, SOON};
pub(crate) use seam::{MOST_BYTES, Place};
pub use seen::{Elsewhere, Holder, KeyLook, Of, QueueLook, Standing, State, TaskLook, Under, WorkerLook};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use shelf::BEGINNING;
pub use shelf::{
    Among, Arrears, Census, Document, KeyPage, KeyQuery, KeySort, KeySpent, KindOf, MOST_COUNTED, NewNote,
    Note, NoteQuery, OLDEST_LOOKED_AT, Shelf,
};
#[cfg(feature = "sqlite")]
pub use sqlite::Sqlite;
