//! Direct calls: an exchange for each call.

use std::marker::PhantomData;

use crate::route::{
    error::Error,
    intake::Intake,
    source::{Feed, Source},
};

/// The route is called by its id, and answers: by [`Context::direct`](super::super::Context::direct) from the program, by
/// [`direct_to`](super::super::direct_to) from other routes of its context.
pub fn direct<T>() -> DirectSource<T> {
    DirectSource(PhantomData)
}

/// See [`direct`].
#[derive(Clone, Copy, Debug)]
pub struct DirectSource<T>(PhantomData<fn() -> T>);

impl<T: Send + 'static, O: Send + 'static> Source<O> for DirectSource<T> {
    type Body = T;

    fn open(&self, intake: Intake<T, O>) -> Result<Feed, Error> {
        intake.serve();
        Ok(Feed::none())
    }
}
