//! Which processor a worker stays on.
//!
//! Where there is one worker for each processor, each has its own, for as long as that pays. Left to itself
//! the system wakes a worker where its client ran last, so both workers of a small machine often queue for
//! one processor while the other has time. But a worker that cannot move waits behind other programs there; a
//! worker that has to wait long is let go for a while.

#[cfg(target_os = "linux")]
use std::fs;
use std::{
    cell::Cell,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Ticks from one look at how long it waits to the next.
const LOOK: u32 = 2;
/// Ticks for which one is let go: a minute, so that looking whether it pays again costs next to nothing.
const AWAY: u32 = 1_200;
/// To wait so long each time it is to run is long. Where others have as much to do on the same processor it is a tenth of that.
const LONG: Duration = Duration::from_millis(1);
/// And so much from one look to the next is worth to be looked at: one that hardly ever runs may wait a little.
const MUCH: Duration = Duration::from_millis(10);

/// The processor of a worker; `None` is all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Core(Option<usize>);

/// A worker's thread where it is kept.
#[derive(Debug)]
pub(super) struct Post {
    core: Core,
    /// Where it may be when it is let go.
    anywhere: Vec<usize>,
    waits: Cell<Waits>,
    /// Until the next look; while it is let go, until it is kept again.
    ticks: Cell<u32>,
    is_away: Cell<bool>,
}

/// How often a thread was to run, and how long it waited for that in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Waits {
    time: Duration,
    times: u64,
}

impl Core {
    /// The processors of so many workers. Where there are more or fewer of them than of those, nobody has one of its own.
    pub(super) fn of(workers: usize, is_pinned: bool) -> Vec<Self> {
        let ours = if is_pinned { allowed() } else { Vec::new() };
        if ours.len() != workers {
            return vec![Core(None); workers];
        }
        // The first worker has the first connection. Where several gateways have few each, they are not to meet at one processor.
        let chance = usize::try_from(RandomState::new().hash_one(workers) >> 32).unwrap_or_default();
        dealt(ours, chance).into_iter().map(|core| Core(Some(core))).collect()
    }

    /// Keeps the thread that calls there, where the system tells how long it waits.
    pub(super) fn keep(self) -> Post {
        let waits = Waits::read();
        let core = if waits.is_some() { self } else { Core(None) };
        let anywhere = allowed();
        core.take();
        let (waits, ticks, is_away) =
            (Cell::new(waits.unwrap_or_default()), Cell::new(LOOK), Cell::new(false));
        Post { core, anywhere, waits, ticks, is_away }
    }

    fn take(self) {
        if let Core(Some(core)) = self {
            stay_on(&[core]);
        }
    }
}

impl Post {
    /// What lets the thread that calls run anywhere: one that a kept thread starts would be kept as well.
    pub(super) fn release(&self) -> impl Fn() + Send + Sync + use<> {
        let anywhere = self.anywhere.clone();
        move || stay_on(&anywhere)
    }

    /// A tick has passed: lets the thread go if it waits too long here, or takes it back.
    pub(super) fn tick(&self) {
        if self.core == Core(None) {
            return;
        }
        let left = self.ticks.get() - 1;
        self.ticks.set(left);
        if left == 0 {
            self.look(Waits::read().unwrap_or_default());
        }
    }

    fn look(&self, waits: Waits) {
        let before = self.waits.replace(waits);
        let is_away = !self.is_away.get() && waits.are_long_since(before);
        if is_away {
            stay_on(&self.anywhere);
        } else if self.is_away.get() {
            self.core.take();
        }
        self.is_away.set(is_away);
        self.ticks.set(if is_away { AWAY } else { LOOK });
    }
}

impl Waits {
    /// Those of this thread, since it began; `None` where nobody tells.
    #[cfg(target_os = "linux")]
    fn read() -> Option<Self> {
        Waits::parse(&fs::read_to_string("/proc/thread-self/schedstat").ok()?)
    }

    #[cfg(not(target_os = "linux"))]
    fn read() -> Option<Self> {
        None
    }

    /// For how many nanoseconds it ran, for how many it waited, and how often it ran.
    #[cfg(any(target_os = "linux", test))]
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map(str::parse);
        let [_, time, times] = [numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?];
        // It has run, or nobody could ask: where that is not counted, all are zero.
        (times > 0).then(|| Waits { time: Duration::from_nanos(time), times })
    }

    fn are_long_since(self, before: Waits) -> bool {
        let times = u32::try_from(self.times.saturating_sub(before.times)).unwrap_or(u32::MAX);
        times > 0 && self.time.saturating_sub(before.time) >= LONG.saturating_mul(times).max(MUCH)
    }
}

/// The same in the same order, but for who is first.
fn dealt(mut cores: Vec<usize>, first: usize) -> Vec<usize> {
    let first = first.checked_rem(cores.len()).unwrap_or_default();
    cores.rotate_left(first);
    cores
}

/// Lets the thread that calls run on these processors. It is a matter of how fast it serves, not of whether.
#[cfg(target_os = "linux")]
fn stay_on(cores: &[usize]) {
    let mut set = CpuSet::new();
    cores.iter().for_each(|&core| set.set(core));
    let _ = sched_setaffinity(None, &set);
}

/// Other systems have no such order.
#[cfg(not(target_os = "linux"))]
fn stay_on(_: &[usize]) {}

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
        let mut seen: Vec<_> = seen.collect();
        seen.sort();
        assert_eq!(seen, ours.iter().map(|&core| vec![core]).collect::<Vec<_>>());
        assert_eq!(allowed(), ours, "others stay where they were");
    }

    #[test]
    fn any_of_the_processors_may_be_the_first_ones() {
        // Seen to fail: with the first processor for the first worker, whatever chance says.
        let dealt = |first| dealt(vec![2, 3, 7], first);
        assert_eq!(dealt(0), [2, 3, 7]);
        assert_eq!(dealt(2), [7, 2, 3]);
        assert_eq!(dealt(usize::MAX), dealt(usize::MAX % 3));
        assert!(super::dealt(Vec::new(), 5).is_empty());
    }

    #[test]
    fn one_that_waits_long_is_let_go_for_a_while() {
        // Seen to fail: with the time compared with `MUCH` alone; with nobody taken back.
        let waited = |millis, times| Waits { time: Duration::from_millis(millis), times };
        let seen = thread::spawn(move || {
            let ours = allowed();
            let post = Core(Some(ours[0])).keep();
            let look = |waits| {
                post.look(waits);
                (allowed(), post.ticks.get())
            };
            post.waits.set(waited(100, 10));
            let (kept, away) = ((vec![ours[0]], LOOK), (ours, AWAY));
            assert_eq!(look(waited(100, 10)), kept, "it did not run");
            assert_eq!(look(waited(1_099, 1_010)), kept, "it waited little, and often");
            assert_eq!(look(waited(1_108, 1_011)), kept, "once, and not for long");
            assert_eq!(look(waited(1_208, 1_111)), away);
            assert_eq!(look(waited(9_208, 1_112)), kept, "and is taken back whatever was meanwhile");
            assert_eq!(look(waited(9_307, 1_212)), kept);
            assert_eq!(look(waited(9_400, 1_213)), away);
        });
        seen.join().expect("it does not panic");
    }

    #[test]
    fn what_the_system_tells_of_waits_is_read() {
        // Seen to fail: with the first number taken for the wait.
        assert_eq!(
            Waits::parse("3000 2000 7\n"),
            Some(Waits { time: Duration::from_nanos(2_000), times: 7 })
        );
        for text in ["", "3000 2000", "a b c", "0 0 0\n"] {
            assert_eq!(Waits::parse(text), None, "{text:?}");
        }
        assert!(Waits::read().is_some(), "here it is told");
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
