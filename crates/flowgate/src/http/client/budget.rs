//! How much may be sent again, and what is not sent at all, so that an overload does not become permanent.
//!
//! Owns the counts of the last seconds and the two rules over them: the retry budget, and the chance by which a client drops
//! its own requests while a server refuses most of them. It reads no clock.

use std::time::Duration;

use flowgate_core::Tick;

const BUDGET_SPAN: Duration = Duration::from_secs(10);
const THROTTLE_SPAN: Duration = Duration::from_secs(120);
const SLOTS: usize = 10;

/// Two counts over a sliding span, which moves by a tenth of itself.
#[derive(Debug)]
struct Window {
    slot: Duration,
    slots: [Slot; SLOTS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Which slot of all time this is, counted from 1.
    number: u64,
    counts: [u64; 2],
}

impl Window {
    fn new(span: Duration) -> Self {
        Window { slot: span / SLOTS as u32, slots: [Slot::default(); SLOTS] }
    }

    fn number(&self, now: Tick) -> u64 {
        let slots = now.since(Tick::ZERO).as_nanos() / self.slot.as_nanos();
        u64::try_from(slots).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn add(&mut self, now: Tick, which: usize) {
        let number = self.number(now);
        let slot = &mut self.slots[(number % SLOTS as u64) as usize];
        if slot.number != number {
            *slot = Slot { number, counts: [0; 2] };
        }
        slot.counts[which] += 1;
    }

    fn totals(&self, now: Tick) -> [u64; 2] {
        let number = self.number(now);
        let oldest = number.saturating_sub(SLOTS as u64 - 1).max(1);
        let current = self.slots.iter().filter(|slot| (oldest..=number).contains(&slot.number));
        current.fold([0; 2], |sum, slot| [sum[0] + slot.counts[0], sum[1] + slot.counts[1]])
    }
}

/// How many retries there may be: a share of the requests of the last ten seconds, and a small reserve for those who send
/// little.
#[derive(Debug)]
pub(super) struct Budget {
    share: u32,
    reserve: u32,
    window: Window,
}

const REQUESTS: usize = 0;
const RETRIES: usize = 1;

impl Budget {
    /// `share` in percent, `reserve` in retries.
    pub(super) fn new(share: u32, reserve: u32) -> Self {
        Budget { share, reserve, window: Window::new(BUDGET_SPAN) }
    }

    /// A request was made; its retries are not.
    pub(super) fn note_request(&mut self, now: Tick) {
        self.window.add(now, REQUESTS);
    }

    /// Takes one retry out of the budget, if there is one in it.
    pub(super) fn withdraw(&mut self, now: Tick) -> bool {
        let totals = self.window.totals(now);
        let allowed = totals[REQUESTS] * u64::from(self.share) / 100 + u64::from(self.reserve);
        let is_allowed = totals[RETRIES] < allowed;
        if is_allowed {
            self.window.add(now, RETRIES);
        }
        is_allowed
    }
}

/// Drops requests before they are sent while most are refused, over the last two minutes.
///
/// Counted is what has an end: a request in flight says nothing yet, and many slow ones at once are no overload.
#[derive(Debug)]
pub(super) struct Throttle {
    window: Window,
}

const ENDED: usize = 0;
const ACCEPTED: usize = 1;

impl Throttle {
    pub(super) fn new() -> Self {
        Throttle { window: Window::new(THROTTLE_SPAN) }
    }

    /// An attempt has ended.
    pub(super) fn note(&mut self, now: Tick, is_accepted: bool) {
        self.window.add(now, ENDED);
        if is_accepted {
            self.window.add(now, ACCEPTED);
        }
    }

    /// Whether this one, with this `random`, is not to be sent; then it is counted as refused.
    pub(super) fn drops(&mut self, now: Tick, random: f64) -> bool {
        let totals = self.window.totals(now);
        let is_dropped = random < drop_chance(totals[ENDED], totals[ACCEPTED]);
        if is_dropped {
            self.note(now, false);
        }
        is_dropped
    }
}

/// `max(0, (requests − 2 × accepts) / (requests + 1))`: nothing while half of them are accepted, and never quite all, so that
/// the end of an overload is noticed.
fn drop_chance(requests: u64, accepts: u64) -> f64 {
    requests.saturating_sub(accepts.saturating_mul(2)) as f64 / (requests + 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::ZERO.after(Duration::from_millis(millis))
    }

    fn withdrawn(budget: &mut Budget, now: Tick) -> usize {
        (0..1_000).take_while(|_| budget.withdraw(now)).count()
    }

    #[test]
    fn retries_are_a_share_of_the_requests_and_a_reserve() {
        // Seen to fail: without the reserve, who sends little has no retry.
        for (share, reserve, requests, retries) in [
            (20, 10, 0, 10),
            (20, 10, 100, 30),
            (20, 0, 100, 20),
            (20, 0, 4, 0),
            (20, 0, 5, 1),
            (0, 0, 100, 0),
        ] {
            let mut budget = Budget::new(share, reserve);
            (0..requests).for_each(|_| budget.note_request(at(5_000)));
            assert_eq!(
                withdrawn(&mut budget, at(5_000)),
                retries,
                "{share} %, {reserve}, {requests} requests"
            );
        }
    }

    #[test]
    fn the_window_slides() {
        // Seen to fail: with all slots counted, what is older than ten seconds allows ten retries more.
        let mut budget = Budget::new(20, 0);
        (0..100).for_each(|_| budget.note_request(at(500)));
        (0..50).for_each(|_| budget.note_request(at(5_500)));
        assert_eq!(withdrawn(&mut budget, at(9_900)), 30, "all are younger than ten seconds");
        (0..50).for_each(|_| budget.note_request(at(12_000)));
        assert_eq!(
            withdrawn(&mut budget, at(12_000)),
            0,
            "100 requests are left, and 30 retries of the last 10 s"
        );
        assert_eq!(withdrawn(&mut budget, at(19_900)), 10, "50 requests are left, and no retries");
        assert_eq!(withdrawn(&mut budget, at(3_600_000)), 0, "nothing is left of all that");
    }

    #[test]
    fn the_chance_to_drop_is_that_of_the_lessons() {
        // Seen to fail: without the factor 2, some are dropped while half are accepted.
        for (requests, accepts, chance) in [
            (0, 0, 0.0),
            (10, 10, 0.0),
            (10, 5, 0.0),
            (10, 4, 2.0 / 11.0),
            (99, 0, 0.99),
            (1, 0, 0.5),
            (4, 9, 0.0),
        ] {
            assert_eq!(drop_chance(requests, accepts), chance, "{accepts} of {requests}");
        }
    }

    #[test]
    fn what_is_dropped_counts_as_refused_until_the_window_has_passed() {
        // Seen to fail: with the dropped ones not counted, the chance does not grow.
        let mut throttle = Throttle::new();
        (0..10).for_each(|_| throttle.note(at(1_000), true));
        assert!(!throttle.drops(at(1_000), 0.0), "all were accepted");
        (0..13).for_each(|_| throttle.note(at(2_000), false));
        assert!(!throttle.drops(at(2_000), 0.2), "23 and 10: a chance of 3 in 24");
        assert!(throttle.drops(at(2_000), 0.1));
        assert!(throttle.drops(at(2_000), 0.15), "24 and 10: a chance of 4 in 25");
        assert!(throttle.drops(at(119_000), 0.1));
        assert!(!throttle.drops(at(300_000), 0.0), "nothing is known any more");
    }
}
