//! Operations that need nothing but the exchange.

use flowgate_core::Code;

use crate::route::{
    cx::Cx,
    error::{BoxError, Error},
    exchange::Exchange,
    step::{Halt, Outcome, Step},
};

/// A step that replaces the body.
#[derive(Clone, Copy, Debug)]
pub struct Transform<F> {
    pub(crate) change: F,
}

impl<B: Send + 'static, T: Send + 'static, F> Step<B> for Transform<F>
where
    F: Fn(B) -> T + Send + Sync + 'static,
{
    type Out = T;

    async fn run<'a>(&'a self, exchange: Exchange<B>, _: Cx<'a>) -> Outcome<T> {
        Ok(exchange.map(&self.change))
    }
}

/// A step that drops bodies that do not pass a test.
#[derive(Clone, Copy, Debug)]
pub struct Filter<F> {
    pub(crate) passes: F,
}

impl<B: Send + 'static, F> Step<B> for Filter<F>
where
    F: Fn(&Exchange<B>) -> bool + Send + Sync + 'static,
{
    type Out = B;

    async fn run<'a>(&'a self, exchange: Exchange<B>, _: Cx<'a>) -> Outcome<B> {
        if (self.passes)(&exchange) { Ok(exchange) } else { Err(Halt::Dropped) }
    }
}

/// A step that fails for invalid bodies.
#[derive(Clone, Copy, Debug)]
pub struct Validate<F> {
    pub(crate) check: F,
}

impl<B: Send + 'static, E: Into<BoxError> + 'static, F> Step<B> for Validate<F>
where
    F: Fn(&B) -> Result<(), E> + Send + Sync + 'static,
{
    type Out = B;

    async fn run<'a>(&'a self, exchange: Exchange<B>, _: Cx<'a>) -> Outcome<B> {
        (self.check)(&exchange.body).map_err(|error| Error::coded(Code::Invalid, error.into()))?;
        Ok(exchange)
    }
}
