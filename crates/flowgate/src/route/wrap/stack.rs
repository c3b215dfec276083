//! Wrappers that wait for their step.
//!
//! Owns how wrappers declared after `.from()` come to stand around the next step: the first declared is the outermost.

use crate::route::step::Step;

/// Something that can stand around a step that takes a `B` and leaves a `T`.
pub trait Wrap<B, T> {
    /// The step with this around it.
    type Around<S: Step<B, Out = T>>: Step<B, Out = T>;

    /// Puts it around a step.
    fn around<S: Step<B, Out = T>>(self, step: S) -> Self::Around<S>;
}

/// No wrapper.
#[derive(Clone, Copy, Debug)]
pub struct Bare;

impl<B, T> Wrap<B, T> for Bare {
    type Around<S: Step<B, Out = T>> = S;

    fn around<S: Step<B, Out = T>>(self, step: S) -> S {
        step
    }
}

/// One wrapper inside another.
#[derive(Clone, Copy, Debug)]
pub struct Stacked<Outer, Inner> {
    pub(crate) outer: Outer,
    pub(crate) inner: Inner,
}

impl<B, T, Outer: Wrap<B, T>, Inner: Wrap<B, T>> Wrap<B, T> for Stacked<Outer, Inner> {
    type Around<S: Step<B, Out = T>> = Outer::Around<Inner::Around<S>>;

    fn around<S: Step<B, Out = T>>(self, step: S) -> Self::Around<S> {
        self.outer.around(self.inner.around(step))
    }
}

/// That no wrapper waits for its step.
#[diagnostic::on_unimplemented(
    message = "a wrapper has no step after it",
    label = "the last wrapper before this wraps nothing",
    note = "after `.from()`, a wrapper such as `.retry()` or `.concurrency()` covers the next step only",
    note = "add the step that it is for, or move the wrapper before `.from()`, where it covers the whole route"
)]
pub trait Complete {}

impl Complete for Bare {}
