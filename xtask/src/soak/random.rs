//! SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), with the same output on every machine.

use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A deterministic pseudo-random generator.
#[derive(Debug)]
pub(super) struct SplitMix64(rand_xoshiro::SplitMix64);

impl SplitMix64 {
    pub(super) fn new(seed: u64) -> Self {
        Self(rand_xoshiro::SplitMix64::seed_from_u64(seed))
    }

    pub(super) fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number from `first` to `last` inclusive.
    ///
    /// `first` must not exceed `last`.
    pub(super) fn in_range(&mut self, first: u32, last: u32) -> u32 {
        debug_assert!(first <= last, "{first}..={last} is empty");
        let span = u64::from(last - first) + 1;
        // The modulo bias is below 2^-32.
        let offset = self.next_u64() % span;
        first + u32::try_from(offset).expect("offset is at most last - first")
    }

    /// Returns one of `choices`, which must not be empty.
    pub(super) fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        let last = u32::try_from(choices.len() - 1).expect("a short list");
        choices[self.in_range(0, last) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::SplitMix64;

    #[test]
    fn the_output_matches_the_reference_implementation() {
        // The reference implementation's first outputs for the seed 1234567.
        let mut random = SplitMix64::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn both_ends_of_a_range_are_drawn_and_nothing_outside() {
        let mut random = SplitMix64::new(7);
        let mut seen = [0_u32; 3];
        for _ in 0..300 {
            seen[random.in_range(4, 6) as usize - 4] += 1;
        }
        assert!(seen.iter().all(|&count| count > 50), "{seen:?}");
        assert_eq!(random.in_range(9, 9), 9);
    }
}
