//! Where tasks wait: one seam, two stores.

mod seam;

pub use seam::*;
