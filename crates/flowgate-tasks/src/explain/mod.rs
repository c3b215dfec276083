//! Why something waits.
//!
//! [`explain`] asks a store and gives an [`Explanation`]: the limit that holds a task, who holds its slots, the
//! place in line, when it should start, and what would help. Every interface shows the same explanation. A caller
//! that has a record of how long work took gives it to [`explain_with`], which bases the estimate on it.

mod answer;
mod ask;
mod estimate;
mod quoted;
mod subject;
mod times;
mod words;

pub use answer::{Explanation, Fact, Limit, Running, Serving, Spot};
pub use ask::{explain, explain_with};
pub use estimate::Estimate;
pub use quoted::quoted;
pub use subject::Subject;
pub use times::{Served, ServiceTimes};
pub use words::span;
