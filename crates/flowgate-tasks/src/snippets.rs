//! The guide to tasks as a doc test: what it shows compiles, runs, and says what it says it says.

#[cfg(feature = "sqlite")]
#[doc = include_str!("../../../docs/guide/tasks.md")]
struct GuideTasks;
