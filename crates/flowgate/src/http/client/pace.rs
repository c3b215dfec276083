//! How many of ours may be in flight, by what the server says is left.
//!
//! Owns that one rule; the gate whose `max` it moves is elsewhere.
//!
//! What the server has left and what we hold ourselves is all that the other callers leave us. Of that we leave a headroom free
//! (a quarter of the limit, unless told otherwise): while less than the headroom is left, we go down by exactly what is
//! missing from it, whatever we had allowed ourselves before. So it is lowered in proportion as the last slots go, nearly
//! all of a lone caller's slots stay in use, and a caller among many, who holds next to nothing anyway, goes down to one. Once
//! the headroom is free again, each response raises `max` by one, up to the server's limit.

use super::headers::Concurrency;

/// The rule, with its options.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Never more than this, whatever the server allows.
    pub(super) ceiling: u32,
    /// Which share of the server's limit to leave free, in percent.
    pub(super) headroom: u32,
}

impl Pace {
    /// The next `max`, where it was `max`, `held` of ours are in flight at the server, and a response says `seen`.
    pub(super) fn next(&self, max: u32, held: u32, seen: Concurrency) -> u32 {
        let headroom = (u64::from(seen.limit) * u64::from(self.headroom)).div_ceil(100);
        let headroom = u32::try_from(headroom).unwrap_or(u32::MAX);
        let next = if seen.remaining < headroom {
            let missing = headroom - seen.remaining;
            max.min(held.saturating_sub(missing))
        } else {
            max.saturating_add(1)
        };
        // Never 0: with nothing in flight, nothing would ever be heard again.
        next.min(seen.limit).min(self.ceiling).max(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const QUARTER: Pace = Pace { ceiling: 1_000, headroom: 25 };

    #[test]
    fn max_goes_down_by_what_is_missing_from_the_headroom_and_up_by_one() {
        // Seen to fail: without the `min`, a `max` of 5 is raised to 21 while the headroom is short.
        for (max, held, limit, remaining, next) in [
            // Nothing was known: the limit is.
            (1_000, 1, 30, 29, 30),
            // A lone caller: what it holds and what is left make 30, and it settles where 8 are left.
            (30, 30, 30, 0, 22),
            (22, 22, 30, 8, 23),
            (23, 23, 30, 7, 22),
            // Others hold the rest: what is missing is all we have.
            (30, 3, 30, 0, 1),
            (30, 12, 30, 4, 8),
            (8, 8, 30, 6, 6),
            // What was lower already stays.
            (2, 2, 30, 7, 1),
            (5, 22, 30, 7, 5),
            // One step up for each response, as far as the limit goes.
            (1, 1, 30, 29, 2),
            (29, 1, 30, 29, 30),
            (30, 1, 30, 29, 30),
            // A limit that was lowered holds at once, one that was raised is reached step by step.
            (30, 4, 10, 6, 10),
            (10, 4, 30, 26, 11),
            // Small limits, and one that makes no sense.
            (1, 1, 1, 0, 1),
            (2, 2, 2, 0, 1),
            (1, 1, 2, 1, 2),
            (5, 1, 0, 0, 1),
        ] {
            let seen = Concurrency { limit, remaining };
            assert_eq!(
                QUARTER.next(max, held, seen),
                next,
                "max {max}, {held} held, {remaining} of {limit} left"
            );
        }
    }

    #[test]
    fn without_headroom_it_follows_the_limit_alone_and_our_own_ceiling_holds() {
        // Seen to fail: without the ceiling, `max` grows to the server's limit.
        let rule = Pace { ceiling: 20, headroom: 0 };
        assert_eq!(rule.next(20, 20, Concurrency { limit: 30, remaining: 0 }), 20);
        assert_eq!(rule.next(20, 10, Concurrency { limit: 10, remaining: 0 }), 10);
        let rule = Pace { ceiling: 20, headroom: 100 };
        assert_eq!(rule.next(20, 5, Concurrency { limit: 30, remaining: 25 }), 1);
    }

    proptest! {
        #[test]
        fn max_stays_within_its_bounds_and_more_left_never_means_less(
            max in 1_u32..2_000,
            held in 0_u32..2_000,
            limit in 0_u32..2_000,
            remaining in 0_u32..2_000,
            ceiling in 1_u32..2_000,
            headroom in 0_u32..=100,
        ) {
            // Seen to fail: without the floor, `max` is 0.
            let rule = Pace { ceiling, headroom };
            let next = |remaining: u32| rule.next(max, held, Concurrency { limit, remaining: remaining.min(limit) });
            prop_assert!((1..=ceiling.min(limit).max(1)).contains(&next(remaining)));
            prop_assert!(next(remaining) <= next(remaining + 1));
            prop_assert!(next(remaining) <= max + 1, "up by one at most");
        }

        #[test]
        fn a_lone_caller_settles_at_what_the_headroom_leaves(limit in 4_u32..500, start in 1_u32..2_000) {
            // Seen to fail: with `max` raised to the limit at once, it swings between both.
            // As much in flight as `max` allows, all the time.
            let rule = Pace { ceiling: 1_000, headroom: 25 };
            let mut max = start.min(limit);
            for _ in 0..600 {
                max = rule.next(max, max, Concurrency { limit, remaining: limit - max });
            }
            let settled = limit - limit.div_ceil(4);
            prop_assert!((settled..=settled + 1).contains(&max), "{max} of {limit}");
        }
    }
}
