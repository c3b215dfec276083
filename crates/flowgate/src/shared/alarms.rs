//! When to look at which lane: one moment for each.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use flowgate_core::Tick;

#[derive(Default)]
pub(super) struct Alarms {
    by_time: BTreeSet<(Tick, Arc<str>)>,
    by_name: HashMap<Arc<str>, Tick>,
}

impl Alarms {
    pub(super) fn set(&mut self, name: &Arc<str>, at: Option<Tick>) {
        if let Some(before) = self.by_name.remove(name) {
            self.by_time.remove(&(before, Arc::clone(name)));
        }
        if let Some(at) = at {
            self.by_name.insert(Arc::clone(name), at);
            self.by_time.insert((at, Arc::clone(name)));
        }
    }

    pub(super) fn first(&self) -> Option<Tick> {
        self.by_time.first().map(|(at, _)| *at)
    }

    pub(super) fn take_due(&mut self, now: Tick) -> Option<Arc<str>> {
        let (_, name) = self.by_time.first().filter(|(at, _)| *at <= now)?.clone();
        self.set(&name, None);
        Some(name)
    }
}
