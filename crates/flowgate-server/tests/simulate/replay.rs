//! A trace played through a real gate of the library, under a clock moved by hand.
//!
//! Time jumps from one arrival, end or alarm of the gate to the next, so nothing is rounded and nothing depends on the machine.

use std::{cmp::Reverse, collections::BinaryHeap, fs, time::Duration};

use flowgate::{KeyedGate, Limits, Pass, Reason, Refusal, Tick, clock::Clock};
use flowgate_testkit::{Driven, FakeClock};

/// One line of a trace.
pub(crate) struct Arrival {
    pub(crate) at: u64,
    pub(crate) duration: u64,
    pub(crate) key: String,
    pub(crate) weight: u32,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Played {
    pub(crate) started: u64,
    /// In nanoseconds, of those who started.
    pub(crate) waited: u128,
    pub(crate) longest: u64,
    pub(crate) refusals: [u64; Reason::ALL.len()],
    /// When each ended, in nanoseconds.
    pub(crate) ends: Vec<u64>,
}

type Waiting<'a> = (u64, usize, Driven<'a, Result<Pass, Refusal>>);

struct Player<'a> {
    gate: &'a KeyedGate,
    clock: &'a FakeClock,
    begin: Tick,
    arrivals: &'a [Arrival],
    waiting: Vec<Waiting<'a>>,
    running: BinaryHeap<Reverse<(u64, usize)>>,
    passes: Vec<Option<Pass>>,
    played: Played,
}

/// Plays the trace at `path` under these limits.
pub(crate) fn play(path: &str, limits: Limits) -> Played {
    let arrivals = read(path);
    let clock = FakeClock::new();
    let gate =
        flowgate::Gate::builder().max(1).keyed().max_keys(100_000).clock(clock.clone()).build().unwrap();
    gate.set_limits(limits).unwrap();
    let mut player = Player {
        gate: &gate,
        clock: &clock,
        begin: clock.now(),
        arrivals: &arrivals,
        waiting: Vec::new(),
        running: BinaryHeap::new(),
        passes: arrivals.iter().map(|_| None).collect(),
        played: Played::default(),
    };
    player.run();
    player.played
}

impl Player<'_> {
    fn run(&mut self) {
        let mut next = 0;
        loop {
            let coming = self.arrivals.get(next).map(|arrival| arrival.at);
            let ending = self.running.peek().map(|Reverse((at, _))| *at);
            let ringing = self.clock.next_alarm().map(|at| at.since(self.begin).as_nanos() as u64);
            // Only an alarm that somebody waits for is worth a stop; others are for the gate alone.
            let ringing = ringing.filter(|_| !self.waiting.is_empty());
            let Some(at) = [coming, ending, ringing].into_iter().flatten().min() else { return };
            self.clock.advance(Duration::from_nanos(at - self.now().min(at)));
            self.hear();
            while let Some(&Reverse((end, number))) = self.running.peek()
                && end <= at
            {
                self.running.pop();
                drop(self.passes[number].take());
                self.played.ends.push(end);
                self.hear();
            }
            while self.arrivals.get(next).is_some_and(|arrival| arrival.at <= at) {
                self.arrive(next);
                next += 1;
            }
        }
    }

    fn now(&self) -> u64 {
        self.clock.now().since(self.begin).as_nanos() as u64
    }

    fn arrive(&mut self, number: usize) {
        let Arrival { key, weight, .. } = &self.arrivals[number];
        let mut entry = Driven::new(self.gate.enter_key(key).weight(*weight));
        match entry.poll() {
            Some(outcome) => self.settle(number, outcome),
            None => self.waiting.push((self.now(), number, entry)),
        }
    }

    /// Everybody who was woken learns what became of it, in the order of arrival.
    fn hear(&mut self) {
        let mut at = 0;
        while at < self.waiting.len() {
            let (_, number, entry) = &mut self.waiting[at];
            let number = *number;
            match (entry.woken() > 0).then(|| entry.poll()).flatten() {
                Some(outcome) => {
                    self.settle(number, outcome);
                    self.waiting.remove(at);
                }
                None => at += 1,
            }
        }
    }

    fn settle(&mut self, number: usize, outcome: Result<Pass, Refusal>) {
        let Arrival { at, duration, .. } = self.arrivals[number];
        match outcome {
            Ok(pass) => {
                let wait = self.now() - at;
                self.played.started += 1;
                self.played.waited += u128::from(wait);
                self.played.longest = self.played.longest.max(wait);
                self.passes[number] = Some(pass);
                self.running.push(Reverse((self.now() + duration, number)));
            }
            Err(refusal) => self.played.refusals[refusal.reason.index()] += 1,
        }
    }
}

/// The trace as `simulate --save-trace` writes it.
pub(crate) fn read(path: &str) -> Vec<Arrival> {
    let text = fs::read_to_string(path).unwrap();
    let nanos = |millis: &str| {
        let (whole, rest) = millis.split_once('.').unwrap();
        whole.parse::<u64>().unwrap() * 1_000_000 + rest.parse::<u64>().unwrap()
    };
    let arrival = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        Arrival {
            at: nanos(cells[0]),
            duration: nanos(cells[1]),
            key: cells[2].to_owned(),
            weight: cells[3].parse().unwrap(),
        }
    };
    text.lines().skip(1).map(arrival).collect()
}
