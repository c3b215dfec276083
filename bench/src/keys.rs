//! The keys that keyed cases visit, and the walk over them.
//!
//! Owns the texts and their order: the same on every run and on both sides. Their texts lie in memory in another order
//! than they are visited in, as the keys of requests do.

use std::hint::black_box;

/// `count` keys, `tenant-0` and so on, in an order that looks random.
pub(crate) fn shuffled(count: u32) -> Vec<String> {
    let mut keys: Vec<String> = (0..count).map(|number| format!("tenant-{number}")).collect();
    shuffle(&mut keys);
    keys
}

/// The numbers below `count` in an order that looks random.
pub(crate) fn shuffled_numbers(count: u32) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count).collect();
    shuffle(&mut numbers);
    numbers
}

/// Fisher and Yates, with a xorshift generator: it need not be good, only always the same.
fn shuffle<T>(things: &mut [T]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..things.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        things.swap(last, (state % (last as u64 + 1)) as usize);
    }
}

/// A way round and round over things; a round begins where the last one stopped.
pub(crate) struct Walk<'a, T> {
    things: &'a [T],
    at: usize,
}

impl<'a, T> Walk<'a, T> {
    pub(crate) fn new(things: &'a [T]) -> Self {
        Walk { things, at: 0 }
    }

    /// The same way, begun elsewhere.
    pub(crate) fn from(things: &'a [T], at: usize) -> Self {
        Walk { things, at }
    }

    #[inline]
    pub(crate) fn step(&mut self) -> &'a T {
        let thing = &self.things[self.at];
        self.at += 1;
        if self.at == self.things.len() {
            self.at = 0;
        }
        thing
    }

    /// The next step is not known before `hash` is, as far as the processor can tell.
    #[inline]
    pub(crate) fn wait_for(&mut self, hash: u64) {
        self.at += (hash & black_box(0)) as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::{Walk, shuffled, shuffled_numbers};

    #[test]
    fn every_key_comes_once_and_in_another_order() {
        let numbers = shuffled_numbers(1_000);
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1_000).collect::<Vec<_>>());
        assert_ne!(numbers, sorted);
        assert_eq!(shuffled(1_000)[0], format!("tenant-{}", numbers[0]));
    }

    #[test]
    fn a_walk_goes_round() {
        let mut walk = Walk::from(&[1, 2, 3], 1);
        assert_eq!([walk.step(), walk.step(), walk.step(), walk.step()], [&2, &3, &1, &2]);
        assert_eq!(Walk::new(&[7]).step(), &7);
        walk.wait_for(u64::MAX);
        assert_eq!(walk.step(), &3);
    }
}
