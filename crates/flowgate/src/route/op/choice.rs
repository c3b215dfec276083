//! One of several ways.

use std::fmt;

use crate::route::{
    cx::Cx,
    exchange::Exchange,
    plan::Plan,
    step::{Erased, Halt, Outcome, Start, Step},
    steps::{Branch, Steps},
};

type Test<B> = Box<dyn Fn(&Exchange<B>) -> bool + Send + Sync>;

/// Collects the cases of a [`Steps::choice`]. The first that fits is taken.
#[must_use = "end with `otherwise` or `otherwise_drop`"]
pub struct Cases<B, T> {
    plan: Plan,
    cases: Vec<(Test<B>, Erased<B, T>)>,
}

impl<B: Send + 'static, T: Send + 'static> Cases<B, T> {
    pub(crate) fn new(plan: Plan) -> Self {
        Cases { plan, cases: Vec::new() }
    }

    /// Adds a case: if `test` returns `true`, and no case before did, the exchange takes these steps.
    pub fn when<Q: Step<B, Out = T>>(
        self,
        test: impl Fn(&Exchange<B>) -> bool + Send + Sync + 'static,
        steps: impl FnOnce(Steps<Branch, B, Start>) -> Steps<Branch, T, Q>,
    ) -> Self {
        let Cases { plan, mut cases } = self;
        let branch = steps(Steps::new(Branch, plan));
        cases.push((Box::new(test), Erased::new(branch.chain)));
        Cases { plan: branch.plan, cases }
    }

    /// Sets the steps to take if no case fits.
    pub fn otherwise<Q: Step<B, Out = T>>(
        self,
        steps: impl FnOnce(Steps<Branch, B, Start>) -> Steps<Branch, T, Q>,
    ) -> Choice<B, T> {
        let Cases { plan, cases } = self;
        let branch = steps(Steps::new(Branch, plan));
        Choice { plan: branch.plan, cases, otherwise: Some(Erased::new(branch.chain)) }
    }

    /// Drops the exchange if no case fits.
    pub fn otherwise_drop(self) -> Choice<B, T> {
        Choice { plan: self.plan, cases: self.cases, otherwise: None }
    }
}

/// A step that takes one of several ways.
pub struct Choice<B, T> {
    /// Until the route has it back.
    plan: Plan,
    cases: Vec<(Test<B>, Erased<B, T>)>,
    otherwise: Option<Erased<B, T>>,
}

impl<B, T> Choice<B, T> {
    pub(crate) fn take_plan(&mut self) -> Plan {
        std::mem::take(&mut self.plan)
    }
}

impl<B: Send + 'static, T: Send + 'static> Step<B> for Choice<B, T> {
    type Out = T;

    async fn run<'a>(&'a self, exchange: Exchange<B>, cx: Cx<'a>) -> Outcome<T> {
        let fitting = self.cases.iter().find(|(test, _)| test(&exchange)).map(|(_, way)| way);
        match fitting.or(self.otherwise.as_ref()) {
            Some(way) => way.boxed(exchange, cx).await,
            None => Err(Halt::Dropped),
        }
    }
}

impl<B, T> fmt::Debug for Cases<B, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cases").field("cases", &self.cases.len()).finish_non_exhaustive()
    }
}

impl<B, T> fmt::Debug for Choice<B, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Choice").field("cases", &self.cases.len()).finish_non_exhaustive()
    }
}
