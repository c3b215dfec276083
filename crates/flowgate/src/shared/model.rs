//! The document against a small model, over random histories of a fleet.
//!
//! The model ([`plain`]) keeps every single entrant in plain lists; it knows nothing of runs, and nothing of bytes.
//! Processes enter, leave, withdraw and die; a turn may begin from a document that is only known, may be
//! stored, lose to another, or be stored with its answer lost; time goes on, limits change, and the store
//! forgets, all it knew or the last of it. After every turn both must agree, and what holds for a fleet is
//! looked at by what the processes themselves have in hand.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use flowgate_core::{Limits, Tick};
use proptest::{prelude::*, test_runner::FileFailurePersistence};

use self::plain::Model;
use super::{
    book::Item,
    document::{Ask, Declared, Document, Fate, Kind, Member, Stake},
    plan::Plan,
    store::Seen,
};

mod plain;

#[derive(Clone, Debug)]
enum Step {
    Enter {
        process: usize,
        weight: u32,
        kind: Kind,
    },
    Withdraw {
        process: usize,
        which: usize,
    },
    Release {
        process: usize,
        which: usize,
    },
    Turn {
        process: usize,
        end: End,
    },
    /// What was on its way arrives.
    Land,
    Die {
        process: usize,
    },
    Advance {
        millis: u64,
    },
    SetLimits(usize),
    /// The store knows nothing any more. All but one, who hears nothing, learn of it.
    Forget {
        deaf: usize,
    },
    /// The store is again as it was so many swaps ago.
    Rollback {
        swaps: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Stored,
    /// Somebody else was faster.
    Conflict,
    /// It was stored, and nobody heard.
    Unheard,
    /// It is given up as one of which nobody hears, and still on its way.
    Late,
}

const PROCESSES: usize = 3;
const LEASE: Duration = Duration::from_millis(1500);

fn step() -> impl Strategy<Value = Step> {
    let process = 0..PROCESSES;
    let kind = prop_oneof![6 => Just(Kind::Enter), 1 => Just(Kind::Try), 1 => Just(Kind::Check)];
    let end = prop_oneof![8 => Just(End::Stored), 1 => Just(End::Conflict), 1 => Just(End::Unheard), 2 => Just(End::Late)];
    prop_oneof![
        6 => (process.clone(), 1..4_u32, kind).prop_map(|(process, weight, kind)| Step::Enter { process, weight, kind }),
        2 => (process.clone(), any::<usize>()).prop_map(|(process, which)| Step::Withdraw { process, which }),
        4 => (process.clone(), any::<usize>()).prop_map(|(process, which)| Step::Release { process, which }),
        9 => (process.clone(), end).prop_map(|(process, end)| Step::Turn { process, end }),
        2 => Just(Step::Land),
        1 => process.clone().prop_map(|process| Step::Die { process }),
        1 => process.prop_map(|deaf| Step::Forget { deaf }),
        1 => (1..6_usize).prop_map(|swaps| Step::Rollback { swaps }),
        3 => (0..700_u64).prop_map(|millis| Step::Advance { millis }),
        1 => (0..limits().len()).prop_map(Step::SetLimits),
    ]
}

/// Steps of two who come and go one by one, and whose turns are often given up before they arrive.
fn late_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..2_usize).prop_map(|process| Step::Enter { process, weight: 1, kind: Kind::Enter }),
        4 => (0..2_usize).prop_map(|process| Step::Release { process, which: 0 }),
        3 => Just(Step::Land),
        7 => (0..2_usize, prop_oneof![2 => Just(End::Stored), 1 => Just(End::Late)])
            .prop_map(|(process, end)| Step::Turn { process, end }),
        1 => step(),
    ]
}

fn limits() -> Vec<Limits> {
    let of = Limits::builder;
    [
        of().max(3),
        of().max(5).queue(4).timeout(Duration::from_secs(1)),
        of().max(2).reject(),
        of().max(4).rate(3, 1000_u64),
        of().rate(2, 500_u64).burst(3),
        of().max(1).rate(5, 2000_u64).queue(2),
    ]
    .map(|limits| limits.build().expect("they are fine"))
    .to_vec()
}

/// A process, by what it has in hand itself.
struct Process {
    member: Member,
    passes: Vec<u32>,
    asks: Vec<Ask>,
    /// The document in the version in which it was seen, if nobody else was in it, and when the store was asked last.
    known: Option<(u64, Document)>,
    doubted: Option<u64>,
    asked: Tick,
}

struct World {
    processes: Vec<Process>,
    dead: Vec<Member>,
    /// Turns on their way, each with the limits, the dead and the time that it went by.
    late: Vec<(Plan, Declared, Vec<Member>, Tick)>,
    /// Until when passes are good of which the store has forgotten.
    forgotten: Tick,
    document: Document,
    version: u64,
    model: Model,
    declared: Declared,
    now: Tick,
    numbers: u64,
    /// What the store kept before each swap, and which numbers were given out by then.
    past: Vec<(Document, u64, Model, u64)>,
    /// Who lived when the store forgot the last of it, and has not looked at it since.
    unaware: BTreeSet<Member>,
}

impl World {
    fn new() -> Self {
        let declared = Declared { at: Tick::from_nanos(1), limits: limits()[0], opens: Tick::ZERO };
        let process = |number| Process {
            member: Member(number),
            passes: Vec::new(),
            asks: Vec::new(),
            known: None,
            doubted: None,
            asked: Tick::ZERO,
        };
        World {
            processes: (1..=PROCESSES as u64).map(process).collect(),
            dead: Vec::new(),
            late: Vec::new(),
            forgotten: Tick::ZERO,
            document: Document::new(declared),
            version: 0,
            model: Model::new(declared),
            declared,
            now: Tick::from_nanos(1_700_000_000_000_000_000),
            numbers: 1000,
            past: Vec::new(),
            unaware: BTreeSet::new(),
        }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Enter { process, weight, kind } => {
                let ticket = self.number();
                self.processes[process].asks.push(Ask { ticket, weight, kind, has_joined: false });
            }
            Step::Withdraw { process, which } => {
                let asks = &mut self.processes[process].asks;
                if !asks.is_empty() {
                    asks.remove(which % asks.len());
                }
            }
            Step::Release { process, which } => {
                let passes = &mut self.processes[process].passes;
                if !passes.is_empty() {
                    passes.swap_remove(which % passes.len());
                }
            }
            Step::Die { process } => self.join_anew(process),
            Step::Forget { deaf } => {
                if !self.processes[deaf].passes.is_empty() {
                    self.forgotten = self.now.after(LEASE);
                }
                (0..PROCESSES).for_each(|process| self.join_anew(process));
                self.shut();
                (self.document, self.version) = (Document::new(self.declared), 0);
                self.model = Model::new(self.declared);
                self.late.clear();
                self.past.clear();
            }
            Step::Rollback { swaps } => self.roll_back(swaps),
            Step::Advance { millis } => self.now = self.now.after(Duration::from_millis(millis)),
            Step::SetLimits(which) => {
                let at = self.declared.at.after(Duration::from_nanos(1));
                self.declared = Declared { at, limits: limits()[which], ..self.declared };
            }
            Step::Turn { process, end } => self.turn(process, end),
            Step::Land => self.land(),
        }
        self.what_is_held_is_known();
    }

    /// Nobody starts for one lease.
    fn shut(&mut self) {
        let at = self.declared.at.after(Duration::from_nanos(1));
        self.declared = Declared { at, opens: self.now.after(LEASE), ..self.declared };
    }

    /// Of those it does not know yet it forgets that they live.
    fn roll_back(&mut self, swaps: usize) {
        let Some(at) = self.past.len().checked_sub(swaps) else { return };
        let Some((document, version, model, numbers)) = self.past.drain(at..).next() else { return };
        (self.document, self.version, self.model) = (document, version, model);
        self.late.clear();
        for process in 0..PROCESSES {
            let member = self.processes[process].member;
            if member.0 > numbers {
                self.join_anew(process);
            } else {
                self.unaware.insert(member);
            }
        }
    }

    /// The next version is kept.
    fn keep(&mut self, document: Document, version: u64) {
        self.past.push((self.document.clone(), self.version, self.model.clone(), self.numbers));
        (self.document, self.version) = (document, version);
    }

    fn land(&mut self) {
        let late = self.late.pop();
        if let Some((plan, declared, dead, asked)) = late.filter(|(plan, ..)| plan.version == self.version) {
            self.keep(plan.after, plan.next);
            let expected = self.model.turn(declared, &plan.item.stake, &dead, asked);
            self.agree(&plan.turn.fates, &expected);
        }
    }

    /// No process holds more than the store says, whoever was told what: else more than `max` could be out. Only one that has not
    /// looked since the store forgot may.
    fn what_is_held_is_known(&self) {
        for Process { member, passes, .. } in &self.processes {
            let is_known = passes.iter().sum::<u32>() <= self.told(*member);
            assert!(is_known || self.unaware.contains(member), "more are out than are known");
        }
    }

    fn told(&self, member: Member) -> u32 {
        let holders = &self.document.holders;
        holders.iter().find(|(holder, _)| *holder == member).map_or(0, |(_, in_use)| *in_use)
    }

    /// As one that nobody knows: what it had is lost, and who waits has to join the line anew.
    fn join_anew(&mut self, process: usize) {
        let number = self.number();
        let process = &mut self.processes[process];
        self.dead.push(std::mem::replace(&mut process.member, Member(number)));
        process.passes.clear();
        process.known = None;
        process.asks.iter_mut().for_each(|ask| ask.has_joined = false);
    }

    /// What a process would make of the lane: from what it knows, if time makes no difference to that, or from what is kept.
    /// Nothing, if it notices that the store forgot.
    fn plan(&mut self, process: usize) -> Option<(Plan, Vec<Member>, Tick)> {
        let next = self.number();
        let (now, declared) = (self.now, self.declared);
        let process = &mut self.processes[process];
        let held = process.passes.iter().sum();
        let stake = Stake { member: process.member, held, asks: process.asks.clone() };
        let is_timeless = |(_, document): &(u64, Document)| {
            document.declared == declared
                && declared.limits.rate().is_none()
                && declared.opens <= process.asked
        };
        let (is_loaded, version, before, dead) = match process.known.take().filter(is_timeless) {
            Some((version, document)) => (false, version, document, Vec::new()),
            None => {
                process.asked = now;
                (true, self.version, self.document.clone(), self.dead.clone())
            }
        };
        let asked = process.asked;
        let item = Item { name: "lane".into(), stake, known: None, doubted: process.doubted };
        let seen = Seen { now: asked, dead: dead.clone(), ..Seen::nothing() };
        let plan = Plan::new(item, (version, before), next, seen, is_loaded, &declared)?;
        Some((plan, dead, asked))
    }

    fn turn(&mut self, process: usize, end: End) {
        let Some((plan, dead, asked)) = self.plan(process) else {
            let member = self.processes[process].member;
            assert!(self.unaware.remove(&member), "it took for forgotten what was not");
            self.join_anew(process);
            return self.shut();
        };
        let is_change = plan.is_change();
        if end == End::Late && is_change {
            self.processes[process].doubted = Some(plan.version);
            return self.late.push((plan, self.declared, dead, asked));
        }
        if end == End::Conflict || (is_change && plan.version != self.version) {
            return;
        }
        let Plan { item, version, next, after, turn, is_loaded, .. } = plan;
        let stake = item.stake;
        let is_granted = turn.fates.contains(&Fate::Granted);
        assert!(!is_granted || self.now >= self.forgotten, "one was let in over a pass of before");
        if is_change || is_loaded {
            let in_use = self.document.in_use();
            match is_change {
                true => self.keep(after.clone(), next),
                false => self.document = after.clone(),
            }
            self.unaware.remove(&stake.member);
            let expected = self.model.turn(self.declared, &stake, &dead, asked);
            self.agree(&turn.fates, &expected);
            if let Some(max) = self.document.declared.limits.max() {
                assert!(self.document.in_use() <= max.max(in_use), "more than {max} went out");
            }
        } else {
            assert!(!is_granted, "let in without a word to the store");
        }
        if end == End::Unheard {
            return;
        }
        let process = &mut self.processes[process];
        for (ask, fate) in stake.asks.iter().zip(&turn.fates) {
            let at =
                process.asks.iter().position(|asked| asked.ticket == ask.ticket).expect("it is asked for");
            match fate {
                Fate::Waits => process.asks[at].has_joined = true,
                Fate::Granted if ask.kind == Kind::Check => drop(process.asks.remove(at)),
                Fate::Granted => process.passes.push(process.asks.remove(at).weight),
                Fate::Refused { .. } => drop(process.asks.remove(at)),
            }
        }
        let is_ours = after.members().iter().all(|member| *member == process.member);
        process.known = is_ours.then_some((if is_change { next } else { version }, after));
        if !is_change && !is_loaded {
            // It may have been handed something of which it has not heard.
            return;
        }
        let (held, member) = (process.passes.iter().sum::<u32>(), process.member);
        assert_eq!(self.told(member), held, "what is told of it is what it has");
    }

    fn agree(&self, fates: &[Fate], expected: &[Fate]) {
        let plain = |fate: &Fate| match fate {
            Fate::Refused { reason, .. } => Fate::refused(*reason),
            other => *other,
        };
        assert_eq!(fates.iter().map(plain).collect::<Vec<_>>(), expected);
        let line: Vec<(Member, u64, u32)> = self
            .document
            .line
            .iter()
            .flat_map(|run| (0..run.count).map(|at| (run.member, run.first + u64::from(at), run.weight)))
            .collect();
        assert_eq!(line, self.model.line);
        let held: BTreeMap<Member, u32> = self.document.holders.iter().copied().collect();
        let mut expected = self.model.held.clone();
        expected.retain(|_, held| *held > 0);
        assert_eq!(held, expected);
        assert_eq!((self.document.rate, self.document.declared), (self.model.rate, self.model.declared));
        assert_eq!(Document::from_bytes(&self.document.to_bytes()).as_ref(), Some(&self.document));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(debug_assertions) { 2_000 } else { 50_000 },
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("proptest-regressions"))),
        ..ProptestConfig::default()
    })]

    // Seen to fail: with one too heavy taken out of the line at once, an unheard turn made it a pass, and more than
    // `max` were out; with tickets sought in runs that are not in their order, those who wait were taken for let in;
    // with nobody held back before the gate opens, two were let in; with nothing swapped where the known document stays
    // as it was, one was let in without a word to the store; with nothing swapped where an earlier turn may still
    // arrive, that took away what had been given since; and with whoever stands in line no more taken for let in, though
    // the store knew of nobody who was, more than `max` went out.
    #[test]
    fn g1_a_fleet_agrees_with_its_model_whatever_happens(
        steps in prop_oneof![prop::collection::vec(step(), 1..80), prop::collection::vec(late_step(), 1..80)]
    ) {
        let mut world = World::new();
        steps.iter().for_each(|step| world.step(step));
    }
}
