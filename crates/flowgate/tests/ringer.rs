//! The system's clock and the one thread that rings: G3, where time is real. Nobody sleeps here: a test waits for what has to
//! happen, and gives up after a time in which it would have happened many times over.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    task::{Wake, Waker},
    time::Duration,
};

use flowgate::{
    Gate, Reason, Tick,
    clock::{Alarm, Clock, SystemClock},
};
use flowgate_testkit::Driven;

/// As good as never: nothing here lasts so long.
const LATE: Duration = Duration::from_secs(3600);
/// When a test gives up.
const PATIENCE: Duration = Duration::from_secs(20);

/// An alarm that tells when it rang; as a waker, the same.
struct Bell {
    clock: SystemClock,
    rung: Mutex<Sender<Tick>>,
}

impl Bell {
    fn new() -> (Self, Receiver<Tick>) {
        let (rung, heard) = channel();
        (Bell { clock: SystemClock::default(), rung: Mutex::new(rung) }, heard)
    }

    /// Alarms are for ever.
    fn leaked() -> (&'static Self, Receiver<Tick>) {
        let (bell, heard) = Bell::new();
        (Box::leak(Box::new(bell)), heard)
    }

    fn tell(&self) {
        self.rung.lock().unwrap().send(self.clock.now()).unwrap();
    }
}

impl Alarm for Bell {
    fn ring(&'static self) {
        self.tell();
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.tell();
    }
}

#[track_caller]
fn heard(heard: &Receiver<Tick>) -> Tick {
    heard.recv_timeout(PATIENCE).expect("it was to ring, and did not")
}

#[test]
fn g3_an_alarm_set_for_sooner_rings_before_those_set_for_later() {
    // Seen to fail: without `notify_one` in `Ringer::set`, the thread goes on waiting for the later one.
    let clock = SystemClock::default();
    let (later, heard_later) = Bell::leaked();
    let (sooner, heard_sooner) = Bell::leaked();
    clock.wake_at(clock.now().after(LATE), later);
    // Again and again, so that the thread is found waiting at least once.
    for _ in 0..100 {
        let at = clock.now().after(Duration::from_micros(200));
        clock.wake_at(at, sooner);
        assert!(heard(&heard_sooner) >= at, "it rang before its time");
    }
    assert!(heard_later.try_recv().is_err());
    assert!(heard_sooner.try_recv().is_err(), "each alarm rings once");
}

#[test]
fn g3_of_two_moments_for_one_alarm_the_earlier_holds() {
    // Seen to fail: with `Alarms::set` keeping the later of the two; and with it replacing the former by the latter, whichever
    // is earlier.
    let clock = SystemClock::default();
    let now = clock.now();
    let (lowered, heard_lowered) = Bell::leaked();
    let (kept, heard_kept) = Bell::leaked();
    let soon = now.after(Duration::from_millis(100));
    clock.wake_at(now.after(LATE), lowered);
    clock.wake_at(soon, lowered);
    clock.wake_at(soon, kept);
    clock.wake_at(now.after(LATE), kept);
    assert!(heard(&heard_lowered) >= soon && heard(&heard_kept) >= soon);
    assert!(heard_lowered.try_recv().is_err(), "once, though it was set twice");
}

#[test]
fn g3_an_alarm_that_panics_ends_no_other_deadline() {
    // Seen to fail: without `catch_unwind` in `Ringer::run`, the thread ends and nobody's time is ever over again.
    static PANICS: Panics = Panics;
    let clock = SystemClock::default();
    clock.wake_at(clock.now(), &PANICS);
    let gate = Gate::builder().max(1).timeout(Duration::from_millis(20)).build().unwrap();
    let _out = gate.try_enter().unwrap();
    let (bell, rung) = Bell::new();
    let mut waits = Driven::new(gate.enter());
    assert!(waits.poll_with(&Waker::from(Arc::new(bell))).is_none());
    heard(&rung);
    assert_eq!(waits.poll().unwrap().unwrap_err().reason, Reason::QueueTimeout);
}

struct Panics;

impl Alarm for Panics {
    fn ring(&'static self) {
        panic!("alarms may panic");
    }
}

/// Says to this program that it is the one in which no thread can start.
const THREADLESS: &str = "FLOWGATE_TEST_THREADLESS";

#[test]
#[cfg(target_os = "linux")]
fn g3_where_no_thread_can_start_a_wait_is_a_wait_all_the_same() {
    // Seen to fail: with `expect` in `Ringer::start`, whoever enters panics, and the slot it is handed is lost.
    let name = "g3_where_no_thread_can_start_a_wait_is_a_wait_all_the_same";
    if std::env::var_os(THREADLESS).is_none() {
        // No address space has room for such a stack.
        let run = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--test-threads=1"])
            .envs([(THREADLESS, "1"), ("RUST_MIN_STACK", "1000000000000000")])
            .output()
            .unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
        return;
    }
    assert!(std::thread::Builder::new().spawn(|| ()).is_err());
    let gate = Gate::builder().max(1).timeout(LATE).build().unwrap();
    for _ in 0..2 {
        let pass = gate.try_enter().unwrap();
        let mut waits = Driven::pending(gate.enter());
        drop(pass);
        drop(waits.ready().unwrap());
    }
    assert_eq!(gate.look().in_use, 0);
}
