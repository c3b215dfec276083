//! Time as the processor spent it.
//!
//! Owns the clock for tests of growth: what a thread has run, whatever else the machine was doing meanwhile.

use std::{
    fs,
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

/// How long this thread has run so far. Where the system does not tell (it does on Linux), how long the process has lived.
pub fn cpu_time() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    // The system adds up what a thread has run when the thread gives way, or else at its own ticks, some milliseconds apart.
    thread::yield_now();
    let told = fs::read_to_string("/proc/thread-self/schedstat");
    let run = told.ok().and_then(|text| text.split_whitespace().next()?.parse().ok());
    run.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen to fail: without giving way first, as nothing is added up between two ticks of the system.
    #[test]
    fn little_work_is_seen() {
        let steps = (0..100).map(|_| {
            let start = cpu_time();
            let busy = Instant::now();
            while busy.elapsed() < Duration::from_micros(100) {}
            cpu_time() - start
        });
        assert!(steps.filter(|step| !step.is_zero()).count() > 90);
    }
}
