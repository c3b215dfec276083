//! What was found wrong while a file is read.
//!
//! Owns the list, and turning a place in the text into a line and a column. Reading goes on after an error, so that all
//! are told at once.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
};

use super::super::error::{ConfigError, ConfigErrors, MOST_TOLD, Origin, Position, Problem};

/// Proof that an error was put on the report: nobody needs to say more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told(());

/// A value that was read, or the proof that it was told why not.
pub(crate) type Read<T> = Result<T, Told>;

/// Where a value stands: who gave it, and for a file at which byte.
#[derive(Clone, Debug)]
pub(crate) struct Stands {
    pub(crate) origin: Origin,
    pub(crate) byte: Option<usize>,
}

/// The text that is read, and what is wrong with it.
#[derive(Debug)]
pub(crate) struct Report<'t> {
    origin: Origin,
    text: &'t str,
    errors: RefCell<Vec<ConfigError>>,
}

impl<'t> Report<'t> {
    pub(crate) fn new(origin: Origin, text: &'t str) -> Self {
        Report { origin, text, errors: RefCell::default() }
    }

    /// At this byte of the text.
    pub(crate) fn at(&self, byte: usize) -> Stands {
        Stands { origin: self.origin.clone(), byte: Some(byte) }
    }

    /// The folder that paths of the text are relative to, if it is a file.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        match &self.origin {
            Origin::File(path) => Some(path.parent().map(Path::to_owned).unwrap_or_default()),
            _ => None,
        }
    }

    /// Puts an error on the report.
    pub(crate) fn tell(&self, stands: &Stands, problem: Problem) -> Told {
        if self.errors.borrow().len() > MOST_TOLD {
            return Told(());
        }
        let position = stands.byte.map(|byte| self.position(byte));
        let error = ConfigError { origin: stands.origin.clone(), position, problem };
        self.errors.borrow_mut().push(error);
        Told(())
    }

    /// The value, unless anything at all was told: then all of it.
    pub(crate) fn conclude<T>(self, read: Read<T>) -> Result<T, ConfigErrors> {
        match (ConfigErrors::some(self.errors.into_inner()), read) {
            (None, Ok(value)) => Ok(value),
            (Some(errors), _) => Err(errors),
            (None, Err(Told(()))) => unreachable!("`Told` is made by telling"),
        }
    }

    fn position(&self, byte: usize) -> Position {
        let before = self.text.get(..byte).unwrap_or(self.text);
        let line = before.rsplit('\n').next().unwrap_or_default();
        Position { line: before.matches('\n').count() + 1, column: line.chars().count() + 1 }
    }
}
