//! Which processor a worker stays on.
//!
//! Where there is one worker for each processor, each has its own. Left to itself the system wakes a worker where its client
//! ran last, so both workers of a small machine often queue for one processor while the other has time.

#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processor of a worker; `None` is all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Core(Option<usize>);

impl Core {
    /// The processors of so many workers. Where there are more or fewer of them than of those, nobody has one of its own.
    pub(super) fn of(workers: usize, is_pinned: bool) -> Vec<Self> {
        let ours = if is_pinned { allowed() } else { Vec::new() };
        if ours.len() != workers {
            return vec![Core(None); workers];
        }
        ours.into_iter().map(|core| Core(Some(core))).collect()
    }

    /// Keeps the thread that calls there.
    #[cfg(target_os = "linux")]
    pub(super) fn keep(self) {
        if let Core(Some(core)) = self {
            let mut only = CpuSet::new();
            only.set(core);
            // It is a matter of how fast it serves, not of whether.
            let _ = sched_setaffinity(None, &only);
        }
    }

    /// Other systems have no such order.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn keep(self) {}
}

/// The processors this process may run on.
#[cfg(target_os = "linux")]
fn allowed() -> Vec<usize> {
    let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect()
}

#[cfg(not(target_os = "linux"))]
fn allowed() -> Vec<usize> {
    Vec::new()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn each_worker_has_a_processor_of_its_own_if_there_are_as_many() {
        // Seen to fail: with the first processor for all of them; with `keep` doing nothing.
        let ours = allowed();
        let cores = Core::of(ours.len(), true);
        let seen = cores.iter().map(|&core| {
            let seen = thread::spawn(move || {
                core.keep();
                allowed()
            });
            seen.join().expect("it does not panic")
        });
        assert_eq!(seen.collect::<Vec<_>>(), ours.iter().map(|&core| vec![core]).collect::<Vec<_>>());
        assert_eq!(allowed(), ours, "others stay where they were");
    }

    #[test]
    fn nobody_is_kept_anywhere_where_that_would_leave_processors_idle_or_crowded() {
        // Seen to fail: with the processors dealt out in turn.
        let ours = allowed().len();
        for workers in [ours + 1, 2 * ours] {
            assert_eq!(Core::of(workers, true), vec![Core(None); workers]);
        }
        assert_eq!(Core::of(ours, false), vec![Core(None); ours]);
    }
}
