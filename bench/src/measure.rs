//! How things are timed.
//!
//! Owns the rounds: how long one is, how many loops that takes, and that ours and the peer run in turn, so that a
//! machine that slows down slows both. A subject is a function that runs so many loops and says how long they took; what
//! it needs is set up outside of it.

use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

/// How much measuring is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// How often each side runs; figures are medians of them.
    pub(crate) rounds: usize,
    /// How long a side runs in each.
    pub(crate) round: Duration,
}

impl Plan {
    pub(crate) const FULL: Plan = Plan { rounds: 9, round: Duration::from_millis(100) };
    pub(crate) const QUICK: Plan = Plan { rounds: 3, round: Duration::from_millis(10) };

    /// The same with rounds so many times as long, for subjects that take a while to settle.
    pub(crate) fn longer(self, times: u32) -> Plan {
        Plan { round: self.round * times, ..self }
    }

    /// The same with no more rounds than these, for subjects that take long.
    pub(crate) fn at_most(self, rounds: usize) -> Plan {
        Plan { rounds: self.rounds.min(rounds), ..self }
    }
}

/// Runs so many loops and says how long they took.
pub(crate) type Subject<'a> = &'a mut dyn FnMut(u64) -> Duration;

/// The median time of one loop of each subject, in nanoseconds.
pub(crate) fn contest<const N: usize>(plan: Plan, mut subjects: [Subject<'_>; N]) -> [f64; N] {
    let mut loops = [0; N];
    for (loops, subject) in loops.iter_mut().zip(&mut subjects) {
        *loops = calibrate(plan.round, subject);
    }
    in_turn(plan.rounds, |index| subjects[index](loops[index]).as_nanos() as f64 / loops[index] as f64)
}

/// The medians of what `measure` says of each of `N` subjects: all of them in each round, and in turn each one first.
pub(crate) fn in_turn<const N: usize>(rounds: usize, mut measure: impl FnMut(usize) -> f64) -> [f64; N] {
    let mut seen: [Vec<f64>; N] = std::array::from_fn(|_| Vec::with_capacity(rounds));
    for round in 0..rounds {
        for turn in 0..N {
            let index = (round + turn) % N;
            seen[index].push(measure(index));
        }
    }
    seen.map(median)
}

/// How many loops take about as long as a round. Warms the subject up as well.
fn calibrate(round: Duration, subject: Subject<'_>) -> u64 {
    let mut loops = 64;
    loop {
        // The shortest of three: one interruption must not make the rounds short.
        let took = subject(loops).min(subject(loops)).min(subject(loops));
        if took * 8 >= round {
            return ((loops as f64 * round.as_secs_f64() / took.as_secs_f64()) as u64).max(1);
        }
        loops *= 2;
    }
}

/// The one in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        even if even % 2 == 0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

/// Times so many calls.
#[inline]
pub(crate) fn calls(loops: u64, mut call: impl FnMut()) -> Duration {
    let start = Instant::now();
    for _ in 0..loops {
        call();
    }
    start.elapsed()
}

/// Times so many runs of a body that awaits, in one task of the runtime. A macro, so that the body is a part of that
/// task and not one more future inside of it.
macro_rules! awaits {
    ($runtime:expr, $loops:expr, $body:block) => {
        $runtime.block_on(async {
            let start = std::time::Instant::now();
            for _ in 0..$loops {
                $body
            }
            start.elapsed()
        })
    };
}
pub(crate) use awaits;

/// A runtime of one thread.
pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime of one thread needs nothing")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Plan, contest, in_turn, median};

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn sides_run_in_turn_and_each_comes_first() {
        let mut order = Vec::new();
        let medians = in_turn::<2>(3, |index| {
            order.push(index);
            index as f64
        });
        assert_eq!(order, [0, 1, 1, 0, 0, 1]);
        assert_eq!(medians, [0.0, 1.0]);
    }

    #[test]
    fn loops_fill_a_round() {
        let plan = Plan { rounds: 3, round: Duration::from_millis(1) };
        let mut last = 0;
        let [slow, fast] = contest(
            plan,
            [&mut |loops| Duration::from_nanos(100 * loops), &mut |loops| {
                last = loops;
                Duration::from_nanos(10 * loops)
            }],
        );
        assert_eq!((slow, fast, last), (100.0, 10.0, 100_000));
    }
}
