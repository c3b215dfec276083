//! Waiting for a moment.
//!
//! Owns the sleepers and their moments, on the clock that the gates use as well: one alarm for all, set only
//! while somebody sleeps. A test that moves the clock by hand moves both.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, LazyLock},
    task::{Context, Poll, Waker},
    time::Duration,
};

use flowgate_core::Tick;

use crate::{
    clock::{Alarm, Clock, Time},
    gate::wake,
    sync::{Mutex, lock},
};

/// The sleepers of one clock.
pub(crate) struct Timers {
    time: Time,
    sleepers: Mutex<Sleepers>,
}

#[derive(Default)]
struct Sleepers {
    /// By moment, then by arrival.
    by_time: BTreeMap<(Tick, u64), Waker>,
    arrivals: u64,
}

impl Timers {
    /// Those of the system's clock, or of another one. Alarms are rung for as long as the process lives, so what they ring
    /// does: one for the system, and one for each other clock, of which there are as many as there are tests.
    pub(crate) fn of(clock: Option<Arc<dyn Clock>>) -> &'static Self {
        static SYSTEM: LazyLock<Timers> = LazyLock::new(|| Timers::new(Time::system()));
        match clock {
            None => &SYSTEM,
            Some(clock) => Box::leak(Box::new(Timers::new(Time::Given(clock)))),
        }
    }

    fn new(time: Time) -> Self {
        Timers { time, sleepers: Mutex::default() }
    }

    pub(crate) fn now(&self) -> Tick {
        self.time.now()
    }

    pub(crate) fn sleep(&'static self, span: Duration) -> Sleep {
        self.sleep_until(self.now().after(span))
    }

    pub(crate) fn sleep_until(&'static self, at: Tick) -> Sleep {
        Sleep { timers: self, at, seat: None }
    }

    /// How many sleep.
    pub(crate) fn len(&self) -> usize {
        lock(&self.sleepers).by_time.len()
    }
}

impl Alarm for Timers {
    fn ring(&'static self) {
        let now = self.now();
        let mut sleepers = lock(&self.sleepers);
        // What lies after this moment stays.
        let later = sleepers.by_time.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut sleepers.by_time, later);
        let next = sleepers.by_time.first_key_value().map(|(&(at, _), _)| at);
        drop(sleepers);
        if let Some(at) = next {
            self.time.wake_at(at, self);
        }
        due.into_values().for_each(wake);
    }
}

/// Ready at a moment, or soon after.
///
/// Cancel safety: dropped, nobody is woken.
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Sleep {
    timers: &'static Timers,
    at: Tick,
    seat: Option<u64>,
}

impl Sleep {
    fn leave(&mut self) {
        if let Some(seat) = self.seat.take() {
            let _waker = lock(&self.timers.sleepers).by_time.remove(&(self.at, seat));
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.timers.now() >= self.at {
            self.leave();
            return Poll::Ready(());
        }
        let mut sleepers = lock(&self.timers.sleepers);
        let seat = self.seat.unwrap_or(sleepers.arrivals);
        sleepers.arrivals += u64::from(self.seat.is_none());
        let before = sleepers.by_time.insert((self.at, seat), cx.waker().clone());
        drop(sleepers);
        drop(before);
        self.seat = Some(seat);
        self.timers.time.wake_at(self.at, self.timers);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.leave();
    }
}
