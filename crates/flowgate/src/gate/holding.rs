//! The passes that the work being polled right now holds.
//!
//! Owns a list per thread, filled for as long as a [`Scoped`](super::Scoped) future is being polled: so an
//! entry that is asked for inside knows which passes its own work holds. Noting a pass is a few plain writes,
//! for it is done at every poll of everything that holds one; only an entrant that would have to wait reads
//! the list.

use std::cell::{Cell, RefCell};

use flowgate_core::Spot;

use super::reentry::Hands;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// What tells the pass from others: where it is, if it stays there from the first poll of the work under it to the last;
    /// or the name that it was given because it may move meanwhile.
    pub(crate) pass: usize,
    pub(crate) desk: usize,
    pub(crate) lane: u32,
    pub(crate) weight: u32,
    pub(crate) spot: Spot,
}

/// So many are noted in place; work that holds more has them in a list.
const IN_PLACE: usize = 16;

/// Nothing in it has to be dropped, so that finding it needs no check of whether it is still there.
struct Chain {
    len: Cell<usize>,
    first: [Noted; IN_PLACE],
}

/// A [`Held`] that is written one field at a time: put together elsewhere and copied at once, the processor would have
/// to wait until all its parts have arrived.
struct Noted {
    pass: Cell<usize>,
    desk: Cell<usize>,
    lane: Cell<u32>,
    weight: Cell<u32>,
    spot: Cell<Option<Spot>>,
}

impl Noted {
    const fn new() -> Self {
        Noted {
            pass: Cell::new(0),
            desk: Cell::new(0),
            lane: Cell::new(0),
            weight: Cell::new(0),
            spot: Cell::new(None),
        }
    }

    #[inline]
    fn set(&self, held: Held) {
        self.pass.set(held.pass);
        self.desk.set(held.desk);
        self.lane.set(held.lane);
        self.weight.set(held.weight);
        self.spot.set(Some(held.spot));
    }

    fn held(&self) -> Option<Held> {
        let (pass, desk, lane, weight) =
            (self.pass.get(), self.desk.get(), self.lane.get(), self.weight.get());
        self.spot.get().map(|spot| Held { pass, desk, lane, weight, spot })
    }
}

thread_local! {
    static CHAIN: Chain =
        const { Chain { len: Cell::new(0), first: [const { Noted::new() }; IN_PLACE] } };
    static REST: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) };
}

/// What is noted while it is there is held by what is polled until it is dropped.
pub(crate) struct Guard {
    /// How many were noted before.
    before: usize,
}

impl Guard {
    #[inline]
    pub(crate) fn new() -> Self {
        Guard { before: CHAIN.with(|chain| chain.len.get()) }
    }

    /// Notes one more.
    #[inline(always)]
    pub(crate) fn hold(&self, held: Held) {
        CHAIN.with(|chain| {
            let len = chain.len.get();
            chain.len.set(len + 1);
            match chain.first.get(len) {
                Some(place) => place.set(held),
                None => add(held.pass, held.desk, held.lane, held.weight, held.spot),
            }
        });
    }
}

/// In parts, so that who never comes here need not put them together.
#[cold]
#[inline(never)]
fn add(pass: usize, desk: usize, lane: u32, weight: u32, spot: Spot) {
    rest(|rest| rest.push(Held { pass, desk, lane, weight, spot }));
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        CHAIN.with(|chain| {
            if chain.len.replace(self.before) > IN_PLACE {
                shorten(self.before.saturating_sub(IN_PLACE));
            }
        });
    }
}

/// As functions of C are, this one is known not to unwind: so the compiler sees that what was made under a guard is not
/// lost as the guard goes, and makes it where it is to stay.
#[cold]
#[inline(never)]
extern "C" fn shorten(len: usize) {
    rest(|rest| rest.truncate(len));
}

/// Whether the work being polled holds anything at all.
#[inline]
pub(crate) fn is_any() -> bool {
    CHAIN.with(|chain| chain.len.get() > 0)
}

/// Which passes of this lane the work being polled holds, and where it took the last.
pub(super) fn held(desk: usize, lane: u32) -> Option<(Hands, Spot)> {
    let (mut hands, mut last) = (Hands::new(), None);
    let mut add = |held: Held| {
        if held.desk == desk && held.lane == lane {
            hands.insert(held.pass, held.weight);
            last = Some(held.spot);
        }
    };
    CHAIN.with(|chain| {
        let len = chain.len.get();
        chain.first.iter().take(len).filter_map(Noted::held).for_each(&mut add);
        if len > IN_PLACE {
            rest(|rest| rest.iter().copied().for_each(add));
        }
    });
    last.map(|spot| (hands, spot))
}

/// While the thread ends there is no list: what is dropped then holds nothing that could wait.
#[inline(never)]
fn rest(with: impl FnOnce(&mut Vec<Held>)) {
    let _ = REST.try_with(|rest| with(&mut rest.borrow_mut()));
}

/// A name for a pass that no other has, and that is not where one could be: those places are even.
pub(crate) fn name() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    /// Taken at once, so that threads do not write to the same word for each.
    const BLOCK: usize = 1_024;
    static BLOCKS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NEXT: Cell<usize> = const { Cell::new(0) };
    }
    NEXT.with(|next| {
        let number = next.get();
        let number = if number % BLOCK == 0 { BLOCKS.fetch_add(BLOCK, Ordering::Relaxed) } else { number };
        next.set(number + 1);
        number.wrapping_mul(2) | 1
    })
}
