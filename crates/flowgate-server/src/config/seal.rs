//! A seal: only this folder can make a value that carries one, so what carries one has been checked.

/// Made by nobody outside of `config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal(());

impl Seal {
    /// What carries it was checked.
    pub(super) const fn checked() -> Self {
        Seal(())
    }
}
