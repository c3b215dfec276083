//! What a worker has at hand: when one of it starts, and when it goes back to its line.
//!
//! Owns the way between the stock and what is held. It never asks the store: the next turn tells it.

use super::Desk;
use crate::{
    store::{End, Turned},
    worker::clock,
};

/// So many keys whose limits changed during one turn are told apart.
const MOST_CHANGED: usize = 64;

impl Desk {
    /// Limits changed of this key, or of any. What is at hand was claimed under others, and what a turn under way claims may be.
    pub(super) fn limits_changed(&mut self, key: Option<i64>) {
        self.hand_back(key);
        if self.turn.is_some() && self.options.prefetch.is_some() && !self.changed.contains(&key) {
            self.changed.push(key);
            if self.changed.len() > MOST_CHANGED {
                self.changed = vec![None];
            }
        }
    }

    /// What is at hand of this key, or all of it, goes back to its line.
    pub(super) fn hand_back(&mut self, key: Option<i64>) {
        let back = match key {
            Some(key) => self.stock.take_key(key),
            None => self.stock.take_all(),
        };
        self.held.settle_unstarted(back, &End::Returned);
    }

    /// What ended makes room for what was claimed ahead, in its own queue.
    pub(super) fn replace(&mut self) {
        // Under a lease that is over, they may be somebody else's by now.
        if self.stock.len() == 0 || self.lease.is_over() {
            return;
        }
        let mut returned = Vec::new();
        for place in self.held.vacancies(self.stock.len()) {
            let started = self.stock.start_one(&place, clock::now());
            if let Some(key) =
                place.place.key.filter(|_| started.as_ref().is_none_or(|(task, _)| task.place.key.is_none()))
            {
                // The key has room that none of these took: now others might overtake them.
                returned.extend(self.stock.take_key(key));
            }
            if let Some((task, by)) = started {
                self.held.fill(place.of);
                self.held.start(task, by, &self.handlers);
            }
        }
        self.held.settle_unstarted(returned, &End::Returned);
    }

    /// Gives back what is too late to start, and stops what may be somebody else's.
    pub(super) fn mind_the_stock(&mut self) {
        self.replace();
        let now = clock::now();
        let mut late = self.stock.take_late(now);
        // Those behind it do not overtake it.
        let keys: Vec<i64> = late.iter().filter_map(|task| task.place.key).collect();
        late.extend(keys.into_iter().flat_map(|key| self.stock.take_key(key)));
        self.held.settle_unstarted(late, &End::Returned);
        for id in self.stock.take_doubtful(now) {
            self.lose(id);
        }
    }

    /// What was claimed by a turn that was under way when everything was stopped goes back as it was.
    pub(super) fn return_claimed(&mut self, turned: &mut Turned) {
        let claimed = turned.claimed.drain(..).chain(turned.ahead.drain(..)).collect();
        self.held.settle_unstarted(claimed, &End::Returned);
    }

    pub(super) fn return_stock(&mut self) {
        self.replace();
        self.held.settle_unstarted(self.stock.take_all(), &End::Returned);
    }
}
