//! The async gate against a small model, over random histories under a clock moved by hand.
//!
//! The model keeps plain queues and asks the same pure rules; it knows nothing of desks, express lanes, slabs or alarms.
//! After every step both must agree on who is in, who waits, who was refused and why, and whoever's fate is decided must
//! have been woken. Entrants are dropped at every stage: before the first poll, in line, handed a slot but not looked yet.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use flowgate::{
    Gate, KeyedGate, Limits, Pass, Reason, Refusal, Tick,
    clock::Clock,
    gate::{Enter, GateBuilder},
};
use flowgate_core::{Decision, Lane, RateState};
use flowgate_testkit::{Driven, FakeClock};
use proptest::{prelude::*, test_runner::FileFailurePersistence};

/// How many histories each test tries: many in release, which `./test` runs too.
const CASES: u32 = if cfg!(debug_assertions) { 1_000 } else { 50_000 };

const KEYS: [&str; 3] = ["", "a", "a key too long to be kept in place"];

#[derive(Clone, Debug)]
enum Step {
    Enter { key: usize, weight: u32 },
    TryEnter { key: usize, weight: u32 },
    Check { key: usize },
    Poll(usize),
    Cancel(usize),
    Release(usize),
    Advance { millis: u64 },
    SetLimits(usize),
    Pause,
    Resume,
    Close { millis: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..KEYS.len();
    prop_oneof![
        6 => (key.clone(), 1..4_u32).prop_map(|(key, weight)| Step::Enter { key, weight }),
        2 => (key.clone(), 1..4_u32).prop_map(|(key, weight)| Step::TryEnter { key, weight }),
        1 => key.prop_map(|key| Step::Check { key }),
        4 => any::<usize>().prop_map(Step::Poll),
        3 => any::<usize>().prop_map(Step::Cancel),
        5 => any::<usize>().prop_map(Step::Release),
        3 => (0..700_u64).prop_map(|millis| Step::Advance { millis }),
        1 => any::<usize>().prop_map(Step::SetLimits),
        1 => Just(Step::Pause),
        2 => Just(Step::Resume),
        1 => prop_oneof![9 => Just(None), 1 => (0..900_u64).prop_map(Some)]
            .prop_map(|close| close.map_or(Step::Resume, |millis| Step::Close { millis })),
    ]
}

fn all_limits() -> Vec<Limits> {
    let second = Duration::from_secs(1);
    [
        Limits::builder().max(2),
        Limits::builder().max(3).queue(2),
        Limits::builder().max(5).reject(),
        Limits::builder().max(2).timeout(second),
        Limits::builder().max(4).rate(3, "1s"),
        Limits::builder().rate(2, "500ms").queue(4).timeout(second),
        Limits::builder().max(3).rate(5, "1s").burst(2),
        Limits::builder().rate(4, "1s").burst(3).reject(),
    ]
    .map(|builder| builder.build().unwrap())
    .to_vec()
}

/// What the model says of one who entered.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Waiting,
    In,
    Granted(RateState),
    Refused(Reason),
    Gone,
}

struct Entrant {
    key: usize,
    weight: u32,
    since: Tick,
    fate: Fate,
}

/// The whole gate, naively.
struct Model {
    limits: Limits,
    lanes: BTreeMap<usize, (Lane, VecDeque<usize>)>,
    entrants: Vec<Entrant>,
    is_paused: bool,
    closing: Option<Tick>,
    now: Tick,
}

impl Model {
    fn enter(&mut self, key: usize, weight: u32, may_wait: bool) -> usize {
        let entrant = Entrant { key, weight, since: self.now, fate: Fate::Refused(Reason::Closed) };
        self.entrants.push(entrant);
        let id = self.entrants.len() - 1;
        if self.closing.is_some() {
            return id;
        }
        let (lane, row) = self.lanes.entry(key).or_default();
        let mut seen = *lane;
        if self.is_paused {
            seen.pause();
        }
        self.entrants[id].fate = match seen.decide(&self.limits, weight, self.now) {
            Decision::Admit => {
                lane.admit(&self.limits, weight, self.now);
                Fate::In
            }
            Decision::Wait(_) if may_wait => {
                lane.join();
                row.push_back(id);
                Fate::Waiting
            }
            Decision::Wait(hold) => Fate::Refused(hold.reason()),
            Decision::Refuse(Reason::QueueFull) if !may_wait => {
                let hold = seen.hold(&self.limits, weight, self.now);
                Fate::Refused(hold.map_or(Reason::Busy, |hold| hold.reason()))
            }
            Decision::Refuse(reason) => Fate::Refused(reason),
        };
        id
    }

    /// One who waits leaves its row.
    fn part(&mut self, id: usize, fate: Fate) {
        let (lane, row) = self.lanes.get_mut(&self.entrants[id].key).unwrap();
        row.retain(|&waiting| waiting != id);
        lane.leave();
        self.entrants[id].fate = fate;
    }

    fn release(&mut self, id: usize) {
        let Entrant { key, weight, .. } = self.entrants[id];
        self.entrants[id].fate = Fate::Gone;
        self.lanes.get_mut(&key).unwrap().0.settle(weight);
        self.pump();
    }

    fn cancel(&mut self, id: usize) {
        match self.entrants[id].fate {
            Fate::Waiting => self.part(id, Fate::Gone),
            Fate::Granted(spent) => {
                let (lane, _) = self.lanes.get_mut(&self.entrants[id].key).unwrap();
                lane.refund(&self.limits, spent, self.now);
                self.release(id);
            }
            _ => self.entrants[id].fate = Fate::Gone,
        }
        self.pump();
    }

    /// Everybody who may start, starts.
    fn pump(&mut self) {
        let heads = |model: &Self| -> Vec<usize> {
            model.lanes.values().filter_map(|(_, row)| row.front().copied()).collect()
        };
        while !self.is_paused {
            let before = self.waiting();
            for id in heads(self) {
                let Entrant { key, weight, .. } = self.entrants[id];
                let lane = self.lanes[&key].0;
                if weight > self.limits.heaviest() {
                    self.part(id, Fate::Refused(Reason::TooHeavy));
                } else if lane.hold(&self.limits, weight, self.now).is_none() {
                    let lane = &mut self.lanes.get_mut(&key).unwrap().0;
                    lane.admit(&self.limits, weight, self.now);
                    let spent = lane.rate();
                    self.part(id, Fate::Granted(spent));
                }
            }
            if self.waiting() == before {
                return;
            }
        }
    }

    /// Turns away everybody whose time is over, then lets start who may.
    fn expire(&mut self) {
        let is_over = self.closing.is_some_and(|deadline| deadline <= self.now);
        let waiting: Vec<_> = self.lanes.values().flat_map(|(_, row)| row.iter().copied()).collect();
        for id in waiting {
            let late = self
                .limits
                .timeout()
                .is_some_and(|timeout| self.entrants[id].since.after(timeout) <= self.now);
            if is_over {
                self.part(id, Fate::Refused(Reason::Closed));
            } else if late {
                self.part(id, Fate::Refused(Reason::QueueTimeout));
            }
        }
        self.pump();
    }

    fn advance(&mut self, goal: Tick) {
        while let Some(at) = self.next_moment().filter(|&at| at <= goal) {
            self.now = self.now.max(at);
            self.expire();
        }
        self.now = goal;
    }

    fn next_moment(&self) -> Option<Tick> {
        let waiting = self.lanes.values().flat_map(|(_, row)| row.iter());
        let late = waiting.filter_map(|&id| Some(self.entrants[id].since.after(self.limits.timeout()?)));
        let closing = self.closing.filter(|_| self.waiting() > 0);
        let refilled = self.lanes.values().filter_map(|(lane, row)| {
            let weight = self.entrants[*row.front()?].weight;
            match lane.hold(&self.limits, weight, self.now) {
                Some(flowgate_core::Hold::Rate { until }) if !self.is_paused => Some(until),
                _ => None,
            }
        });
        late.chain(closing).chain(refilled).min()
    }

    fn set_limits(&mut self, limits: Limits) {
        for (lane, _) in self.lanes.values_mut() {
            lane.relimit(&self.limits, &limits, self.now);
        }
        self.limits = limits;
        self.expire();
    }

    fn waiting(&self) -> usize {
        self.lanes.values().map(|(_, row)| row.len()).sum()
    }

    fn in_use(&self) -> u64 {
        self.lanes.values().map(|(lane, _)| u64::from(lane.in_use())).sum()
    }
}

enum Real {
    Single(Gate),
    Keyed(KeyedGate),
}

impl Real {
    fn enter(&self, key: usize) -> Enter<'_> {
        match self {
            Real::Single(gate) => gate.enter(),
            Real::Keyed(gate) => gate.enter_key(KEYS[key]),
        }
    }

    fn check(&self, key: usize) -> Result<(), Refusal> {
        match self {
            Real::Single(gate) => gate.check(),
            Real::Keyed(gate) => gate.check_key(KEYS[key]),
        }
    }
}

macro_rules! both {
    ($real:expr, $gate:ident => $what:expr) => {
        match $real {
            Real::Single($gate) => $what,
            Real::Keyed($gate) => $what,
        }
    };
}

/// The two side by side.
struct Pair<'a> {
    real: &'a Real,
    clock: Arc<FakeClock>,
    model: Model,
    waiting: BTreeMap<usize, Driven<'a, Result<Pass, Refusal>>>,
    passes: BTreeMap<usize, Pass>,
}

impl Pair<'_> {
    fn step(&mut self, step: &Step) {
        let single = matches!(self.real, Real::Single(_));
        let lane = |key: usize| if single { 0 } else { key };
        match *step {
            Step::Enter { key, weight } => {
                let id = self.model.enter(lane(key), weight, true);
                let mut entry = Driven::new(self.real.enter(key).weight(weight));
                match entry.poll() {
                    Some(answer) => self.took(id, answer),
                    None => {
                        assert_eq!(self.model.entrants[id].fate, Fate::Waiting, "it waits and should not");
                        self.waiting.insert(id, entry);
                    }
                }
            }
            Step::TryEnter { key, weight } => {
                let id = self.model.enter(lane(key), weight, false);
                self.took(id, self.real.enter(key).weight(weight).now());
            }
            Step::Check { key } => {
                let id = self.model.enter(lane(key), 1, false);
                let answer = self.real.check(key).map_err(|refusal| refusal.reason);
                match self.model.entrants[id].fate {
                    Fate::In => {
                        assert_eq!(answer, Ok(()));
                        self.model.release(id);
                    }
                    fate => assert_eq!(answer.map_err(Fate::Refused), Err(fate)),
                }
            }
            Step::Poll(nth) => self.poll_nth(nth),
            Step::Cancel(nth) => {
                if let Some(id) = nth_key(&self.waiting, nth) {
                    self.waiting.remove(&id);
                    self.model.cancel(id);
                }
            }
            Step::Release(nth) => {
                if let Some(id) = nth_key(&self.passes, nth) {
                    self.passes.remove(&id);
                    self.model.release(id);
                }
            }
            Step::Advance { millis } => {
                self.clock.advance(Duration::from_millis(millis));
                self.model.advance(self.clock.now());
            }
            _ => self.control(step),
        }
    }

    fn control(&mut self, step: &Step) {
        match *step {
            Step::SetLimits(nth) => {
                let limits = all_limits()[nth % all_limits().len()];
                match self.real {
                    Real::Single(gate) => gate.set_limits(limits),
                    Real::Keyed(gate) => gate.set_limits(limits).unwrap(),
                }
                self.model.set_limits(limits);
            }
            Step::Pause => {
                both!(self.real, gate => gate.pause());
                self.model.is_paused = true;
            }
            Step::Resume => {
                both!(self.real, gate => gate.resume());
                self.model.is_paused = false;
                self.model.pump();
            }
            Step::Close { millis } => {
                both!(self.real, gate => drop(gate.close(Duration::from_millis(millis))));
                let deadline = self.model.now.after(Duration::from_millis(millis));
                self.model.closing = Some(self.model.closing.map_or(deadline, |set| set.min(deadline)));
                self.model.expire();
            }
            _ => unreachable!("not a control"),
        }
    }

    fn poll_nth(&mut self, nth: usize) {
        let Some(id) = nth_key(&self.waiting, nth) else { return };
        let mut entry = self.waiting.remove(&id).unwrap();
        match entry.poll() {
            Some(answer) => self.took(id, answer),
            None => {
                self.waiting.insert(id, entry);
            }
        }
    }

    /// The real gate answered one; the model must have answered the same.
    fn took(&mut self, id: usize, answer: Result<Pass, Refusal>) {
        let fate = &mut self.model.entrants[id].fate;
        match (answer, *fate) {
            (Ok(pass), Fate::In | Fate::Granted(_)) => {
                *fate = Fate::In;
                self.passes.insert(id, pass);
            }
            (Err(refusal), Fate::Refused(reason)) => assert_eq!(refusal.reason, reason),
            (answer, fate) => panic!("the gate said {answer:?}, the model {fate:?}"),
        }
    }

    fn agree(&self) {
        let look = both!(self.real, gate => gate.look());
        assert_eq!(look.in_use, self.model.in_use(), "in use");
        assert_eq!(look.waiting, self.model.waiting() as u64, "waiting");
        for (id, entry) in &self.waiting {
            let is_decided = self.model.entrants[*id].fate != Fate::Waiting;
            assert_eq!(entry.woken() > 0, is_decided, "woken when, and only when, its fate is decided");
        }
        if self.model.limits.rate().is_none() && matches!(self.real, Real::Keyed(_)) {
            let busy = self.model.lanes.values().filter(|(lane, _)| !lane.is_idle()).count();
            assert_eq!(look.lanes, busy, "a pure max gate keeps lanes in use only");
        }
    }
}

fn nth_key<T>(map: &BTreeMap<usize, T>, nth: usize) -> Option<usize> {
    map.keys().nth(nth % map.len().max(1)).copied()
}

fn drive(is_keyed: bool, limits: usize, steps: &[Step]) {
    let clock = FakeClock::new();
    let limits = all_limits()[limits];
    // Built with any limits, then given these: a live change before anything else happens.
    let builder: GateBuilder = Gate::builder().max(1).clock(clock.clone());
    let real = if is_keyed {
        let gate = builder.keyed().build().unwrap();
        gate.set_limits(limits).unwrap();
        Real::Keyed(gate)
    } else {
        let gate = builder.build().unwrap();
        gate.set_limits(limits);
        Real::Single(gate)
    };
    let now = clock.now();
    let (lanes, entrants) = Default::default();
    let model = Model { limits, lanes, entrants, is_paused: false, closing: None, now };
    let mut pair = Pair { real: &real, clock, model, waiting: BTreeMap::new(), passes: BTreeMap::new() };
    for step in steps {
        pair.step(step);
        pair.agree();
    }
    pair.waiting.clear();
    pair.passes.clear();
    let look = both!(&real, gate => gate.look());
    assert_eq!((look.in_use, look.waiting), (0, 0), "nothing is lost");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: CASES,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("proptest-regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn g1_to_g10_a_gate_without_keys_agrees_with_the_model(
        limits in 0..all_limits().len(), steps in prop::collection::vec(step(), 1..60)
    ) {
        // Seen to fail: with `cancel` not refunding, a start is missing; without its `pump`, one who fits waits on. So with
        // most mutations named in the law tests, but for those of the pure rules, which the model asks too.
        drive(false, limits, &steps);
    }

    #[test]
    fn g1_to_g10_a_gate_with_keys_agrees_with_the_model(
        limits in 0..all_limits().len(), steps in prop::collection::vec(step(), 1..60)
    ) {
        // Seen to fail: with `leave` never forgetting an idle lane, lanes stay; with `set_limits` changing the first desk
        // only, keys keep the old max.
        drive(true, limits, &steps);
    }
}
