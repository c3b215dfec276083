//! Chance, for jitter.
//!
//! Owns the source of randomness. It must never be used where guessing it would matter.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use crate::sync::{AtomicU64, Ordering};

/// Where chance comes from: numbers from 0 to 1.
pub(crate) type Random = Arc<dyn Fn() -> f64 + Send + Sync>;

/// Chance of no great quality, which is all that jitter needs: one step of SplitMix64 for each number, seeded by the standard
/// library's hash keys.
pub(crate) fn chance() -> Random {
    let state = AtomicU64::new(RandomState::new().hash_one(0_u8));
    Arc::new(move || {
        let mut mixed = state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // The upper 53 bits are as many as a double holds exactly.
        (mixed >> 11) as f64 / (1_u64 << 53) as f64
    })
}

/// A number from 0 to 1, whatever a source of chance says: one that says NaN, or more than 1, must not stop or panic anything.
#[cfg(any(feature = "http", feature = "route"))]
pub(crate) fn sound(random: f64) -> f64 {
    if random.is_finite() { random.clamp(0.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::chance;

    #[test]
    fn chance_is_spread_over_all_from_0_to_1() {
        // Seen to fail: with one bit too few, nothing is above a half.
        let chance = chance();
        let mut tenths = [0; 10];
        for _ in 0..10_000 {
            let number = chance();
            assert!((0.0..1.0).contains(&number), "{number}");
            tenths[(number * 10.0) as usize] += 1;
        }
        assert!(tenths.iter().all(|count| (800..1_200).contains(count)), "{tenths:?}");
    }
}
