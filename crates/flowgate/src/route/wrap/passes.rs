//! The passes that one piece of work holds.
//!
//! Owns their order: taken from the outermost to the innermost, given back the other way round, and known to the work that is
//! polled under them, so that it is refused rather than left to wait for itself.

use flowgate_core::Spot;

use crate::gate::{Guard, Pass};

/// Nearly always one.
#[derive(Debug, Default)]
pub(super) enum Passes {
    #[default]
    None,
    One(Pass),
    Several(Nest),
}

/// The outermost first; they come back the other way round.
#[derive(Debug)]
pub(super) struct Nest(Vec<Pass>);

impl Passes {
    /// One more, inside of all others.
    pub(super) fn add(&mut self, pass: Pass) {
        *self = match std::mem::take(self) {
            Passes::None => Passes::One(pass),
            Passes::One(first) => Passes::Several(Nest(vec![first, pass])),
            Passes::Several(mut nest) => {
                nest.0.push(pass);
                Passes::Several(nest)
            }
        };
    }

    /// Does something that these passes are held for.
    #[inline]
    pub(super) fn hold<R>(&self, spot: Spot, work: impl FnOnce() -> R) -> R {
        let mut guard = Guard::default();
        match self {
            Passes::None => {}
            Passes::One(pass) => pass.note(&mut guard, spot),
            Passes::Several(nest) => nest.note(&mut guard, spot),
        }
        work()
    }
}

impl Nest {
    #[inline(never)]
    fn note(&self, guard: &mut Guard, spot: Spot) {
        self.0.iter().for_each(|pass| pass.note(guard, spot));
    }
}

impl Drop for Nest {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}
