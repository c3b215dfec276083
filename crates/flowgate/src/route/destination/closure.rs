//! A closure as a destination.

use crate::route::{
    cx::Cx,
    destination::Destination,
    error::{BoxError, Error},
    exchange::Exchange,
    step::Outcome,
};

/// `|order: Order| async move { Ok::<_, MyError>(reserve(order).await?) }`
impl<B, T, E, F, Fut> Destination<B> for F
where
    B: Send + 'static,
    T: Send + 'static,
    E: Into<BoxError> + 'static,
    F: Fn(B) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<T, E>> + Send + 'static,
{
    type Reply = T;

    async fn send<'a>(&'a self, exchange: Exchange<B>, _: Cx<'a>) -> Outcome<T> {
        let (body, rest) = exchange.take();
        let reply = self(body).await.map_err(Error::of)?;
        Ok(rest.with(reply))
    }
}
