//! A lane as a store keeps it: one small document that is changed as a whole.
//!
//! Owns who holds and who waits over a fleet, and the one step by which a process changes it:
//! [`Document::turn`]. It is pure: the store tells what time it is and whose lease ran out, and whether
//! anyone may start is asked of the core's [`Lane`]. It must never know what keeps it, nor who wakes whom.
//!
//! A process does not say what changed, it says what is true: how much its passes hold, and who of its own
//! waits. So a step that may or may not have been stored (the answer was lost with its connection) is put
//! right by the next one, and nothing can leak.

use std::{collections::VecDeque, time::Duration};

use flowgate_core::{Decision, Hold, Lane, Limits, RateLook, RateState, Reason, Tick};

/// One process as the stores know it, for as long as its lease is renewed: a number that is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Member(pub(crate) u64);

/// Limits, and since when they are the fleet's. The latest hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Declared {
    pub(crate) at: Tick,
    pub(crate) limits: Limits,
    /// Nobody starts before: the store forgot who holds what, and until then all who held something will have heard of it.
    pub(crate) opens: Tick,
}

/// A lane of the fleet. Its size goes by the processes that use it, not by passes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Document {
    pub(super) declared: Declared,
    pub(super) rate: RateState,
    /// What each member has in use; never zero.
    pub(super) holders: Vec<(Member, u32)>,
    pub(super) line: VecDeque<Run>,
}

/// Some of one member that stand in line one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) member: Member,
    pub(super) first: u64,
    pub(super) count: u32,
    pub(super) weight: u32,
}

/// What is true of one process in this lane.
#[derive(Clone, Debug)]
pub(crate) struct Stake {
    pub(crate) member: Member,
    /// What its passes hold.
    pub(crate) held: u32,
    /// Who of it waits or wants in, by rising ticket.
    pub(crate) asks: Vec<Ask>,
}

/// One that waits or wants in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) ticket: u64,
    pub(crate) weight: u32,
    pub(crate) kind: Kind,
    /// Whether it is known to have stood in line. Then it has a pass if it stands there no more.
    pub(crate) has_joined: bool,
}

/// What one wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A pass, in line if it must be.
    Enter,
    /// A pass now.
    Try,
    /// A start now, and no pass.
    Check,
}

/// What became of an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Granted,
    Waits,
    Refused { reason: Reason, retry_after: Option<Duration> },
}

/// What a turn came to.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    /// One for each ask.
    pub(crate) fates: Vec<Fate>,
    /// Who else was handed something, or has to look.
    pub(crate) woken: Vec<Member>,
    /// When time lets the head of the line start, if it is ours and waits for nothing else.
    pub(crate) due: Option<Tick>,
}

impl Document {
    /// A lane nobody uses.
    pub(crate) fn new(declared: Declared) -> Self {
        Document { declared, rate: RateState::default(), holders: Vec::new(), line: VecDeque::new() }
    }

    /// Changes the lane to what is true of one process at `now`, and hands what is free to whoever is next. `dead` are members
    /// whose leases ran out, and who can never come back.
    ///
    /// `None`, if less is kept than the process was told it has: the store forgot, and what others were given of it nobody
    /// knows.
    pub(crate) fn turn(
        &mut self,
        declared: &Declared,
        stake: &Stake,
        dead: &[Member],
        now: Tick,
    ) -> Option<Turn> {
        self.declare(declared, now);
        self.bury(dead);
        let limits = self.declared.limits;
        let mut turn = Turn { fates: vec![Fate::Waits; stake.asks.len()], woken: Vec::new(), due: None };

        // Who stands there and is not asked for any more leaves. Who stood there and does no more was handed a pass.
        let mut runs: Vec<Run> = self.line.iter().filter(|run| run.member == stake.member).copied().collect();
        runs.sort_unstable_by_key(|run| run.first);
        let stands = |ticket| {
            let run = runs.get(runs.partition_point(|run| run.tickets().end <= ticket));
            run.is_some_and(|run| run.tickets().contains(&ticket))
        };
        self.keep(stake.member, |ticket| stake.find(ticket).is_some());
        let (mut held, mut newcomers) = (stake.held, Vec::new());
        for (at, ask) in stake.asks.iter().enumerate() {
            match (stands(ask.ticket), ask.has_joined) {
                // It stays until it is not asked for any more: gone from the line, it would be taken for one with a pass.
                (true, _) if ask.weight > limits.heaviest() => {
                    turn.fates[at] = Fate::refused(Reason::TooHeavy);
                }
                (true, _) => {}
                (false, true) => {
                    // More than there can be, if the store forgot.
                    held = held.saturating_add(ask.weight);
                    turn.fates[at] = Fate::Granted;
                }
                (false, false) => newcomers.push(at),
            }
        }
        // What a process has it is told only when it is kept, and only by its own word does that become less.
        let kept = self.hold(stake.member, |in_use| std::mem::replace(in_use, held));
        if kept < held {
            return None;
        }

        let mut lane = self.lane();
        if now < self.declared.opens {
            lane.pause();
        }
        self.pump(&mut lane, stake, now, &mut turn);
        for at in newcomers {
            turn.fates[at] = self.enter(&mut lane, stake.member, &stake.asks[at], now);
        }
        self.rate = lane.rate();
        turn.due = self.due(&lane, stake.member, now);
        Some(turn)
    }

    /// How much is in use.
    pub(crate) fn in_use(&self) -> u32 {
        self.holders.iter().fold(0, |sum, (_, in_use)| sum.saturating_add(*in_use))
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> u32 {
        self.line.iter().fold(0, |sum, run| sum.saturating_add(run.count))
    }

    /// What is left of the rate.
    pub(crate) fn rate(&self, now: Tick) -> Option<RateLook> {
        self.declared.limits.rate().map(|rate| rate.look(self.rate, now))
    }

    /// Whom it speaks of.
    pub(crate) fn members(&self) -> Vec<Member> {
        let mut members: Vec<Member> = self
            .holders
            .iter()
            .map(|(member, _)| *member)
            .chain(self.line.iter().map(|run| run.member))
            .collect();
        members.sort_unstable();
        members.dedup();
        members
    }

    /// From when on an idle one says no more than a new one would.
    pub(crate) fn rests_at(&self) -> Tick {
        self.lane().rests_at(&self.declared.limits)
    }

    fn lane(&self) -> Lane {
        let mut lane = Lane::with_counts(self.in_use(), self.rate);
        lane.set_waiting(self.waiting());
        lane
    }

    /// The latest limits hold; what was spent stays spent.
    fn declare(&mut self, declared: &Declared, now: Tick) {
        if declared.at > self.declared.at {
            let mut lane = self.lane();
            lane.relimit(&self.declared.limits, &declared.limits, now);
            (self.rate, self.declared) = (lane.rate(), *declared);
        }
    }

    fn bury(&mut self, dead: &[Member]) {
        self.holders.retain(|(member, _)| !dead.contains(member));
        self.line.retain(|run| !dead.contains(&run.member));
    }

    fn hold<T>(&mut self, member: Member, change: impl FnOnce(&mut u32) -> T) -> T {
        let at = self.holders.iter().position(|(holder, _)| *holder == member);
        let at = at.unwrap_or_else(|| {
            self.holders.push((member, 0));
            self.holders.len() - 1
        });
        let changed = change(&mut self.holders[at].1);
        if self.holders[at].1 == 0 {
            self.holders.swap_remove(at);
        }
        changed
    }

    /// Hands what is free to the head of the line, again and again.
    fn pump(&mut self, lane: &mut Lane, stake: &Stake, now: Tick, turn: &mut Turn) {
        let limits = self.declared.limits;
        while let Some(&Run { member, first, weight, .. }) = self.line.front() {
            let own = stake.find(first).filter(|_| member == stake.member);
            let is_stuck = weight > limits.heaviest();
            if is_stuck || lane.hold(&limits, weight, now).is_some() {
                // Only its own process can tell it that it will never start.
                turn.woken.extend(Some(member).filter(|member| is_stuck && *member != stake.member));
                break;
            }
            lane.leave();
            lane.admit(&limits, weight, now);
            self.hold(member, |in_use| *in_use += weight);
            self.shift();
            match own {
                Some(at) => turn.fates[at] = Fate::Granted,
                None => turn.woken.push(member),
            }
        }
        turn.woken.sort_unstable();
        turn.woken.dedup();
    }

    fn enter(&mut self, lane: &mut Lane, member: Member, ask: &Ask, now: Tick) -> Fate {
        let limits = self.declared.limits;
        let reason = match (lane.decide(&limits, ask.weight, now), ask.kind) {
            (Decision::Admit, Kind::Check) => {
                lane.admit(&limits, ask.weight, now);
                lane.settle(ask.weight);
                return Fate::Granted;
            }
            (Decision::Admit, Kind::Enter | Kind::Try) => {
                lane.admit(&limits, ask.weight, now);
                self.hold(member, |in_use| *in_use += ask.weight);
                return Fate::Granted;
            }
            (Decision::Wait(_), Kind::Enter) => {
                lane.join();
                self.push(Run { member, first: ask.ticket, count: 1, weight: ask.weight });
                return Fate::Waits;
            }
            (Decision::Wait(hold), Kind::Try | Kind::Check) => hold.reason(),
            (Decision::Refuse(Reason::QueueFull), Kind::Try | Kind::Check) => Reason::Busy,
            (Decision::Refuse(reason), _) => reason,
        };
        if reason == Reason::Paused {
            let retry_after = Some(self.declared.opens.since(now));
            return Fate::Refused { reason: Reason::Unreachable, retry_after };
        }
        let rate = limits.rate().filter(|_| reason == Reason::Rate);
        let until = rate.and_then(|rate| rate.spend(lane.rate(), now).err());
        Fate::Refused { reason, retry_after: until.map(|until| until.since(now)) }
    }

    /// When time alone lets the head start, if it is this member's. Others need not look: it will, or its lease runs out.
    fn due(&self, lane: &Lane, member: Member, now: Tick) -> Option<Tick> {
        let head = self.line.front().filter(|head| head.member == member)?;
        match lane.hold(&self.declared.limits, head.weight, now) {
            Some(Hold::Rate { until }) => Some(until),
            Some(Hold::Paused) => Some(self.declared.opens),
            _ => None,
        }
    }

    /// The last in line is now this one.
    fn push(&mut self, run: Run) {
        match self.line.back_mut() {
            Some(last) if last.goes_on_with(&run) => last.count += run.count,
            _ => self.line.push_back(run),
        }
    }

    /// The head has left.
    fn shift(&mut self) {
        let Some(head) = self.line.front_mut() else { return };
        (head.first, head.count) = (head.first + 1, head.count - 1);
        if head.count == 0 {
            self.line.pop_front();
        }
    }

    /// Of this member's only some stay in line, all in their order.
    fn keep(&mut self, member: Member, stays: impl Fn(u64) -> bool) {
        if self.line.iter().filter(|run| run.member == member).all(|run| run.tickets().all(&stays)) {
            return;
        }
        for run in std::mem::take(&mut self.line) {
            if run.member != member {
                self.push(run);
                continue;
            }
            for first in run.tickets().filter(|&ticket| stays(ticket)) {
                self.push(Run { first, count: 1, ..run });
            }
        }
    }
}

impl Run {
    fn tickets(&self) -> std::ops::Range<u64> {
        self.first..self.first + u64::from(self.count)
    }

    fn goes_on_with(&self, next: &Run) -> bool {
        (self.member, self.weight) == (next.member, next.weight) && self.tickets().end == next.first
    }
}

impl Stake {
    fn find(&self, ticket: u64) -> Option<usize> {
        self.asks.binary_search_by_key(&ticket, |ask| ask.ticket).ok()
    }
}

impl Fate {
    pub(crate) const fn refused(reason: Reason) -> Self {
        Fate::Refused { reason, retry_after: None }
    }
}
