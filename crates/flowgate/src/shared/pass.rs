//! A pass of a shared gate.
//!
//! Owns the way back: dropped, wherever that is, it is written down and the service tells the store. It never waits.

use std::{fmt, sync::Arc};

use super::{book::Shared, lease::Lease};

/// Permission to be in flight, over the whole fleet. Dropping it gives the slot back.
///
/// A pass is only as good as the lease of its process. If the store cannot be reached for that long, or has forgotten what it
/// told this process, the slot may be given to others and the pass is *lost*: work that must not overlap has to stop then.
#[must_use = "a pass that is dropped at once bounds nothing"]
pub struct Pass {
    shared: Arc<Shared>,
    name: Arc<str>,
    weight: u32,
    /// `None` for one who was let in uncounted.
    lease: Option<Arc<Lease>>,
}

impl Pass {
    pub(crate) fn new(shared: Arc<Shared>, name: Arc<str>, weight: u32, lease: Option<Arc<Lease>>) -> Self {
        Pass { shared, name, weight, lease }
    }

    /// Returns how many slots it holds.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// Whether the pass was given while the store did not answer, by a gate that lets everybody in then. Such a pass
    /// is not counted.
    pub fn is_uncounted(&self) -> bool {
        self.lease.is_none()
    }

    /// Whether its slot may belong to somebody else by now: the lease of this process ran out, or the store forgot. After a
    /// stall it may be lost and then not: the store had renewed the lease in time, and only its answer was late. An
    /// uncounted pass is never lost.
    pub fn is_lost(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.is_over())
    }

    /// Waits until the pass is lost; for ever, if it never is.
    ///
    /// Cancel safety: dropped, nothing happens.
    pub async fn lost(&self) {
        match &self.lease {
            Some(lease) => lease.over().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(lease) = &self.lease {
            self.shared.release(&self.name, self.weight, lease);
        }
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass")
            .field("gate", &self.shared.ident.gate)
            .field("weight", &self.weight)
            .field("is_lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}
