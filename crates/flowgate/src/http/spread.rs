//! A reference that all threads copy and drop all the time.
//!
//! Owns how its copies are counted. A router copies its services for each request, and one count that all threads change with each
//! request would be the slowest thing about a layer. So copies are counted in several places, and a thread always uses the same.

use std::{
    array,
    cell::Cell,
    fmt,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// So many places there are: threads that share one are no worse off than with one count for all.
const PLACES: usize = 16;

/// What the copies are made of. It is kept by those who are there for long, and its own copies are counted as ever.
pub(crate) struct Origin<T>(Arc<[Arc<Place<T>>; PLACES]>);

/// A reference: an origin, or a copy of one.
pub(crate) enum Spread<T> {
    Origin(Origin<T>),
    Copy(Arc<Place<T>>),
}

/// Copies are counted before it, so it has cache lines of its own.
#[repr(align(128))]
pub(crate) struct Place<T>(Arc<T>);

impl<T> Origin<T> {
    pub(crate) fn new(value: T) -> Self {
        let value = Arc::new(value);
        Origin(Arc::new(array::from_fn(|_| Arc::new(Place(Arc::clone(&value))))))
    }
}

impl<T> Spread<T> {
    /// A reference that is counted as ever, for one who keeps it longer than a moment.
    pub(crate) fn keep(&self) -> Arc<T> {
        match self {
            Spread::Origin(Origin(places)) => Arc::clone(&places[0].0),
            Spread::Copy(place) => Arc::clone(&place.0),
        }
    }
}

/// Where this thread counts.
fn place() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static PLACE: Cell<Option<usize>> = const { Cell::new(None) };
    }
    PLACE.with(|place| {
        place.get().unwrap_or_else(|| {
            let next = NEXT.fetch_add(1, Ordering::Relaxed) % PLACES;
            place.set(Some(next));
            next
        })
    })
}

impl<T> Clone for Origin<T> {
    fn clone(&self) -> Self {
        Origin(Arc::clone(&self.0))
    }
}

impl<T> Clone for Spread<T> {
    fn clone(&self) -> Self {
        Spread::Copy(match self {
            Spread::Origin(Origin(places)) => Arc::clone(&places[place()]),
            Spread::Copy(place) => Arc::clone(place),
        })
    }
}

impl<T> Deref for Origin<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0[0].0
    }
}

impl<T> Deref for Spread<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Spread::Origin(origin) => origin,
            Spread::Copy(place) => &place.0,
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Origin<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for Spread<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn threads_count_their_copies_apart() {
        // Seen to fail: with every thread at the first place.
        let origin = Spread::Origin(Origin::new(1));
        let copy = |spread: &Spread<u32>| match spread.clone() {
            Spread::Copy(place) => Arc::as_ptr(&place).addr(),
            Spread::Origin(_) => panic!("a copy is counted where its thread counts"),
        };
        let places: Vec<_> =
            (0..2).map(|_| thread::scope(|scope| scope.spawn(|| copy(&origin)).join().unwrap())).collect();
        assert_ne!(places[0], places[1]);
    }

    #[test]
    fn what_is_referred_to_goes_with_the_last_reference_whoever_has_it() {
        // Seen to fail: with the origin leaked.
        let value = Arc::new(());
        let origin = Origin::new(Arc::clone(&value));
        let spread = Spread::Origin(origin.clone());
        let copy = thread::scope(|scope| scope.spawn(|| spread.clone()).join().unwrap());
        drop((origin, spread));
        assert_eq!(Arc::strong_count(&value), 2, "a copy refers to it still");
        drop(copy);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
