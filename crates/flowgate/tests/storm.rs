//! G1, G4, G5, G7, G8, G10 together under a clock that rings late, or not at all for a while: whatever comes, and in whatever
//! order, nobody is lost, nothing stays taken, and nothing panics.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{sync::Arc, time::Duration};

use flowgate::{Gate, KeyedGate, Limits, LimitsBuilder, Pass, Refusal};
use flowgate_testkit::{Driven, LateClock};
use proptest::prelude::*;

const KEYS: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Debug)]
enum Op {
    Enter {
        key: usize,
        weight: u32,
    },
    Check {
        key: usize,
    },
    /// One that waits is polled, woken or not.
    Poll {
        which: usize,
    },
    Leave {
        which: usize,
    },
    GiveBack {
        which: usize,
    },
    Jump {
        millis: u64,
        rings: bool,
    },
    Set {
        limits: usize,
    },
    Pin {
        key: usize,
        limits: usize,
    },
    Unpin {
        key: usize,
    },
    Pause,
    Resume,
    /// All who were woken look.
    Settle,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => (0..KEYS.len(), prop_oneof![3 => Just(1), 1 => 1..4_u32]).prop_map(|(key, weight)| Op::Enter { key, weight }),
        2 => (0..KEYS.len()).prop_map(|key| Op::Check { key }),
        2 => (0..100_usize).prop_map(|which| Op::Poll { which }),
        3 => (0..100_usize).prop_map(|which| Op::Leave { which }),
        5 => (0..100_usize).prop_map(|which| Op::GiveBack { which }),
        6 => (prop_oneof![Just(0), Just(20), Just(50), Just(100), Just(101), 0..300_u64], any::<bool>())
            .prop_map(|(millis, rings)| Op::Jump { millis, rings }),
        2 => (0..KINDS).prop_map(|limits| Op::Set { limits }),
        1 => (0..KEYS.len(), 0..KINDS).prop_map(|(key, limits)| Op::Pin { key, limits }),
        1 => (0..KEYS.len()).prop_map(|key| Op::Unpin { key }),
        1 => Just(Op::Pause),
        2 => Just(Op::Resume),
        4 => Just(Op::Settle),
    ];
    prop::collection::vec(op, 1..120)
}

const KINDS: usize = 9;
const MS: Duration = Duration::from_millis(1);

fn limits(kind: usize) -> Limits {
    let of = |with: fn(LimitsBuilder) -> LimitsBuilder| with(Limits::builder()).build().unwrap();
    match kind {
        0 => of(|it| it.max(2)),
        1 => of(|it| it.max(3).rate(1, "100ms").timeout(50 * MS)),
        2 => of(|it| it.rate(2, "100ms").burst(2).queue(3)),
        3 => of(|it| it.max(1).rate(2, "50ms").reject()),
        4 => of(|it| it.max(2).queue(2).timeout(100 * MS)),
        5 => of(|it| it.max(3).queue(50).codel(10 * MS, 50 * MS)),
        6 => of(|it| it.max(3).rate(3, "100ms").codel(20 * MS, 20 * MS).timeout(100 * MS)),
        7 => of(|it| it.rate(1, "100ms").timeout(100 * MS)),
        _ => of(|it| it.max(2).rate(10, "1s").smooth()),
    }
}

/// A gate in a storm, with all who wait before it and all who are in.
struct Storm<'a> {
    gate: &'a KeyedGate,
    clock: &'a LateClock,
    waiting: Vec<Driven<'a, Result<Pass, Refusal>>>,
    inside: Vec<Pass>,
}

impl<'a> Storm<'a> {
    fn take(&mut self, op: &Op) {
        let gate = self.gate;
        match *op {
            Op::Enter { key, weight } => {
                let mut entry = Driven::new(gate.enter_key(KEYS[key]).weight(weight));
                match entry.poll() {
                    Some(answer) => self.inside.extend(answer.ok()),
                    None => self.waiting.push(entry),
                }
            }
            Op::Check { key } => {
                let _answer = gate.check_key(KEYS[key]);
            }
            Op::Poll { which } if which < self.waiting.len() => {
                if let Some(answer) = self.waiting[which].poll() {
                    self.inside.extend(answer.ok());
                    drop(self.waiting.swap_remove(which));
                }
            }
            Op::Leave { which } if which < self.waiting.len() => drop(self.waiting.swap_remove(which)),
            Op::GiveBack { which } if which < self.inside.len() => drop(self.inside.swap_remove(which)),
            Op::Jump { millis, rings } => {
                self.clock.jump(millis);
                if rings {
                    self.clock.ring();
                }
            }
            Op::Set { limits: kind } => gate.set_limits(limits(kind)).unwrap(),
            Op::Pin { key, limits: kind } => {
                let _has_room = gate.pin(KEYS[key], limits(kind)).unwrap();
            }
            Op::Unpin { key } => {
                let _was_pinned = gate.unpin(KEYS[key]);
            }
            Op::Pause => gate.pause(),
            Op::Resume => gate.resume(),
            Op::Settle | Op::Poll { .. } | Op::Leave { .. } | Op::GiveBack { .. } => {}
        }
    }

    /// All who were woken look; then the gate knows as many as there are.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        for mut entry in std::mem::take(&mut self.waiting) {
            match if entry.woken() > 0 { entry.poll() } else { None } {
                Some(answer) => self.inside.extend(answer.ok()),
                None => self.waiting.push(entry),
            }
        }
        let look = self.gate.look();
        let taken: u64 = self.inside.iter().map(|pass| u64::from(pass.weight())).sum();
        prop_assert_eq!((look.in_use, look.waiting), (taken, self.waiting.len() as u64));
        let lanes = self.gate.lanes(KEYS.len() + 1);
        prop_assert_eq!(lanes.iter().map(|lane| u64::from(lane.in_use)).sum::<u64>(), taken);
        prop_assert_eq!(lanes.iter().map(|lane| u64::from(lane.waiting)).sum::<u64>(), look.waiting);
        Ok(())
    }
}

proptest! {
    #[test]
    fn g1_g4_g5_g7_g8_g10_a_storm_under_a_late_clock_loses_nobody_and_nothing(
        ops in ops(),
        first in 0..KINDS,
        max_keys in prop_oneof![Just(2_u32), Just(3), Just(100)],
        closes: bool,
    ) {
        // Seen to fail: with `State::cancel` keeping what one was handed who leaves, slots stay taken that nobody holds.
        let clock = Arc::new(LateClock::default());
        clock.jump(1_000_000);
        let gate = Gate::builder().max(1).keyed().max_keys(max_keys).clock(clock.clone()).build().unwrap();
        gate.set_limits(limits(first)).unwrap();
        let mut storm = Storm { gate: &gate, clock: &clock, waiting: Vec::new(), inside: Vec::new() };
        for op in &ops {
            storm.take(op);
            if matches!(op, Op::Settle) {
                storm.settle()?;
            }
        }
        // The storm is over: all who are in leave, time goes on, and all who wait have their answer.
        gate.resume();
        let _closing = closes.then(|| gate.close(Duration::from_secs(1)));
        for _ in 0..400 {
            storm.inside.clear();
            clock.jump(100);
            clock.ring();
            storm.settle()?;
        }
        prop_assert_eq!(storm.waiting.len(), 0, "somebody waits for nothing");
        storm.inside.clear();
        let _unpinned = KEYS.map(|key| gate.unpin(key));
        clock.jump(10_000);
        clock.ring();
        clock.jump(10_000);
        clock.ring();
        let look = gate.look();
        prop_assert_eq!((look.in_use, look.waiting, look.lanes), (0, 0, 0));
    }
}
