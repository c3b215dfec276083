//! Everybody's figures, and ours beside them.
//!
//! Owns the medians, who is best, and the names of the cases made from names of contestants.

use std::collections::BTreeMap;

use super::contestant::{OURS, ROLL, Store};
use crate::{
    measure::median,
    report::{Goal, Question},
    suite::Suite,
};

/// The figures of one question, by contestant, a figure for each round.
#[derive(Default)]
pub(super) struct Standings(BTreeMap<&'static str, Vec<f64>>);

/// Which figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    More,
    Less,
}

impl Standings {
    pub(super) fn note(&mut self, name: &'static str, figure: f64) {
        self.0.entry(name).or_default().push(figure);
    }

    /// The median of one; not a number if there is none.
    pub(super) fn of(&self, name: &str) -> f64 {
        self.0.get(name).map_or(f64::NAN, |figures| median(figures.clone()))
    }

    pub(super) fn ours(&self) -> f64 {
        self.of(OURS)
    }

    /// The best of the others that keep what they were given.
    pub(super) fn best(&self, better: Better) -> Option<(&'static str, f64)> {
        let others = self.others().filter(|(name, figure)| figure.is_finite() && is_durable(name));
        match better {
            Better::More => others.max_by(|a, b| a.1.total_cmp(&b.1)),
            Better::Less => others.min_by(|a, b| a.1.total_cmp(&b.1)),
        }
    }

    fn others(&self) -> impl Iterator<Item = (&'static str, f64)> {
        self.0.keys().filter(|name| **name != OURS).map(|name| (*name, self.of(name)))
    }

    /// Ours beside the best of the others, with a goal.
    pub(super) fn add_best(&self, suite: &mut Suite, case: &'static str, unit: &'static str, better: Better) {
        let goal = match better {
            Better::More => Goal::at_least(1.0),
            Better::Less => Goal::at_most(1.0),
        };
        if let Some((name, figure)) = self.best(better) {
            suite.add(Question::new(case, unit).against(name).goal(goal).beside(self.ours(), figure));
        }
    }

    /// Ours beside each of the others, for information.
    pub(super) fn add_each(&self, suite: &mut Suite, case: &str, unit: &'static str) {
        for (name, figure) in self.others() {
            let case = case_of(&format!("{case}, {name}"));
            suite.add(Question::new(case, unit).against(name).beside(self.ours(), figure));
        }
    }
}

/// Whether a contestant's tasks are on disk when it says that they are safe.
fn is_durable(name: &str) -> bool {
    !ROLL.iter().any(|contestant| contestant.name == name && contestant.store == Store::Redis)
}

/// The cases that are there once for each of the others.
pub(super) fn cases_of(bases: &[&str]) -> Vec<&'static str> {
    let others = || ROLL.iter().filter(|contestant| !contestant.is_ours());
    bases
        .iter()
        .flat_map(|base| others().map(move |other| case_of(&format!("{base}, {}", other.name))))
        .collect()
}

/// A case named as the run goes on: there are as many as contestants, and each lives as long as the process.
pub(super) fn case_of(name: &str) -> &'static str {
    Box::leak(name.to_owned().into_boxed_str())
}

#[cfg(test)]
mod tests {
    use super::{Better, OURS, Standings};

    #[test]
    fn the_best_is_never_ours_and_keeps_what_it_was_given() {
        let mut standings = Standings::default();
        for (name, figure) in
            [("a", 1.0), ("a", 3.0), ("a", 2.0), ("b", 4.0), (OURS, 9.0), ("c", f64::NAN), ("bullmq", 99.0)]
        {
            standings.note(name, figure);
        }
        assert_eq!(standings.best(Better::More), Some(("b", 4.0)));
        assert_eq!(standings.best(Better::Less), Some(("a", 2.0)));
        assert_eq!(standings.ours(), 9.0);
        assert!(standings.of("nobody").is_nan());
    }
}
