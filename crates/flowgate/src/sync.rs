//! The only door to locks and atomics, so that loom can stand behind it.
//!
//! Everything the gates synchronize with comes from here. Under `--cfg loom` the same code runs on loom's versions and is
//! model-checked (`cargo xtask loom`).

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
};
#[cfg(loom)]
pub(crate) use std::sync::PoisonError;

/// Locks, and goes on after a panic elsewhere: no user code runs under our locks, so what they guard is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
