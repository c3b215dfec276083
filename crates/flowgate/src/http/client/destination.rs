//! What is known of each key that requests go to.
//!
//! Owns the table of destinations, which is bounded, and for each its gate, its retry budget and the reset of
//! its rate. The gate decides who may start; this only moves its `max`.

use std::{collections::HashMap, sync::Arc, time::Duration};

use flowgate_core::{Ident, Key, OptionError, Reason, Refusal, Tick};
use http::HeaderMap;

use super::{
    budget::{Budget, Throttle},
    headers::{self, Concurrency},
    pace::Pace,
    verdict::{Limit, Refused},
};
use crate::{
    gate::{Gate, Pass},
    sync::{Mutex, lock},
};

const GATE: &str = "client";

/// What all destinations start with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) pace: Pace,
    pub(super) max_wait: Duration,
    pub(super) max_queue: u32,
    pub(super) queue_timeout: Duration,
    pub(super) retry_share: u32,
    pub(super) retry_reserve: u32,
    pub(super) is_throttled: bool,
}

impl Terms {
    /// The gate of a new destination.
    pub(super) fn gate(&self, key: &str) -> Result<Gate, OptionError> {
        let gate = Gate::builder().name(GATE).label(key).max(self.pace.ceiling);
        gate.queue(self.max_queue).timeout(self.queue_timeout).build()
    }
}

/// What is known of one key.
#[derive(Debug)]
pub(super) struct Destination {
    pub(super) key: String,
    pub(super) gate: Gate,
    pace: Pace,
    /// The longest rest.
    max_wait: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    budget: Budget,
    throttle: Option<Throttle>,
    /// The server's limit, once it has told it.
    limit: Option<u32>,
    rests_until: Tick,
}

impl Destination {
    fn new(key: &str, terms: &Terms) -> Self {
        let gate = terms.gate(key).expect("the builder has built a gate of these limits");
        let state = State {
            budget: Budget::new(terms.retry_share, terms.retry_reserve),
            throttle: terms.is_throttled.then(Throttle::new),
            limit: None,
            rests_until: Tick::ZERO,
        };
        let &Terms { pace, max_wait, .. } = terms;
        Destination { key: key.to_owned(), gate, pace, max_wait, state: Mutex::new(state) }
    }

    /// A request was made.
    pub(super) fn note_request(&self, now: Tick) {
        lock(&self.state).budget.note_request(now);
    }

    /// Takes one retry out of the budget, if there is one in it.
    pub(super) fn withdraw_retry(&self, now: Tick) -> bool {
        lock(&self.state).budget.withdraw(now)
    }

    /// Whether an attempt is dropped here and now.
    pub(super) fn drops(&self, now: Tick, random: impl FnOnce() -> f64) -> bool {
        if lock(&self.state).throttle.is_none() {
            return false;
        }
        // No user code under a lock of ours.
        let random = random();
        lock(&self.state).throttle.as_mut().is_some_and(|throttle| throttle.drops(now, random))
    }

    /// An attempt has ended.
    pub(super) fn note_end(&self, now: Tick, is_accepted: bool) {
        if let Some(throttle) = &mut lock(&self.state).throttle {
            throttle.note(now, is_accepted);
        }
    }

    /// Until when nothing is to be sent, for the rate is spent.
    pub(super) fn rests_until(&self) -> Tick {
        lock(&self.state).rests_until
    }

    /// What the server tells in the headers of a response is taken to heart.
    pub(super) fn hear(&self, pass: &Pass, headers: &HeaderMap, refused: Option<&Refused>, now: Tick) {
        if let Some(seen) = self.seen(headers, refused.is_some()) {
            let standing = pass.standing();
            // One who was refused is in flight here, and not at the server.
            let held = standing.in_use.saturating_sub(u32::from(refused.is_some()));
            let max = standing.max.unwrap_or(self.pace.ceiling);
            let next = self.pace.next(max, held, seen);
            // Of two who hear at once one may be lost: the next response mends that, and no lock is held while the gate wakes
            // those who wait there.
            if next != max
                && let Ok(limits) = self.gate.limits().with_max(next)
            {
                self.gate.set_limits(limits);
            }
        }
        // When it was the concurrency that refused, slots free up long before any reset.
        let is_about_slots = refused.is_some_and(|refused| refused.limit == Limit::Concurrency);
        // A reset too far away is not rested for: some servers tell a moment where a span should stand.
        if let Some(reset) = headers::spent_rate(headers)
            && reset <= self.max_wait
            && !is_about_slots
        {
            let mut state = lock(&self.state);
            state.rests_until = state.rests_until.max(now.after(reset));
        }
    }

    /// What a response says of the server's slots. Not all paths of a server have to be limited: one that says nothing, and
    /// does not refuse, is no reason to stay slow.
    fn seen(&self, headers: &HeaderMap, is_refused: bool) -> Option<Concurrency> {
        let mut state = lock(&self.state);
        let said = headers::concurrency(headers);
        if let Some(seen) = said {
            state.limit = Some(seen.limit);
        }
        let silent = state.limit.filter(|_| !is_refused).map(|limit| Concurrency { limit, remaining: limit });
        said.or(silent)
    }
}

/// All keys, at most `most`.
#[derive(Debug)]
pub(super) struct Destinations {
    terms: Terms,
    most: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    places: HashMap<String, Known>,
    uses: u64,
}

#[derive(Debug)]
struct Known {
    place: Arc<Destination>,
    last_use: u64,
}

impl Destinations {
    pub(super) fn new(terms: Terms, most: usize) -> Self {
        Destinations { terms, most, table: Mutex::default() }
    }

    /// The destination of this key. A new one takes the place of the one that was idle for longest; if all are in use, it is
    /// refused (`keys-full`).
    pub(super) fn enter(&self, key: &str) -> Result<Arc<Destination>, Refusal> {
        let mut table = lock(&self.table);
        table.uses += 1;
        let last_use = table.uses;
        if let Some(known) = table.places.get_mut(key) {
            known.last_use = last_use;
            return Ok(Arc::clone(&known.place));
        }
        let is_full = table.places.len() >= self.most;
        let forgotten = is_full.then(|| table.forget_one()).flatten();
        if is_full && forgotten.is_none() {
            let ident = Ident { gate: GATE.to_owned(), ..Ident::default() };
            return Err(Refusal::new(Arc::new(ident), Some(Key::new(key)), Reason::KeysFull));
        }
        let place = Arc::new(Destination::new(key, &self.terms));
        table.places.insert(key.to_owned(), Known { place: Arc::clone(&place), last_use });
        drop(table);
        // With the last of its gate, those are woken who listen there, and they may ask for a key then and there.
        drop(forgotten);
        Ok(place)
    }

    pub(super) fn gate(&self, key: &str) -> Option<Gate> {
        lock(&self.table).places.get(key).map(|known| known.place.gate.clone())
    }
}

impl Table {
    /// Forgets the idle one that was used least recently. Looks at all: there are thousands at most, and this happens only
    /// for keys that are new.
    fn forget_one(&mut self) -> Option<Known> {
        // Handed out under the lock only: who is here alone is idle.
        let idle = self.places.iter().filter(|(_, known)| Arc::strong_count(&known.place) == 1);
        let oldest = idle.min_by_key(|(_, known)| known.last_use).map(|(key, _)| key.clone());
        self.places.remove(&oldest?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms {
        pace: Pace { ceiling: 100, headroom: 25 },
        max_wait: Duration::from_secs(60),
        max_queue: 10,
        queue_timeout: Duration::from_secs(1),
        retry_share: 20,
        retry_reserve: 10,
        is_throttled: false,
    };

    fn headers(lines: &[(&'static str, u32)]) -> HeaderMap {
        lines.iter().map(|&(name, value)| (http::HeaderName::from_static(name), value.into())).collect()
    }

    #[test]
    fn the_idle_key_that_was_used_least_recently_makes_room() {
        // Seen to fail: with the latest idle key forgotten, `b` stays.
        let places = Destinations::new(TERMS, 2);
        let use_once = |key: &&str| drop(places.enter(key).unwrap());
        let known = |keys: [&str; 3]| keys.map(|key| places.gate(key).is_some());
        ["a", "b", "a", "c"].iter().for_each(use_once);
        assert_eq!(known(["a", "b", "c"]), [true, false, true]);

        let a = places.enter("a").unwrap();
        ["c", "d"].iter().for_each(use_once);
        assert_eq!(
            known(["a", "c", "d"]),
            [true, false, true],
            "one in use never leaves, though it is the oldest"
        );
        let d = places.enter("d").unwrap();
        assert_eq!(places.enter("e").unwrap_err().reason, Reason::KeysFull);
        drop(a);
        use_once(&"e");
        drop(d);
    }

    #[test]
    fn one_who_was_refused_is_not_in_flight_at_the_server() {
        // Seen to fail: with the refused one counted as held, `max` is 7.
        let places = Destinations::new(TERMS, 1);
        let place = places.enter("a").unwrap();
        let passes: Vec<_> = (0..10).map(|_| place.gate.try_enter().unwrap()).collect();
        let refused = Refused { reason: "busy".to_owned(), limit: Limit::Concurrency, is_retryable: true };
        let full = headers(&[("concurrency-limit", 12), ("concurrency-remaining", 0)]);
        place.hear(&passes[0], &full, Some(&refused), Tick::ZERO);
        assert_eq!(place.gate.limits().max(), Some(6), "nine at the server, three are missing");
    }

    #[test]
    fn a_response_that_says_nothing_of_slots_is_a_step_back_up() {
        // Seen to fail: with a refusal that says nothing taken for room, `max` is 2.
        let place = Destination::new("a", &TERMS);
        let pass = place.gate.try_enter().unwrap();
        let max_after = |headers: &HeaderMap, refused| {
            place.hear(&pass, headers, refused, Tick::ZERO);
            place.gate.limits().max()
        };
        let nothing = HeaderMap::new();
        assert_eq!(max_after(&nothing, None), Some(100), "no limit is known");
        assert_eq!(
            max_after(&headers(&[("concurrency-limit", 3), ("concurrency-remaining", 0)]), None),
            Some(1)
        );
        let refused = Refused { reason: "busy".to_owned(), limit: Limit::Concurrency, is_retryable: true };
        assert_eq!(max_after(&nothing, Some(&refused)), Some(1));
        assert_eq!([(); 3].map(|()| max_after(&nothing, None)), [Some(2), Some(3), Some(3)]);
    }

    #[test]
    fn a_spent_rate_rests_until_its_reset_unless_slots_were_what_was_missing() {
        // Seen to fail: without the exception, a refusal for want of slots rests for 44 s.
        let spent = headers(&[("ratelimit-remaining", 0), ("ratelimit-reset", 44)]);
        let now = Tick::ZERO.after(Duration::from_secs(5));
        let heard = |refused: Option<Limit>| {
            let place = Destination::new("a", &TERMS);
            let pass = place.gate.try_enter().unwrap();
            let refused = refused.map(|limit| Refused { reason: String::new(), limit, is_retryable: true });
            place.hear(&pass, &spent, refused.as_ref(), now);
            place.rests_until().since(now).as_secs()
        };
        assert_eq!(heard(None), 44);
        assert_eq!(heard(Some(Limit::Rate)), 44);
        assert_eq!(heard(Some(Limit::Concurrency)), 0);
    }
}
