//! Why something waits.
//!
//! [`explain`] asks a store and gives an [`Explanation`]: the limit that holds a task, who holds it, the place in line, when it
//! should start, and what would help. Every surface shows the same one.

mod answer;
mod ask;
mod estimate;
mod subject;
mod words;

pub use answer::{Explanation, Fact, Limit, Running, Serving, Spot};
pub use ask::explain;
pub use estimate::Estimate;
pub use subject::Subject;
