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
use flowgate_core::{Backlog, Decision, Discipline, End, Hold, Lane, RateState};
use flowgate_testkit::{Driven, FakeClock};
use proptest::{prelude::*, test_runner::FileFailurePersistence};

/// How many histories each test tries: many in release, which `./test` runs too.
const CASES: u32 = if cfg!(debug_assertions) { 1_000 } else { 50_000 };

const KEYS: [&str; 5] = ["", "a", "b", "c", "a key too long to be kept in place"];

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

/// Steps that keep one lane full: one key, small strides in time, more who come than who leave.
fn crowded_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1..4_u32).prop_map(|weight| Step::Enter { key: 0, weight }),
        3 => any::<usize>().prop_map(Step::Poll),
        1 => any::<usize>().prop_map(Step::Cancel),
        4 => any::<usize>().prop_map(Step::Release),
        5 => (0..40_u64).prop_map(|millis| Step::Advance { millis }),
        1 => step(),
    ]
}

/// CoDel, with what may hold a line beside slots.
fn codel_limits() -> Vec<Limits> {
    let (target, interval) = (Duration::from_millis(60), Duration::from_millis(90));
    [
        Limits::builder().max(3).codel(target, interval),
        Limits::builder().max(4).queue(6).codel(target, target),
        Limits::builder().max(3).rate(4, "200ms").codel(target, interval),
        Limits::builder().max(4).rate(9, "300ms").burst(3).timeout(interval).codel(target, interval),
    ]
    .map(|builder| builder.build().unwrap())
    .to_vec()
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
        Limits::builder().max(2).codel(second / 8, second / 3),
        Limits::builder().max(3).queue(5).timeout(second).codel(second / 5, second),
        Limits::builder().max(3).rate(4, "1s").codel(second / 4, second / 4),
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
    /// For each line under CoDel since when it stands, and for whom slots are kept.
    backlogs: BTreeMap<usize, (Backlog, Option<usize>)>,
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
        let decision = seen.decide(&self.limits, weight, self.now);
        self.entrants[id].fate = match decision {
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
        if let (Fate::Waiting, Decision::Wait(hold)) = (self.entrants[id].fate, decision) {
            self.begin_backlog(key, hold);
        }
        id
    }

    fn begin_backlog(&mut self, key: usize, hold: Hold) {
        if self.limits.discipline() != Discipline::Fifo && !self.lanes[&key].1.is_empty() {
            let mut backlog = Backlog::new(self.now);
            backlog.held(hold, self.now);
            self.backlogs.entry(key).or_insert((backlog, None));
        }
    }

    /// Who is next in a row.
    fn next(&self, key: usize) -> Option<usize> {
        let row = &self.lanes[&key].1;
        match self.backlogs.get(&key) {
            Some(&(backlog, kept)) if self.limits.discipline().next(backlog, self.now) == End::Newest => {
                kept.or(row.back().copied())
            }
            _ => row.front().copied(),
        }
    }

    /// One who waits leaves its row.
    fn part(&mut self, id: usize, fate: Fate) {
        let (lane, row) = self.lanes.get_mut(&self.entrants[id].key).unwrap();
        row.retain(|&waiting| waiting != id);
        lane.leave();
        if row.is_empty() {
            self.backlogs.remove(&self.entrants[id].key);
        } else if let Some((_, kept)) = self.backlogs.get_mut(&self.entrants[id].key) {
            kept.take_if(|kept| *kept == id);
        }
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
        while !self.is_paused {
            let before = (self.waiting(), self.backlogs.clone());
            let keys: Vec<_> = self.lanes.keys().copied().collect();
            for id in keys.into_iter().filter_map(|key| self.next(key)).collect::<Vec<_>>() {
                let Entrant { key, weight, .. } = self.entrants[id];
                let lane = self.lanes[&key].0;
                if weight > self.limits.heaviest() {
                    self.part(id, Fate::Refused(Reason::TooHeavy));
                } else if let Some(hold) = lane.hold(&self.limits, weight, self.now) {
                    if let Some((backlog, kept)) = self.backlogs.get_mut(&key) {
                        backlog.held(hold, self.now);
                        let is_free = self.limits.max().is_some_and(|max| lane.in_use() < max);
                        *kept = (is_free && hold == Hold::Slots).then_some(id);
                    }
                } else {
                    let lane = &mut self.lanes.get_mut(&key).unwrap().0;
                    lane.admit(&self.limits, weight, self.now);
                    let spent = lane.rate();
                    self.part(id, Fate::Granted(spent));
                }
            }
            if (self.waiting(), self.backlogs.clone()) == before {
                return;
            }
        }
    }

    /// Turns away everybody whose time is over, then lets start who may.
    fn expire(&mut self) {
        let is_over = self.closing.is_some_and(|deadline| deadline <= self.now);
        let waiting: Vec<_> = self.lanes.values().flat_map(|(_, row)| row.iter().copied()).collect();
        for id in waiting {
            let late = self.deadlines(id).into_iter().flatten().any(|deadline| deadline <= self.now);
            if is_over {
                self.part(id, Fate::Refused(Reason::Closed));
            } else if late {
                self.part(id, Fate::Refused(Reason::QueueTimeout));
            }
        }
        self.pump();
    }

    /// When one who waits has waited too long: by the timeout, and by CoDel.
    fn deadlines(&self, id: usize) -> [Option<Tick>; 2] {
        let Entrant { since, key, .. } = self.entrants[id];
        let backlog = self.backlogs.get(&key).filter(|_| !self.is_paused);
        let late = backlog.map(|&(backlog, _)| self.limits.discipline().deadline(backlog, since, self.now));
        [self.limits.timeout().map(|timeout| since.after(timeout)), late]
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
        let late = waiting.flat_map(|&id| self.deadlines(id)).flatten();
        let turning = self.backlogs.values().filter(|_| !self.is_paused).filter_map(|&(backlog, _)| {
            let discipline = self.limits.discipline();
            let is_first = !discipline.is_backlogged(backlog, self.now);
            is_first.then(|| discipline.look_at(backlog, self.now, self.now))
        });
        let closing = self.closing.filter(|_| self.waiting() > 0);
        let refilled = self.lanes.iter().filter_map(|(&key, (lane, _))| {
            let weight = self.entrants[self.next(key)?].weight;
            match lane.hold(&self.limits, weight, self.now) {
                Some(Hold::Rate { until }) if !self.is_paused => Some(until),
                _ => None,
            }
        });
        late.chain(turning).chain(closing).chain(refilled).min()
    }

    fn set_limits(&mut self, limits: Limits) {
        for (lane, _) in self.lanes.values_mut() {
            lane.relimit(&self.limits, &limits, self.now);
        }
        self.limits = limits;
        if limits.discipline() == Discipline::Fifo {
            self.backlogs.clear();
        }
        for key in self.lanes.keys().copied().collect::<Vec<_>>() {
            self.begin_backlog(key, Hold::Slots);
        }
        self.expire();
    }

    fn resume(&mut self) {
        if std::mem::take(&mut self.is_paused) {
            self.backlogs.values_mut().for_each(|backlog| *backlog = (Backlog::new(self.now), None));
        }
        self.pump();
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
                self.model.resume();
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

fn drive(is_keyed: bool, limits: Limits, steps: &[Step]) {
    let clock = FakeClock::new();
    // Built with any limits, then given these: a live change before anything else happens.
    let builder: GateBuilder = Gate::builder().max(1).clock(clock.clone());
    let real = if is_keyed {
        // Two desks, so that keys share them. A look locks both at once, and moves no lane that is alone at its desk.
        let gate = builder.keyed().max_keys(256).build().unwrap();
        gate.set_limits(limits).unwrap();
        Real::Keyed(gate)
    } else {
        let gate = builder.build().unwrap();
        gate.set_limits(limits);
        Real::Single(gate)
    };
    let now = clock.now();
    let (lanes, backlogs, entrants) = Default::default();
    let model = Model { limits, lanes, backlogs, entrants, is_paused: false, closing: None, now };
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
        drive(false, all_limits()[limits], &steps);
    }

    #[test]
    fn g1_to_g10_a_gate_with_keys_agrees_with_the_model(
        limits in 0..all_limits().len(), steps in prop::collection::vec(step(), 1..60)
    ) {
        // Seen to fail: with `leave` never forgetting an idle lane, lanes stay; with `set_limits` changing the first desk
        // only, keys keep the old max.
        drive(true, all_limits()[limits], &steps);
    }

    #[test]
    fn g2_and_g3_a_crowded_line_under_codel_agrees_with_the_model(
        limits in 0..codel_limits().len(), steps in prop::collection::vec(crowded_step(), 1..100)
    ) {
        // Seen to fail: without `kept_for`, or with it set where no slot is free; with `hand_over` going by the head of the row;
        // with those late turned away after the hand-over; with `halt_backlog` not asking whether another is next.
        drive(false, codel_limits()[limits], &steps);
    }
}
