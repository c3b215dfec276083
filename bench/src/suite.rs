//! A run of the suite: which cases are wanted, and what came of them.
//!
//! Owns the filter and the cases done so far, and tells of each as soon as it is done: progress on stderr, and a line of
//! JSON on stdout where that was asked for.

use std::time::Duration;

use crate::{
    measure::{self, Plan},
    options::Options,
    report::{Case, Question},
};

pub(crate) struct Suite {
    plan: Plan,
    is_quick: bool,
    only: Option<String>,
    as_json: bool,
    known: Vec<&'static str>,
    cases: Vec<Case>,
    remarks: Vec<String>,
}

impl Suite {
    pub(crate) fn new(options: &Options) -> Self {
        Suite {
            plan: if options.is_quick { Plan::QUICK } else { Plan::FULL },
            is_quick: options.is_quick,
            only: options.only.clone(),
            as_json: options.as_json,
            known: Vec::new(),
            cases: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// How much measuring is done.
    pub(crate) fn plan(&self) -> Plan {
        self.plan
    }

    /// Whether it is enough to see that all of it runs.
    pub(crate) fn is_quick(&self) -> bool {
        self.is_quick
    }

    /// Whether the case is asked for.
    pub(crate) fn wants(&mut self, case: &'static str) -> bool {
        if !self.known.contains(&case) {
            self.known.push(case);
        }
        self.only.as_deref().is_none_or(|only| case.contains(only))
    }

    /// Whether any of the cases is asked for: what they share is worth setting up.
    pub(crate) fn wants_any(&mut self, cases: &[&'static str]) -> bool {
        // All of them are asked, for the list of names.
        cases.iter().filter(|case| self.wants(case)).count() > 0
    }

    /// Times ours beside the peer, if the case is asked for.
    pub(crate) fn duel(
        &mut self,
        question: Question,
        mut ours: impl FnMut(u64) -> Duration,
        mut peer: impl FnMut(u64) -> Duration,
    ) {
        if self.wants(question.case) {
            let [ours, peer] = measure::contest(self.plan, [&mut ours, &mut peer]);
            self.add(question.beside(ours, peer));
        }
    }

    /// Adds a case that was measured, if it is asked for.
    pub(crate) fn add(&mut self, case: Case) {
        if self.wants(case.question.case) {
            eprintln!("{}", case.progress());
            if self.as_json {
                println!("{}", case.json());
            }
            self.cases.push(case);
        }
    }

    /// Notes something about this run that belongs beside its figures.
    pub(crate) fn remark(&mut self, remark: impl Into<String>) {
        let remark = remark.into();
        eprintln!("({remark})");
        self.remarks.push(remark);
    }

    /// What was noted.
    pub(crate) fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Whether no case there is was asked for.
    pub(crate) fn is_empty(&self) -> bool {
        let only = self.only.as_deref().unwrap_or_default();
        !self.known.iter().any(|case| case.contains(only))
    }

    /// The names asked about, in their order.
    pub(crate) fn known(&self) -> &[&'static str] {
        &self.known
    }

    /// The cases measured, in their order.
    pub(crate) fn cases(&self) -> &[Case] {
        &self.cases
    }
}

#[cfg(test)]
mod tests {
    use super::Suite;
    use crate::{options::Options, report::Question};

    #[test]
    fn only_what_is_asked_for_is_measured() {
        let options = Options { only: Some("keyed".to_owned()), ..Options::default() };
        let mut suite = Suite::new(&options);
        assert!(suite.wants("keyed: one thread"));
        assert!(suite.wants_any(&["enter: try", "rate: keyed"]));
        assert!(!suite.wants_any(&["enter: try"]));
        suite.duel(Question::new("enter: async", "ns"), |_| unreachable!(), |_| unreachable!());
        assert_eq!(suite.known(), ["keyed: one thread", "enter: try", "rate: keyed", "enter: async"]);
        assert!(suite.cases().is_empty());
        assert!(!suite.is_empty());
        suite.only = Some("task".to_owned());
        assert!(suite.is_empty());
    }
}
