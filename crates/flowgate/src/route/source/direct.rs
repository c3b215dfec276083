//! Direct calls: an exchange for each call.

use std::marker::PhantomData;

use crate::route::{
    error::Error,
    intake::Intake,
    source::{Feed, Source},
};

/// A source that is called by the route's id and answers: from the program by
/// [`Context::direct`](super::super::Context::direct), from other routes of the context by
/// [`direct_to`](super::super::direct_to).
pub fn direct<T>() -> DirectSource<T> {
    DirectSource(PhantomData)
}

/// The source that [`direct`] returns.
#[derive(Clone, Copy, Debug)]
pub struct DirectSource<T>(PhantomData<fn() -> T>);

impl<T: Send + 'static, O: Send + 'static> Source<O> for DirectSource<T> {
    type Body = T;

    fn open(&self, intake: Intake<T, O>) -> Result<Feed, Error> {
        intake.serve();
        Ok(Feed::none())
    }
}
