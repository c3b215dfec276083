//! A workload under limits, in virtual time.
//!
//! Owns the time that is jumped through and the lines that wait; what a gate keeps in its desks, without their locks, wakers and
//! alarms. It decides nothing: `Lane::decide`, `Lane::hold`, `Rate` and `Discipline` of the core do, at the moments this file
//! finds. At one moment, in this order: waits that are over, rates that refill, lines that are due, work that ends, who comes.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use flowgate_core::{Backlog, Decision, Discipline, End, Hold, Lane, Limits, Reason, Tick};

use super::{
    tally::Tally,
    workload::{Arrival, Workload},
};

/// Something that will happen: when, what first at the same moment, and to whom.
type Moment = (u64, Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A lane's rate allows one more.
    Refill { lane: u32 },
    /// A line wants to be looked at.
    Look { lane: u32 },
    /// Work ends; by the number of its arrival.
    End { number: u64, lane: u32, weight: u32 },
}

/// One in line.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    arrival: Arrival,
    number: u64,
}

#[derive(Debug, Default)]
struct Road {
    lane: Lane,
    row: VecDeque<Waiter>,
    /// Under CoDel, while somebody waits.
    backlog: Option<Standing>,
    is_timed: bool,
    busy: u128,
    busy_at: u64,
}

#[derive(Clone, Copy, Debug)]
struct Standing {
    backlog: Backlog,
    /// For whom free slots are kept, by number.
    kept_for: Option<u64>,
    look_at: u64,
}

struct Engine<'a> {
    limits: &'a Limits,
    roads: Vec<Road>,
    moments: BinaryHeap<Reverse<Moment>>,
    /// Everybody who joined a line, in the order of arrival: all may wait equally long. Some have left since.
    patience: VecDeque<(u64, u64, u32)>,
    tally: Tally,
    now: u64,
    close: u64,
    in_use: u32,
    waiting: u32,
    counted_at: u64,
}

/// How many come between two words to whoever watches.
const BETWEEN: u64 = 1 << 16;

/// Plays the workload to its end. Whoever watches is told now and then how many have come.
pub(super) fn play(limits: &Limits, workload: &Workload, mut watch: impl FnMut(u64)) -> Tally {
    let window = workload.window().map(|span| span.as_nanos() as u64);
    let mut engine = Engine {
        limits,
        roads: (0..workload.keys()).map(|_| Road::default()).collect(),
        moments: BinaryHeap::new(),
        patience: VecDeque::new(),
        tally: Tally::new(),
        now: 0,
        close: window.unwrap_or(u64::MAX),
        in_use: 0,
        waiting: 0,
        counted_at: 0,
    };
    let mut arrivals = (0..).zip(workload.arrivals()).peekable();
    loop {
        let coming = arrivals.peek().map_or(u64::MAX, |(_, arrival)| arrival.at);
        let due = engine.next_due();
        if coming == u64::MAX && due == u64::MAX {
            break;
        }
        engine.move_to(coming.min(due));
        if due <= coming {
            engine.happen();
        } else if let Some((number, arrival)) = arrivals.next() {
            if number % BETWEEN == BETWEEN - 1 {
                watch(number + 1);
            }
            engine.arrive(number, arrival);
        }
    }
    engine.finish(window)
}

impl Engine<'_> {
    fn tick(&self) -> Tick {
        Tick::from_nanos(self.now)
    }

    /// When something happens by itself.
    fn next_due(&mut self) -> u64 {
        let moment = self.moments.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        moment.min(self.next_timeout())
    }

    /// When the first one in line has waited too long.
    fn next_timeout(&mut self) -> u64 {
        let Some(timeout) = self.limits.timeout() else { return u64::MAX };
        while let Some(&(since, number, lane)) = self.patience.front() {
            // Who left its row from the front, or as the newest, is not there any more.
            if position(&self.roads[lane as usize].row, number).is_some() {
                return Tick::from_nanos(since).after(timeout).as_nanos();
            }
            self.patience.pop_front();
        }
        u64::MAX
    }

    fn move_to(&mut self, now: u64) {
        if self.now < self.close && now >= self.close {
            self.tally.left = self.waiting;
        }
        self.now = now;
    }

    /// Everything that is due at this moment, in its order.
    fn happen(&mut self) {
        self.turn_away_impatient();
        while let Some(&Reverse((at, kind))) = self.moments.peek()
            && at <= self.now
        {
            self.moments.pop();
            match kind {
                Kind::Refill { lane } => {
                    self.roads[lane as usize].is_timed = false;
                    self.pump(lane);
                }
                // Of the looks that were asked for, the latest counts.
                Kind::Look { lane } => {
                    if self.roads[lane as usize].backlog.is_some_and(|standing| standing.look_at == at) {
                        self.pump(lane);
                    }
                }
                Kind::End { lane, weight, .. } => self.end(lane, weight),
            }
        }
    }

    /// All whose time is over leave before anybody has their chance: nobody starts after its own time.
    fn turn_away_impatient(&mut self) {
        let mut lanes = Vec::new();
        while self.next_timeout() <= self.now
            && let Some((_, number, lane)) = self.patience.pop_front()
        {
            self.turn_away(lane, number);
            lanes.push(lane);
        }
        lanes.into_iter().for_each(|lane| self.pump(lane));
    }

    fn arrive(&mut self, number: u64, arrival: Arrival) {
        let now = self.tick();
        let road = &mut self.roads[arrival.key as usize];
        match road.lane.decide(self.limits, arrival.weight, now) {
            Decision::Admit => {
                road.lane.admit(self.limits, arrival.weight, now);
                self.start(Waiter { arrival, number });
            }
            Decision::Refuse(reason) => self.tally.refused(reason),
            Decision::Wait(hold) => self.join(Waiter { arrival, number }, hold),
        }
    }

    fn join(&mut self, waiter: Waiter, hold: Hold) {
        let (key, now) = (waiter.arrival.key, self.tick());
        let road = &mut self.roads[key as usize];
        road.lane.join();
        road.row.push_back(waiter);
        if self.limits.timeout().is_some() {
            self.patience.push_back((self.now, waiter.number, key));
        }
        self.note_waiting(1);
        if let Hold::Rate { until } = hold {
            self.refill_at(key, until);
        }
        if self.limits.discipline() != Discipline::Fifo && self.roads[key as usize].backlog.is_none() {
            let mut backlog = Backlog::new(now);
            backlog.held(hold, now);
            self.stand(key, backlog, None);
        }
    }

    /// Who has been admitted starts.
    fn start(&mut self, waiter: Waiter) {
        let Waiter { arrival, number } = waiter;
        let kind = Kind::End { number, lane: arrival.key, weight: arrival.weight };
        self.moments.push(Reverse((self.now.saturating_add(arrival.duration), kind)));
        self.tally.started(self.now - arrival.at);
        self.count(arrival.key, i64::from(arrival.weight));
        self.tally.most_in_use = self.tally.most_in_use.max(self.in_use);
    }

    fn end(&mut self, lane: u32, weight: u32) {
        self.roads[lane as usize].lane.settle(weight);
        self.count(lane, -i64::from(weight));
        self.tally.last = self.now;
        self.tally.ended += u64::from(self.now <= self.close);
        self.pump(lane);
    }

    /// Hands over to whoever is next for as long as nothing holds it.
    fn pump(&mut self, lane: u32) {
        let now = self.tick();
        self.turn_away_late(lane);
        while let Some(at) = self.next_in(lane) {
            let road = &mut self.roads[lane as usize];
            let waiter = road.row[at];
            match road.lane.hold(self.limits, waiter.arrival.weight, now) {
                None => {
                    road.lane.admit(self.limits, waiter.arrival.weight, now);
                    self.part(lane, at);
                    self.start(waiter);
                }
                Some(hold) => {
                    if let Hold::Rate { until } = hold {
                        self.refill_at(lane, until);
                    }
                    if !self.halt(lane, waiter.number, hold) {
                        return;
                    }
                }
            }
        }
    }

    /// Where in its row the one stands who is next.
    fn next_in(&self, lane: u32) -> Option<usize> {
        let road = &self.roads[lane as usize];
        let last = road.row.len().checked_sub(1)?;
        let Some(standing) = road.backlog else { return Some(0) };
        match self.limits.discipline().next(standing.backlog, self.tick()) {
            End::Oldest => Some(0),
            End::Newest => {
                let kept = standing.kept_for.and_then(|number| position(&road.row, number));
                Some(kept.unwrap_or(last))
            }
        }
    }

    /// The row has come to a halt. Says whether another is next for that.
    fn halt(&mut self, lane: u32, number: u64, hold: Hold) -> bool {
        let now = self.tick();
        let road = &self.roads[lane as usize];
        let Some(Standing { mut backlog, .. }) = road.backlog else { return false };
        backlog.held(hold, now);
        let has_room = self.limits.max().is_some_and(|max| road.lane.in_use() < max);
        let kept_for = (hold == Hold::Slots && has_room).then_some(number);
        self.stand(lane, backlog, kept_for);
        let road = &self.roads[lane as usize];
        self.next_in(lane).is_some_and(|at| road.row[at].number != number)
    }

    fn stand(&mut self, lane: u32, backlog: Backlog, kept_for: Option<u64>) {
        let road = &mut self.roads[lane as usize];
        let oldest = Tick::from_nanos(road.row.front().map_or(self.now, |waiter| waiter.arrival.at));
        let now = Tick::from_nanos(self.now);
        let look_at = self.limits.discipline().look_at(backlog, oldest, now).as_nanos().max(self.now);
        let known = road.backlog.replace(Standing { backlog, kept_for, look_at }).map(|known| known.look_at);
        if known != Some(look_at) && look_at != u64::MAX {
            self.moments.push(Reverse((look_at, Kind::Look { lane })));
        }
    }

    /// Turns away those who have waited too long by the discipline.
    fn turn_away_late(&mut self, lane: u32) {
        let now = self.tick();
        while let Some(standing) = self.roads[lane as usize].backlog
            && let Some(oldest) = self.roads[lane as usize].row.front()
            && self.limits.discipline().deadline(standing.backlog, Tick::from_nanos(oldest.arrival.at), now)
                <= now
        {
            self.turn_away(lane, oldest.number);
        }
    }

    fn turn_away(&mut self, lane: u32, number: u64) {
        if let Some(at) = position(&self.roads[lane as usize].row, number) {
            self.part(lane, at);
            self.tally.refused(Reason::QueueTimeout);
        }
    }

    /// One leaves its row.
    fn part(&mut self, lane: u32, at: usize) {
        let road = &mut self.roads[lane as usize];
        let parted = road.row.remove(at).map(|waiter| waiter.number);
        road.lane.leave();
        if road.row.is_empty() {
            road.backlog = None;
        } else if let Some(standing) = &mut road.backlog
            && standing.kept_for == parted
        {
            standing.kept_for = None;
        }
        self.note_waiting(-1);
    }

    fn refill_at(&mut self, lane: u32, until: Tick) {
        let road = &mut self.roads[lane as usize];
        if !std::mem::replace(&mut road.is_timed, true) {
            self.moments.push(Reverse((until.as_nanos(), Kind::Refill { lane })));
        }
    }

    fn note_waiting(&mut self, change: i32) {
        self.waiting = self.waiting.saturating_add_signed(change);
        self.tally.most_waiting = self.tally.most_waiting.max(self.waiting);
        self.tally.timeline.note(self.now, self.waiting);
    }

    /// What is in use changes: what was until now is counted.
    fn count(&mut self, lane: u32, change: i64) {
        let until = self.now.min(self.close);
        let road = &mut self.roads[lane as usize];
        // The lane's own count has changed already.
        let before = (i64::from(road.lane.in_use()) - change).unsigned_abs();
        road.busy += u128::from(before) * u128::from(until.saturating_sub(road.busy_at));
        road.busy_at = until;
        self.tally.busy += u128::from(self.in_use) * u128::from(until.saturating_sub(self.counted_at));
        self.counted_at = until;
        self.in_use = (i64::from(self.in_use) + change).unsigned_abs() as u32;
    }

    fn finish(mut self, window: Option<u64>) -> Tally {
        self.tally.timeline.note(self.now.min(window.unwrap_or(self.now)), self.waiting);
        self.tally.window = window.unwrap_or(self.tally.last);
        self.tally.busiest = self.roads.iter().map(|road| road.busy).max().unwrap_or(0);
        self.tally
    }
}

/// Where in a row one stands; most often at an end of it.
fn position(row: &VecDeque<Waiter>, number: u64) -> Option<usize> {
    match (row.front(), row.back()) {
        (Some(first), _) if first.number == number => Some(0),
        (_, Some(last)) if last.number == number => Some(row.len() - 1),
        // Rows are in the order of arrival.
        _ => row.binary_search_by_key(&number, |waiter| waiter.number).ok(),
    }
}
