//! Random numbers for the distribution of records; not for security.

/// `SplitMix64`: one addition and three rounds of mixing. Equal seeds give equal sequences.
///
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Starts the sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`, all equally likely.
    ///
    /// Source: Lemire, "Fast random integer generation in an interval", TOMACS 2019.
    ///
    /// # Panics
    /// If `n` is 0.
    #[expect(clippy::cast_possible_truncation, reason = "takes one half of the product")]
    pub fn below(&mut self, n: u32) -> u32 {
        assert!(n > 0, "there is no number below 0");
        // The lowest `threshold` products would make some numbers more likely than others.
        let threshold = n.wrapping_neg() % n;
        loop {
            let product = (self.next() >> 32) * u64::from(n);
            if product as u32 >= threshold {
                return (product >> 32) as u32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_a_seed_is_the_published_one() {
        let mut random = SplitMix64::new(1_234_567);
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(expected.map(|_| random.next()), expected);
    }

    #[test]
    fn numbers_below_a_bound_are_uniform() {
        for n in [1, 2, 3, 7, 100] {
            let mut random = SplitMix64::new(42);
            let mut counts = vec![0_u32; n as usize];
            for _ in 0..n * 10_000 {
                counts[random.below(n) as usize] += 1;
            }
            // Six standard deviations around 10,000.
            assert!(counts.iter().all(|count| count.abs_diff(10_000) < 600), "{counts:?}");
        }
    }
}
