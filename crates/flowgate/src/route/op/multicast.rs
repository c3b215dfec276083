//! Copies of an exchange, each on its own way.

use std::fmt;

use super::together::together;
use crate::route::{
    cx::Cx,
    exchange::Exchange,
    plan::Plan,
    step::{Erased, Outcome, Start, Step},
    steps::{Branch, Steps},
};

/// Collects the branches of a [`Steps::multicast`].
#[must_use = "branches do nothing until they are given back"]
pub struct Fan<B, T> {
    plan: Plan,
    branches: Vec<Erased<B, T>>,
}

impl<B: Send + 'static, T: Send + 'static> Fan<B, T> {
    pub(crate) fn new(plan: Plan) -> Self {
        Fan { plan, branches: Vec::new() }
    }

    /// Adds a branch.
    pub fn branch<Q: Step<B, Out = T>>(
        self,
        steps: impl FnOnce(Steps<Branch, B, Start>) -> Steps<Branch, T, Q>,
    ) -> Self {
        let Fan { plan, mut branches } = self;
        let branch = steps(Steps::new(Branch, plan));
        branches.push(Erased::new(branch.chain));
        Fan { plan: branch.plan, branches }
    }

    pub(crate) fn finish(self) -> (Multicast<B, T>, Plan) {
        (Multicast { branches: self.branches }, self.plan)
    }
}

/// A step that takes copies through several branches at the same time.
pub struct Multicast<B, T> {
    branches: Vec<Erased<B, T>>,
}

impl<B: Clone + Send + 'static, T: Send + 'static> Step<B> for Multicast<B, T> {
    type Out = Vec<T>;

    async fn run<'a>(&'a self, exchange: Exchange<B>, cx: Cx<'a>) -> Outcome<Vec<T>> {
        let (body, rest) = exchange.take();
        let copies: Vec<_> = self.branches.iter().map(|_| rest.envelope().with(body.clone())).collect();
        let works = self.branches.iter().zip(copies).map(|(branch, copy)| branch.boxed(copy, cx));
        let bodies = together(works, self.branches.len()).await?;
        Ok(rest.with(bodies))
    }
}

impl<B, T> fmt::Debug for Fan<B, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fan").field("branches", &self.branches.len()).finish_non_exhaustive()
    }
}

impl<B, T> fmt::Debug for Multicast<B, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Multicast").field("branches", &self.branches.len()).finish_non_exhaustive()
    }
}
