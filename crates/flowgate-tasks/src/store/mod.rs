//! Where tasks wait: one seam, two stores.

mod pins;
#[cfg(feature = "postgres")]
mod postgres;
mod runs;
mod seam;
mod shelf;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use pins::Half;
#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresOptions};
pub use runs::{NewStep, Run, RunChange, RunOutcome, RunQuery, RunState, RunStep, RunWrite};
pub(crate) use seam::Place;
pub use seam::*;
pub use shelf::{
    Census, Document, KeyPage, KeyQuery, KeySort, KeySpent, MOST_COUNTED, NewNote, Note, NoteQuery, Shelf,
};
#[cfg(feature = "sqlite")]
pub use sqlite::Sqlite;
