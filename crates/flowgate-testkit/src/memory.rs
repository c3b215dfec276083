//! How much memory is allocated.
//!
//! Owns the counting allocator of tests and benchmarks that bound memory. Put it in place with
//! `#[global_allocator] static ALLOCATOR: Allocator = Memory::COUNTED;`.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

/// The system's allocator, counting.
pub type Allocator = &'static StatsAlloc<System>;

/// What is allocated at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes that are allocated and not freed.
    pub bytes: usize,
    /// How often something was allocated so far.
    pub allocations: usize,
}

impl Memory {
    /// The allocator to put in place.
    pub const COUNTED: Allocator = &INSTRUMENTED_SYSTEM;

    /// What is allocated now, in the whole process.
    pub fn now() -> Self {
        let stats = INSTRUMENTED_SYSTEM.stats();
        let bytes = stats.bytes_allocated.saturating_sub(stats.bytes_deallocated);
        Memory { bytes, allocations: stats.allocations + stats.reallocations }
    }
}
