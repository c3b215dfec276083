//! Numbers drawn by a seed: the same seed, the same workload.
//!
//! Owns the generator (SplitMix64: one word of state, passes the usual batteries, needs no dependency) and the shapes drawn from
//! it. Each part of a workload has a stream of its own, so that another spread of keys leaves the arrivals as they were.

/// A stream of numbers.
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
    /// Box and Muller's method gives two at a time.
    spare: Option<f64>,
}

impl Random {
    /// The stream with this number of a seed.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut random = Random { state: seed, spare: None };
        for _ in 0..=stream {
            random.state = random.next().rotate_left(17) ^ seed;
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// From 0 up to, and never, 1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Exponential, with this mean.
    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// Normal, around 0 with a deviation of 1.
    pub(super) fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let (sine, cosine) = (std::f64::consts::TAU * self.unit()).sin_cos();
        self.spare = Some(radius * sine);
        radius * cosine
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn what_is_drawn_has_the_mean_and_the_spread_it_should() {
        let mut random = Random::new(7, 0);
        let draws = 200_000;
        let mean = (0..draws).map(|_| random.exponential(3.0)).sum::<f64>() / f64::from(draws);
        assert!((mean - 3.0).abs() < 0.03, "{mean}");
        let squares = (0..draws).map(|_| random.normal().powi(2)).sum::<f64>() / f64::from(draws);
        assert!((squares - 1.0).abs() < 0.02, "{squares}");
        let low = (0..draws).filter(|_| random.unit() < 0.25).count();
        assert!((0.245..0.255).contains(&(low as f64 / f64::from(draws))), "{low}");
    }

    #[test]
    fn a_seed_gives_the_same_numbers_and_streams_differ() {
        let take = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [random.next(), random.next(), random.next()]
        };
        assert_eq!(take(1, 0), take(1, 0));
        assert_ne!(take(1, 0), take(1, 1));
        assert_ne!(take(1, 0), take(2, 0));
    }
}
