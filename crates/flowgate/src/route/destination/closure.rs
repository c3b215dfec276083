//! A closure as a destination.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

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

    #[inline]
    fn send<'a>(&'a self, exchange: Exchange<B>, _: Cx<'a>) -> impl Future<Output = Outcome<T>> + Send + 'a {
        let (body, rest) = exchange.take();
        Answered { work: self(body), rest: Some(rest) }
    }
}

pin_project! {
    /// The work of a closure, and the exchange that its answer belongs to.
    struct Answered<F> {
        #[pin]
        work: F,
        rest: Option<Exchange<()>>,
    }
}

impl<T, E, F> Future for Answered<F>
where
    E: Into<BoxError> + 'static,
    F: Future<Output = Result<T, E>>,
{
    type Output = Outcome<T>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<T>> {
        let me = self.project();
        let answer = ready!(me.work.poll(cx)).map_err(Error::of)?;
        let rest = me.rest.take().expect("an exchange is not polled after it is done");
        Poll::Ready(Ok(rest.with(answer)))
    }
}
