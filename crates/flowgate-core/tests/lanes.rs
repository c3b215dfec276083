//! Lanes, driven through random histories beside a model that keeps every pass, waiter and start in a list.

use std::{collections::VecDeque, time::Duration};

use flowgate_core::{Decision, Hold, Lane, Limits, Overflow, Reason, Tick};
use proptest::prelude::*;

/// Not quite a millisecond, so that no two sums of it lie within a window's few nanoseconds of rounding.
const BEAT: u64 = 999_983;

#[derive(Clone, Debug)]
enum Step {
    Enter(u32),
    Settle(usize),
    GiveUp(usize),
    Wait(u64),
    Pause,
    Resume,
    Relimit(Limits),
}

fn limits() -> impl Strategy<Value = Limits> {
    let max = prop::option::of(1..6_u32);
    let rate = prop::option::of((1..6_u32, 1..15_u64));
    let queue = prop_oneof![2 => Just(None), 2 => (1..4_u32).prop_map(Some)];
    (max, rate, queue, prop::bool::weighted(0.2)).prop_map(|(max, rate, queue, reject)| {
        let builder = match (max, rate) {
            (Some(max), Some((rate, period))) => Limits::builder().max(max).rate(rate, period),
            (None, Some((rate, period))) => Limits::builder().rate(rate, period),
            (max, None) => Limits::builder().max(max.unwrap_or(3)),
        };
        let builder =
            if reject { builder.reject() } else { queue.into_iter().fold(builder, |b, max| b.queue(max)) };
        builder.build().expect("valid")
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => prop_oneof![4 => Just(1_u32), 1 => 1..7_u32].prop_map(Step::Enter),
        5 => (0..8_usize).prop_map(Step::Settle),
        1 => (0..8_usize).prop_map(Step::GiveUp),
        5 => prop_oneof![Just(0), 1..5_u64, 1..40_u64].prop_map(Step::Wait),
        1 => Just(Step::Pause),
        2 => Just(Step::Resume),
        1 => limits().prop_map(Step::Relimit),
    ];
    prop::collection::vec(step, 1..80)
}

/// The lane, and beside it what a patient clerk would write down.
struct Desk {
    limits: Limits,
    lane: Lane,
    now: u64,
    next: u32,
    /// The weights of the passes that are out.
    out: Vec<u32>,
    /// Who waits, in order: number and weight.
    line: VecDeque<(u32, u32)>,
    paused: bool,
    /// The starts of the running window, its first one first.
    starts: Vec<u64>,
    /// The numbers of those who got a pass, in order.
    admitted: Vec<u32>,
}

impl Desk {
    fn new(limits: Limits) -> Self {
        let (out, line, starts, admitted) = (Vec::new(), VecDeque::new(), Vec::new(), Vec::new());
        Desk { limits, lane: Lane::default(), now: 0, next: 0, out, line, paused: false, starts, admitted }
    }

    fn tick(&self) -> Tick {
        Tick::from_nanos(self.now)
    }

    fn in_use(&self) -> u32 {
        self.out.iter().sum()
    }

    /// What holds one of this weight that nobody is before.
    fn holds(&self, weight: u32) -> Option<Reason> {
        let is_spent = |rate: &flowgate_core::Rate| {
            let first = self.starts.first();
            let is_open = first.is_some_and(|first| self.now <= first + rate.period().as_nanos());
            is_open && self.starts.len() >= rate.rate() as usize
        };
        if self.paused {
            Some(Reason::Paused)
        } else if self.limits.max().is_some_and(|max| self.in_use() + weight > max) {
            Some(Reason::Busy)
        } else {
            self.limits.rate().is_some_and(is_spent).then_some(Reason::Rate)
        }
    }

    fn admit(&mut self, number: u32, weight: u32) {
        if let Some(rate) = self.limits.rate() {
            if self.starts.first().is_some_and(|first| self.now > first + rate.period().as_nanos()) {
                self.starts.clear();
            }
            self.starts.push(self.now);
        }
        self.lane.admit(&self.limits, weight, self.tick());
        self.out.push(weight);
        self.admitted.push(number);
    }

    fn enter(&mut self, weight: u32) -> Result<(), TestCaseError> {
        let decision = self.lane.decide(&self.limits, weight, self.tick());
        let is_behind = !self.line.is_empty() && !self.lane.is_paused();
        let holds = if is_behind { Some(Reason::Busy) } else { self.holds(weight) };
        let queue = match self.limits.overflow() {
            Overflow::Queue { max, .. } => max.map_or(usize::MAX, |max| max.get() as usize),
            Overflow::Reject => 0,
        };
        let number = self.next;
        self.next += 1;
        match decision {
            Decision::Refuse(Reason::TooHeavy) => {
                prop_assert!(self.limits.max().is_some_and(|max| weight > max));
            }
            Decision::Admit => {
                prop_assert_eq!(holds, None);
                self.admit(number, weight);
            }
            Decision::Wait(hold) => {
                prop_assert_eq!(Some(hold.reason()), holds);
                prop_assert!(self.line.len() < queue, "the line is full");
                prop_assert_eq!(hold == Hold::Line, !self.line.is_empty() && !self.lane.is_paused());
                self.lane.join();
                self.line.push_back((number, weight));
            }
            Decision::Refuse(Reason::QueueFull) => {
                prop_assert!(holds.is_some() && self.line.len() >= queue && queue > 0);
            }
            Decision::Refuse(reason) => prop_assert_eq!((Some(reason), queue), (holds, 0)),
        }
        Ok(())
    }

    /// Hands passes to the head of the line until something holds it.
    fn hand_over(&mut self) -> Result<(), TestCaseError> {
        while let Some(&(number, weight)) = self.line.front() {
            let is_too_heavy = weight > self.limits.heaviest();
            let hold = self.lane.hold(&self.limits, weight, self.tick());
            prop_assert_eq!(hold.map(Hold::reason), self.holds(weight));
            if hold.is_some() && !is_too_heavy {
                break;
            }
            self.lane.leave();
            self.line.pop_front();
            if hold.is_none() {
                self.admit(number, weight);
            }
        }
        Ok(())
    }

    fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Enter(weight) => self.enter(*weight)?,
            Step::Settle(which) if *which < self.out.len() => self.lane.settle(self.out.remove(*which)),
            Step::GiveUp(which) if self.line.remove(*which).is_some() => self.lane.leave(),
            Step::Settle(_) | Step::GiveUp(_) => {}
            Step::Wait(beats) => self.now += beats * BEAT,
            Step::Pause => (self.paused, _) = (true, self.lane.pause()),
            Step::Resume => (self.paused, _) = (false, self.lane.resume()),
            Step::Relimit(limits) => {
                let (before, in_line) = (self.lane, self.line.len());
                self.lane.relimit(&self.limits, limits, self.tick());
                prop_assert_eq!((self.lane.in_use(), self.lane.waiting()), (before.in_use(), in_line as u32));
                self.recount(limits);
                self.limits = *limits;
            }
        }
        Ok(())
    }

    /// The window goes on from its first start under the new rate, and counts no more than it allows.
    fn recount(&mut self, new: &Limits) {
        match (self.limits.rate(), new.rate()) {
            (Some(old), Some(new)) => {
                let is_over = |first: &u64| self.now > first + old.period().as_nanos();
                if self.starts.first().is_some_and(is_over) {
                    self.starts.clear();
                }
                self.starts.truncate(new.rate() as usize);
            }
            _ => self.starts.clear(),
        }
    }
}

proptest! {
    #[test]
    fn g1_g2_g3_g8_g9_any_history_obeys_the_model(first in limits(), steps in steps()) {
        // Seen to fail: with `>=` for `>` in the check of slots; with the rate checked only where there is no max; with
        // a newcomer let past the line; with waiters and passes counted together against `queue`; with `relimit`
        // forgetting the rate; with a pause that holds only newcomers.
        let mut desk = Desk::new(first);
        for step in &steps {
            let before = desk.in_use();
            desk.take(step)?;
            desk.hand_over()?;
            prop_assert_eq!(desk.lane.in_use(), desk.in_use());
            prop_assert_eq!(desk.lane.waiting() as usize, desk.line.len());
            prop_assert_eq!(desk.lane.is_idle(), desk.out.is_empty() && desk.line.is_empty());
            // Above a lowered max, passes only come back.
            prop_assert!(desk.in_use() <= desk.limits.max().unwrap_or(u32::MAX).max(before));
            prop_assert!(desk.admitted.is_sorted(), "somebody overtook: {:?}", desk.admitted);
        }
        // At the end, all that still wait get in: nobody is lost.
        desk.take(&Step::Resume)?;
        for _ in 0..steps.len() {
            (0..desk.out.len()).try_for_each(|_| desk.take(&Step::Settle(0)))?;
            desk.take(&Step::Wait(31))?;
            desk.hand_over()?;
        }
        prop_assert!(desk.line.is_empty(), "still in line: {:?}", desk.line);
    }

    #[test]
    fn g7_an_idle_lane_that_rests_can_be_forgotten(first in limits(), steps in steps()) {
        // Seen to fail: with a lane that rests while it is paused; with one that rests a millisecond early.
        let mut desk = Desk::new(first);
        for step in &steps {
            desk.take(step)?;
            desk.hand_over()?;
            let (kept, limits, rests_at) = (desk.lane, desk.limits, desk.lane.rests_at(&desk.limits));
            prop_assert_eq!(rests_at == Tick::NEVER, desk.paused);
            if desk.paused {
                continue;
            }
            let look = |lane: Lane, now| limits.rate().map(|rate| rate.look(lane.rate(), now));
            prop_assert_eq!(look(kept, rests_at), look(Lane::default(), rests_at));
            if let Some(before) = rests_at.as_nanos().checked_sub(1).map(Tick::from_nanos) {
                prop_assert_ne!(look(kept, before), look(Lane::default(), before), "no later than it must");
            }
            if kept.is_idle() && desk.tick() >= rests_at {
                let decide = |lane: Lane| lane.decide(&limits, 1, desk.tick());
                prop_assert_eq!(decide(kept), decide(Lane::default()));
                desk.lane = Lane::default();
            }
        }
    }
}

fn build(builder: flowgate_core::LimitsBuilder) -> Limits {
    builder.build().expect("valid")
}

const NOW: Tick = Tick::from_nanos(7_000_000_000);

#[test]
fn g2_nobody_overtakes_a_heavy_head() {
    // Seen to fail: with `decide` asking `hold` even where somebody waits.
    let limits = build(Limits::builder().max(5));
    let mut lane = Lane::default();
    lane.admit(&limits, 3, NOW);
    assert_eq!(
        lane.decide(&limits, 3, NOW),
        Decision::Wait(Hold::Slots),
        "two are free, three are asked for"
    );
    lane.join();
    assert_eq!(
        lane.decide(&limits, 1, NOW),
        Decision::Wait(Hold::Line),
        "one would fit, but not before its turn"
    );
    lane.settle(3);
    assert_eq!(lane.decide(&limits, 1, NOW), Decision::Wait(Hold::Line), "the free slots are for the head");
    assert_eq!(lane.hold(&limits, 3, NOW), None);
}

#[test]
fn g3_overflow_is_told_by_its_reason() {
    // Seen to fail: with each of Paused, Rate and Busy given for another; with QueueFull given one waiter early.
    let reject = build(Limits::builder().max(2).rate(3, "1m").reject());
    let queue = build(Limits::builder().max(2).rate(3, "1m").queue(2).timeout(Duration::from_secs(1)));
    let mut lane = Lane::default();
    let decide = |lane: &Lane| (lane.decide(&reject, 1, NOW), lane.decide(&queue, 1, NOW));
    for expected in [Decision::Admit, Decision::Admit, Decision::Refuse(Reason::Busy)] {
        assert_eq!(decide(&lane).0, expected);
        if expected == Decision::Admit {
            lane.admit(&reject, 1, NOW);
        }
    }
    assert_eq!(decide(&lane).1, Decision::Wait(Hold::Slots));
    lane.settle(1);
    lane.admit(&queue, 1, NOW);
    lane.settle(2);
    let (refused, waits) = decide(&lane);
    assert_eq!(refused, Decision::Refuse(Reason::Rate), "nothing is in use, and the rate is spent");
    assert!(
        matches!(waits, Decision::Wait(Hold::Rate { until }) if until >= NOW.after(Duration::from_secs(60)))
    );
    lane.pause();
    assert_eq!(decide(&lane), (Decision::Refuse(Reason::Paused), Decision::Wait(Hold::Paused)));
    lane.join();
    assert_eq!(
        decide(&lane).1,
        Decision::Wait(Hold::Paused),
        "one waits, and two may; the pause is what holds"
    );
    lane.join();
    assert_eq!(decide(&lane), (Decision::Refuse(Reason::Paused), Decision::Refuse(Reason::QueueFull)));
    lane.resume();
    assert_eq!(decide(&lane), (Decision::Refuse(Reason::Busy), Decision::Refuse(Reason::QueueFull)));
    for overflow in [&reject, &queue] {
        assert_eq!(lane.decide(overflow, 3, NOW), Decision::Refuse(Reason::TooHeavy), "it could never start");
        assert_eq!(Lane::default().decide(overflow, 2, NOW), Decision::Admit);
    }
}

#[test]
fn g3_the_heaviest_that_may_enter_can_start_wherever_an_adaptive_max_goes() {
    // Seen to fail: with `heaviest` the max instead of the floor; with `moved_to` going below the floor.
    let rule = flowgate_core::Adaptive::aimd().floor_at(4);
    let limits = build(Limits::builder().max(9).adaptive(rule));
    for to in [1, 4, 9] {
        let moved = limits.moved_to(std::num::NonZeroU32::new(to).expect("above zero"));
        assert_eq!(Lane::default().decide(&moved, 4, NOW), Decision::Admit, "at {to}");
        assert_eq!(Lane::default().decide(&moved, 5, NOW), Decision::Refuse(Reason::TooHeavy), "at {to}");
    }
    let any = build(Limits::builder().rate(1, "1s"));
    assert_eq!(
        Lane::default().decide(&any, 1_000_000_000, NOW),
        Decision::Admit,
        "no max, nothing is too heavy"
    );
}

#[test]
fn a_lane_is_sixteen_bytes() {
    // Seen to fail: with one more `bool` in it.
    assert_eq!(size_of::<Lane>(), 16);
}
