//! Operations that send something somewhere.

use flowgate_core::Spot;

use crate::route::{
    cx::Cx,
    destination::Destination,
    event::What,
    exchange::Exchange,
    step::{Halt, Outcome, Step},
};

/// A step that sends the exchange, and goes on with the answer.
#[derive(Clone, Copy, Debug)]
pub struct To<D> {
    pub(crate) destination: D,
    pub(crate) spot: Spot,
}

impl<B: Send + 'static, D: Destination<B>> Step<B> for To<D> {
    type Out = D::Reply;

    #[inline]
    fn run<'a>(
        &'a self,
        exchange: Exchange<B>,
        cx: Cx<'a>,
    ) -> impl Future<Output = Outcome<D::Reply>> + Send + 'a {
        self.destination.send(exchange, Cx { sent_at: self.spot, ..cx })
    }
}

/// A step that sends a copy, and goes on whatever came of it.
#[derive(Clone, Copy, Debug)]
pub struct Tap<D> {
    pub(crate) destination: D,
    pub(crate) spot: Spot,
}

impl<B: Clone + Send + 'static, D: Destination<B>> Step<B> for Tap<D> {
    type Out = B;

    async fn run<'a>(&'a self, exchange: Exchange<B>, cx: Cx<'a>) -> Outcome<B> {
        let copy = exchange.clone();
        if let Err(Halt::Failed(error)) = self.destination.send(copy, Cx { sent_at: self.spot, ..cx }).await {
            cx.tell(|| What::TapFailed { code: error.code() });
        }
        Ok(exchange)
    }
}

/// A step that sends a copy, and merges the answer.
#[derive(Clone, Copy, Debug)]
pub struct Enrich<D, F> {
    pub(crate) destination: D,
    pub(crate) merge: F,
    pub(crate) spot: Spot,
}

impl<B, T, D, F> Step<B> for Enrich<D, F>
where
    B: Clone + Send + 'static,
    T: Send + 'static,
    D: Destination<B>,
    F: Fn(B, D::Reply) -> T + Send + Sync + 'static,
{
    type Out = T;

    async fn run<'a>(&'a self, exchange: Exchange<B>, cx: Cx<'a>) -> Outcome<T> {
        let copy = exchange.clone();
        let answer = self.destination.send(copy, Cx { sent_at: self.spot, ..cx }).await?;
        Ok(exchange.map(|body| (self.merge)(body, answer.body)))
    }
}
