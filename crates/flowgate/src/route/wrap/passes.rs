//! The passes that one piece of work holds.
//!
//! Owns their order: taken from the outermost to the innermost, given back the other way round, and known to the work that is
//! polled under them, so that it is refused rather than left to wait for itself.

use flowgate_core::Spot;

use crate::gate::{Guard, Pass};

/// Nearly always one. No larger than that: it is a part of every exchange under a bound.
#[derive(Debug, Default)]
pub(super) enum Passes {
    #[default]
    None,
    One(Pass),
    Several(Box<Nest>),
}

const _: () = assert!(size_of::<Passes>() == size_of::<Pass>());

/// Fields drop in this order: the innermost comes back first.
#[derive(Debug)]
pub(super) struct Nest {
    innermost: Pass,
    outer: Passes,
}

impl Passes {
    /// One more, inside of all others.
    pub(super) fn add(&mut self, pass: Pass) {
        *self = match std::mem::take(self) {
            Passes::None => Passes::One(pass),
            outer => Passes::Several(Box::new(Nest { innermost: pass, outer })),
        };
    }

    /// What is done while the guard is there is done by one who holds these.
    #[inline(always)]
    pub(super) fn hold(&self, spot: Spot) -> Guard {
        let guard = Guard::new();
        match self {
            Passes::None => {}
            Passes::One(pass) => pass.note(&guard, spot),
            Passes::Several(nest) => nest.note(&guard, spot),
        }
        guard
    }
}

impl Nest {
    #[inline(never)]
    fn note(&self, guard: &Guard, spot: Spot) {
        match &self.outer {
            Passes::None => {}
            Passes::One(pass) => pass.note(guard, spot),
            Passes::Several(nest) => nest.note(guard, spot),
        }
        self.innermost.note(guard, spot);
    }
}
