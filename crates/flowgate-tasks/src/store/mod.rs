//! Where tasks wait: one seam, two stores.

#[cfg(feature = "postgres")]
mod postgres;
mod seam;

#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresOptions};
pub(crate) use seam::Place;
pub use seam::*;
