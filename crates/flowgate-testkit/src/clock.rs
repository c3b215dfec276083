//! Clocks that stand still until they are moved.
//!
//! Owns time in tests. Moving a [`FakeClock`] rings every alarm that falls due on the way, in order, each at its own moment; a
//! [`LateClock`] rings them when it is told to.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use flowgate::{
    Tick,
    clock::{Alarm, Clock},
};

/// A clock moved by hand.
#[derive(Default)]
pub struct FakeClock {
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    now: Tick,
    /// By moment, then by alarm: one entry per alarm.
    alarms: BTreeMap<(Tick, usize), &'static dyn Alarm>,
}

impl FakeClock {
    /// A clock at a moment other than the origin, as real ones are.
    pub fn new() -> Arc<Self> {
        let clock = Arc::new(FakeClock::default());
        clock.lock().now = Tick::ZERO.after(Duration::from_secs(1000));
        clock
    }

    /// Moves on by `span`, ringing on the way.
    pub fn advance(&self, span: Duration) {
        let goal = self.now().after(span);
        loop {
            let mut inside = self.lock();
            let due = inside.alarms.first_key_value().map(|(&at, _)| at).filter(|&(at, _)| at <= goal);
            let Some(due) = due else {
                inside.now = goal;
                return;
            };
            inside.now = inside.now.max(due.0);
            let alarm = inside.alarms.remove(&due);
            drop(inside);
            if let Some(alarm) = alarm {
                alarm.ring();
            }
        }
    }

    /// When the next alarm rings, if one is set.
    pub fn next_alarm(&self) -> Option<Tick> {
        self.lock().alarms.first_key_value().map(|(&(at, _), _)| at)
    }

    /// How many alarms are set.
    pub fn alarms(&self) -> usize {
        self.lock().alarms.len()
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().expect("no panic under the clock's lock")
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Tick {
        self.lock().now
    }

    fn wake_at(&self, at: Tick, alarm: &'static dyn Alarm) {
        let address = std::ptr::from_ref(alarm).cast::<()>().addr();
        let mut inside = self.lock();
        match inside.alarms.keys().find(|&&(_, known)| known == address) {
            Some(&(earlier, _)) if earlier <= at => return,
            Some(&later) => {
                inside.alarms.remove(&later);
            }
            None => {}
        }
        inside.alarms.insert((at, address), alarm);
    }
}

/// A clock that is moved first, and rings what was due on the way only when it is told to: as on a busy machine.
#[derive(Default)]
pub struct LateClock {
    now: Mutex<Tick>,
    alarms: Mutex<Vec<(Tick, &'static dyn Alarm)>>,
}

impl LateClock {
    /// Moves on, silently.
    pub fn jump(&self, millis: u64) {
        let now = self.now().after(Duration::from_millis(millis));
        *self.now.lock().expect("no panic under the clock's lock") = now;
    }

    /// Rings all that is due by now.
    pub fn ring(&self) {
        let now = self.now();
        let mut alarms = self.alarms.lock().expect("no panic under the clock's lock");
        let due: Vec<_> = alarms.extract_if(.., |&mut (at, _)| at <= now).collect();
        drop(alarms);
        due.into_iter().for_each(|(_, alarm)| alarm.ring());
    }
}

impl Clock for LateClock {
    fn now(&self) -> Tick {
        *self.now.lock().expect("no panic under the clock's lock")
    }

    fn wake_at(&self, at: Tick, alarm: &'static dyn Alarm) {
        self.alarms.lock().expect("no panic under the clock's lock").push((at, alarm));
    }
}
