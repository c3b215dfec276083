//! Connections to plain endpoints that are idle, kept for the next request to the same place.
//!
//! Owns how many there are and how long they stay. Their age is counted in rounds of one sweeper, which lives
//! while there are any: so nobody reads the time or arms a timer for a delivery.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use foldhash::HashMap;
use tokio::time::sleep;

use crate::wire::{self, Whole};

/// A connection to an endpoint, or to the proxy that is asked for it.
pub(super) type Line = wire::Line<Whole>;

/// For each place: as many as a server has deliveries, unless told otherwise. One that is thrown away is made anew by the next burst,
/// which costs both sides more than the delivery.
const MOST_FOR_ONE: usize = 1000;
/// For all places together.
const MOST: usize = 2048;
/// How long a round is, and after how many of them an idle one is closed: within a minute.
const ROUND: Duration = Duration::from_secs(10);
const ROUNDS: u64 = 6;

/// The idle connections. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines(Arc<Mutex<Idle>>);

#[derive(Debug, Default)]
struct Idle {
    /// By what was connected to. The one used last is the last.
    places: HashMap<Box<str>, Vec<Rested>>,
    count: usize,
    round: u64,
    is_swept: bool,
}

#[derive(Debug)]
struct Rested {
    line: Line,
    /// The round in which it was given back.
    round: u64,
}

impl Lines {
    /// The idle connection to this place that was used last.
    pub(super) fn take(&self, place: &str) -> Option<Line> {
        let mut idle = self.idle();
        let taken = idle.places.get_mut(place)?.pop()?;
        idle.count -= 1;
        Some(taken.line)
    }

    /// Keeps a connection for the next request, if it can be used again and there is room.
    pub(super) fn give_back(&self, place: &str, line: Line) {
        if !line.is_free() {
            return;
        }
        let mut idle = self.idle();
        if idle.count == MOST {
            return;
        }
        let round = idle.round;
        match idle.places.get_mut(place) {
            Some(kept) if kept.len() == MOST_FOR_ONE => return,
            Some(kept) => kept.push(Rested { line, round }),
            None => drop(idle.places.insert(place.into(), vec![Rested { line, round }])),
        }
        idle.count += 1;
        if !std::mem::replace(&mut idle.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(&self.0)));
        }
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        lock(&self.0)
    }
}

fn lock(idle: &Mutex<Idle>) -> MutexGuard<'_, Idle> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes what has been idle for too long, and what the other side has closed, until nothing is left or nobody would take it.
async fn sweep(idle: Weak<Mutex<Idle>>) {
    loop {
        sleep(ROUND).await;
        let Some(idle) = idle.upgrade() else { return };
        if !lock(&idle).sweep() {
            return;
        }
    }
}

impl Idle {
    /// Begins the next round; whether anything is left.
    fn sweep(&mut self) -> bool {
        self.round += 1;
        let round = self.round;
        self.places.retain(|_, kept| {
            kept.retain(|rested| rested.round + ROUNDS > round && !rested.line.is_dead());
            !kept.is_empty()
        });
        self.count = self.places.values().map(Vec::len).sum();
        self.is_swept = self.count > 0;
        self.is_swept
    }
}
