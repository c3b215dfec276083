//! The clock of gates and routes.
//!
//! Owns the [`Clock`] seam, the system's clock behind it, and the one thread that rings alarms when they are
//! due. A gate holds at most one alarm for each desk, set only while something is due there, so a fast entry
//! touches no timer. It works under any async runtime, and under none. The other clocks of this crate are
//! files of the same name in the rooms that have a time of their own.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError},
    thread,
};

use flowgate_core::Tick;

/// A source of time and alarms. Implement it to move time by hand in tests.
pub trait Clock: Send + Sync + 'static {
    /// Returns the time now. It must never go back, and must never be [`Tick::ZERO`], which means that no time was
    /// taken.
    fn now(&self) -> Tick;

    /// Rings `alarm` once, soon after `at`, without holding a lock that `now` or `wake_at` take. If the alarm is set
    /// already, the earlier of the two moments counts.
    ///
    /// If it panics at a gate, that gate sets the alarm with its next step.
    fn wake_at(&self, at: Tick, alarm: &'static dyn Alarm);
}

/// Something that a [`Clock`] rings.
pub trait Alarm: Send + Sync {
    /// Called when the moment has come.
    fn ring(&'static self);
}

/// The clock a gate was built with.
pub(crate) enum Time {
    System(SystemClock),
    Given(Arc<dyn Clock>),
}

impl Time {
    pub(crate) fn system() -> Self {
        Time::System(SystemClock::default())
    }

    #[inline]
    pub(crate) fn now(&self) -> Tick {
        match self {
            Time::System(clock) => clock.now(),
            Time::Given(clock) => clock.now(),
        }
    }

    /// Says whether there is anybody to ring it: see [`Ringer::set`].
    pub(crate) fn wake_at(&self, at: Tick, alarm: &'static dyn Alarm) -> bool {
        match self {
            Time::System(_) => RINGER.set(at, alarm, Ringer::start),
            Time::Given(clock) => {
                clock.wake_at(at, alarm);
                true
            }
        }
    }
}

/// The system's monotonic clock. It reads the processor's counter if that is steady.
#[derive(Clone)]
pub struct SystemClock {
    clock: quanta::Clock,
    origin: u64,
}

impl std::fmt::Debug for SystemClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SystemClock").finish_non_exhaustive()
    }
}

static ORIGIN: LazyLock<(quanta::Clock, u64)> = LazyLock::new(|| {
    let clock = quanta::Clock::new();
    let origin = clock.raw();
    (clock, origin)
});

impl Default for SystemClock {
    fn default() -> Self {
        let (clock, origin) = &*ORIGIN;
        SystemClock { clock: clock.clone(), origin: *origin }
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Tick {
        Tick::from_nanos(self.clock.delta_as_nanos(self.origin, self.clock.raw()))
    }

    /// Where the process may not start one thread more, the alarm is set, and rings once another could start it.
    fn wake_at(&self, at: Tick, alarm: &'static dyn Alarm) {
        RINGER.set(at, alarm, Ringer::start);
    }
}

static RINGER: LazyLock<Ringer> = LazyLock::new(Ringer::default);

/// Rings alarms from a thread of its own, started with the first alarm of the process.
#[derive(Default)]
struct Ringer {
    alarms: Mutex<Alarms>,
    sooner: Condvar,
}

/// The alarms that are set: one entry each, by address.
#[derive(Default)]
struct Alarms {
    by_time: BTreeSet<(Tick, usize)>,
    by_alarm: HashMap<usize, (Tick, &'static dyn Alarm)>,
    /// Whether the thread that rings them has been started.
    has_thread: bool,
}

impl Ringer {
    fn start(&'static self) -> io::Result<()> {
        thread::Builder::new().name("flowgate-clock".to_owned()).spawn(|| self.run()).map(drop)
    }

    /// Sets an alarm, and says whether there is a thread to ring it. A process at its limit of threads may not `start`
    /// one; then all alarms stay set, and whoever sets the next tries again.
    fn set(
        &'static self,
        at: Tick,
        alarm: &'static dyn Alarm,
        start: impl FnOnce(&'static Self) -> io::Result<()>,
    ) -> bool {
        let mut alarms = self.lock();
        let soonest = alarms.soonest();
        alarms.set(at, alarm);
        if at < soonest {
            self.sooner.notify_one();
        }
        if !alarms.has_thread {
            alarms.has_thread = start(self).is_ok();
        }
        alarms.has_thread
    }

    fn run(&self) {
        let clock = SystemClock::default();
        let mut alarms = self.lock();
        loop {
            let now = clock.now();
            if let Some(alarm) = alarms.take_due(now) {
                drop(alarms);
                // A waker of the user's that panics must not end every other deadline of the process; its panic has
                // been reported by the panic hook.
                let _ = catch_unwind(AssertUnwindSafe(|| alarm.ring()));
                alarms = self.lock();
                continue;
            }
            let soonest = alarms.soonest();
            alarms = if soonest == Tick::NEVER {
                self.sooner.wait(alarms).unwrap_or_else(PoisonError::into_inner)
            } else {
                let wait = soonest.since(now);
                self.sooner.wait_timeout(alarms, wait).unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Alarms> {
        self.alarms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Alarms {
    fn soonest(&self) -> Tick {
        self.by_time.first().map_or(Tick::NEVER, |&(at, _)| at)
    }

    fn set(&mut self, at: Tick, alarm: &'static dyn Alarm) {
        let address = std::ptr::from_ref(alarm).cast::<()>().addr();
        match self.by_alarm.get(&address) {
            Some(&(earlier, _)) if earlier <= at => return,
            Some(&(later, _)) => {
                self.by_time.remove(&(later, address));
            }
            None => {}
        }
        self.by_alarm.insert(address, (at, alarm));
        self.by_time.insert((at, address));
    }

    fn take_due(&mut self, now: Tick) -> Option<&'static dyn Alarm> {
        let &(at, address) = self.by_time.first().filter(|&&(at, _)| at <= now)?;
        self.by_time.remove(&(at, address));
        self.by_alarm.remove(&address).map(|(_, alarm)| alarm)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    struct Bell(mpsc::Sender<()>);

    impl Alarm for Bell {
        fn ring(&'static self) {
            self.0.send(()).expect("the test listens");
        }
    }

    #[test]
    fn g3_what_no_thread_could_ring_rings_once_one_could_be_started() {
        // Seen to fail: with `has_thread` true whatever came of the start, nobody tries again and nobody ever rings.
        let ringer: &'static Ringer = Box::leak(Box::default());
        let (rings, rung) = mpsc::channel();
        let bells = [(); 2].map(|()| &*Box::leak(Box::new(Bell(rings.clone()))));
        let at_its_limit = |_: &'static Ringer| Err(io::ErrorKind::WouldBlock.into());
        assert!(!ringer.set(Tick::ZERO, bells[0], at_its_limit));
        assert!(ringer.set(Tick::ZERO, bells[1], Ringer::start));
        bells.iter().for_each(|_| rung.recv().expect("both ring"));
        assert!(ringer.set(Tick::NEVER, bells[0], |_| unreachable!("one thread is enough")));
    }
}
