//! Parts of a body, each on its own way.

use flowgate_core::OptionError;

use super::together::together;
use crate::route::{
    cx::Cx,
    exchange::Exchange,
    step::{Outcome, Step},
};

const MOST_AT_ONCE: usize = 1_000;

/// A step that takes each part of a body through steps of its own.
#[derive(Clone, Copy, Debug)]
pub struct Split<F, Q> {
    pub(crate) parts: F,
    pub(crate) at_once: usize,
    pub(crate) steps: Q,
}

impl<F, Q> Split<F, Q> {
    pub(crate) fn check(at_once: usize) -> Result<(), OptionError> {
        if !(1..=MOST_AT_ONCE).contains(&at_once) {
            return Err(OptionError::new("at_once", at_once, "an integer from 1 to 1000"));
        }
        Ok(())
    }
}

impl<B, P, F, Q> Step<B> for Split<F, Q>
where
    B: Send + 'static,
    P: Send + 'static,
    F: Fn(B) -> Vec<P> + Send + Sync + 'static,
    Q: Step<P>,
{
    type Out = Vec<Q::Out>;

    async fn run<'a>(&'a self, exchange: Exchange<B>, cx: Cx<'a>) -> Outcome<Vec<Q::Out>> {
        let (body, rest) = exchange.take();
        let parts: Vec<_> = (self.parts)(body).into_iter().map(|part| rest.part(part)).collect();
        let works = parts.into_iter().map(|part| self.steps.run(part, cx));
        let bodies = together(works, self.at_once).await?;
        Ok(rest.with(bodies))
    }
}
