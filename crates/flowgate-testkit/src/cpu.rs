//! Time as the processor spent it.
//!
//! Owns the clock for tests of growth: what a thread has run, whatever else the machine was doing meanwhile.

use std::{
    fs,
    sync::LazyLock,
    time::{Duration, Instant},
};

/// How long this thread has run so far. Where the system does not tell (it does on Linux), how long the process has lived.
pub fn cpu_time() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let told = fs::read_to_string("/proc/thread-self/schedstat");
    let run = told.ok().and_then(|text| text.split_whitespace().next()?.parse().ok());
    run.map_or_else(|| START.elapsed(), Duration::from_nanos)
}
