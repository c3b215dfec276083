//! What the desks of one gate share.
//!
//! Owns the gate's names, its clock, its listeners, its count of refusals and its allowance of lanes.

use std::{fmt, sync::Arc};

use flowgate_core::{Event, Ident, Key, Reason, What};

use super::{bus::Bus, quota::Quota};
use crate::{
    clock::Time,
    sync::{AtomicU64, Ordering},
};

pub(crate) struct Meta {
    pub(crate) ident: Arc<Ident>,
    pub(crate) time: Time,
    pub(crate) bus: Bus,
    pub(crate) quota: Quota,
    refused: [AtomicU64; Reason::ALL.len()],
}

impl Meta {
    pub(crate) fn new(ident: Ident, time: Time, bus: Bus, quota: Quota) -> Self {
        Meta { ident: Arc::new(ident), time, bus, quota, refused: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    pub(crate) fn count_refusal(&self, reason: Reason) {
        self.refused[reason.index()].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self, reason: Reason) -> u64 {
        self.refused[reason.index()].load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn tell(&self, key: Option<&Key>, what: What) {
        if self.bus.is_on() {
            self.bus.tell(&self.ident, &Event { ident: &self.ident, key, what });
        }
    }
}

impl fmt::Debug for Meta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meta").field("ident", &self.ident).finish_non_exhaustive()
    }
}
