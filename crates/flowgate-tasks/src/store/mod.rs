//! Where tasks wait: one seam, two stores.

mod seam;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use seam::*;
#[cfg(feature = "sqlite")]
pub use sqlite::Sqlite;
