//! The options of a worker, checked once.

use std::time::Duration;

use flowgate_core::OptionError;

/// Claiming ahead of what can start (soft caps).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefetch {
    /// How many tasks at most, beyond those that run.
    pub buffer: u32,
    /// How long a task may wait here before another worker may have it. One is started in the first half of this only.
    pub lease: Duration,
}

/// How a worker works. The defaults: as many tasks at once as there are processors, and hard caps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerOptions {
    /// What people call it. Default: `worker`.
    pub name: String,
    /// How many tasks it runs at once. Default: the number of processors.
    pub processes: u32,
    /// The queues it serves. Empty, the default: all but [`SERVER_QUEUE`](crate::SERVER_QUEUE), whose tasks are a server's.
    pub queues: Vec<String>,
    /// How many tasks of one queue are claimed in one pass at most. 0, the default: no such bound.
    pub max_claim_batch: u32,
    /// How many tasks are claimed or running at most. 0, the default: `processes`, and what may be claimed
    /// ahead.
    pub max_claim_per_worker: u32,
    /// Whether tasks are claimed ahead. `None`, the default: caps are hard, and what is claimed runs at once.
    pub prefetch: Option<Prefetch>,
    /// How long the worker may be silent before its tasks are given to others. Default: 15 s.
    pub lease: Duration,
    /// How often it asks for work without being woken: a net, for wake-ups that got lost. Default: 1 s.
    pub poll: Duration,
    /// How long running tasks may go on when it is told to stop, a day at most. Default: 30 s.
    pub drain: Duration,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        WorkerOptions {
            name: "worker".to_owned(),
            processes: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
            queues: Vec::new(),
            max_claim_batch: 0,
            max_claim_per_worker: 0,
            prefetch: None,
            lease: Duration::from_secs(15),
            poll: Duration::from_secs(1),
            drain: Duration::from_secs(30),
        }
    }
}

impl WorkerOptions {
    /// The first option that cannot be.
    pub fn check(&self) -> Result<(), OptionError> {
        if !(1..=100_000).contains(&self.processes) {
            return Err(OptionError::new("processes", self.processes, "an integer from 1 to 100000"));
        }
        let short = Duration::from_millis(100);
        let long = Duration::from_secs(24 * 60 * 60);
        let ahead = self.prefetch.map(|prefetch| ("prefetch.lease", prefetch.lease));
        for (option, span) in [("lease", self.lease), ("poll", self.poll)].into_iter().chain(ahead) {
            if span < short || span > long {
                return Err(OptionError::new(
                    option,
                    format_args!("{span:?}"),
                    "a duration from 100 ms to one day",
                ));
            }
        }
        if self.drain > long {
            return Err(OptionError::new(
                "drain",
                format_args!("{:?}", self.drain),
                "a duration up to one day",
            ));
        }
        match self.prefetch {
            Some(Prefetch { buffer, .. }) if !(1..=100_000).contains(&buffer) => {
                Err(OptionError::new("prefetch.buffer", buffer, "an integer from 1 to 100000"))
            }
            _ => Ok(()),
        }
    }

    /// How many tasks it may hold.
    pub(super) fn most(&self) -> u32 {
        let all = self.processes.saturating_add(self.prefetch.map_or(0, |prefetch| prefetch.buffer));
        match self.max_claim_per_worker {
            0 => all,
            most => most.min(all),
        }
    }

    /// How many it may run at once.
    pub(super) fn slots(&self) -> u32 {
        self.processes.min(self.most())
    }

    /// How many it may claim of one queue in one pass.
    pub(super) fn per_queue(&self) -> u32 {
        if self.max_claim_batch == 0 { u32::MAX } else { self.max_claim_batch }
    }
}

impl std::fmt::Debug for super::Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t2_a_span_that_cannot_be_is_refused_before_the_worker_starts() {
        // Seen to fail: with `drain` not looked at, the longest was taken, and the worker panicked when it was told to stop.
        let day = Duration::from_secs(24 * 60 * 60);
        let refused = |options: WorkerOptions| options.check().err().map(|error| error.option());
        for (span, is_refused) in [(Duration::ZERO, false), (day, false), (Duration::MAX, true)] {
            let drain = refused(WorkerOptions { drain: span, ..WorkerOptions::default() });
            assert_eq!(drain, is_refused.then_some("drain"), "{span:?}");
        }
        for span in [Duration::ZERO, Duration::MAX] {
            let default = WorkerOptions::default;
            let prefetch = Some(Prefetch { buffer: 1, lease: span });
            assert_eq!(refused(WorkerOptions { lease: span, ..default() }), Some("lease"));
            assert_eq!(refused(WorkerOptions { poll: span, ..default() }), Some("poll"));
            assert_eq!(refused(WorkerOptions { prefetch, ..default() }), Some("prefetch.lease"));
        }
    }
}
