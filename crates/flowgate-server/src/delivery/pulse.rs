//! Whether this process has more to do than it can.
//!
//! Owns the measure: the part of a moment for which the runtime's threads were busy. It is looked at only by
//! one who would open yet another connection, and not more than once in a moment.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::clock::Stopwatch;

/// How long a moment is at least.
const MOMENT: Duration = Duration::from_millis(5);

/// What was seen at the last look.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    last: Option<Look>,
    is_busy: bool,
}

#[derive(Debug)]
struct Look {
    at: Stopwatch,
    /// Of all threads together, since they began.
    busy: Duration,
}

impl Pulse {
    /// Whether the threads of this runtime had hardly a pause between the last two looks.
    pub(super) fn is_busy(&mut self) -> bool {
        let elapsed = self.last.as_ref().map(|last| last.at.elapsed());
        if elapsed.is_some_and(|elapsed| elapsed < MOMENT) {
            return self.is_busy;
        }
        let metrics = Handle::current().metrics();
        let threads = metrics.num_workers();
        let busy = (0..threads).map(|thread| metrics.worker_total_busy_duration(thread)).sum::<Duration>();
        let last = self.last.replace(Look { at: Stopwatch::start(), busy });
        self.is_busy = last.zip(elapsed).is_some_and(|(last, elapsed)| {
            is_hardly_a_pause(busy.saturating_sub(last.busy), elapsed * threads as u32)
        });
        self.is_busy
    }
}

/// Nine tenths of the time.
fn is_hardly_a_pause(busy: Duration, of: Duration) -> bool {
    busy * 10 >= of * 9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_is_busy_that_has_hardly_a_pause() {
        // Seen to fail: with a half for nine tenths.
        let millis = Duration::from_millis;
        assert!(is_hardly_a_pause(millis(10), millis(10)));
        assert!(is_hardly_a_pause(millis(9), millis(10)));
        assert!(!is_hardly_a_pause(millis(8), millis(10)));
        assert!(!is_hardly_a_pause(Duration::ZERO, millis(10)));
    }
}
