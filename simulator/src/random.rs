//! Seeded random numbers.
//!
//! A seed determines a schedule, so its sequence must never change.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(SplitMix64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(SplitMix64::seed_from_u64(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number from 0 to `bound - 1`; 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Does [`Random::below`] for an index.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns a number from `first` to `last`, both included.
    pub(crate) fn between(&mut self, first: u32, last: u32) -> u32 {
        first + self.below(u64::from(last.saturating_sub(first)) + 1) as u32
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}

/// Increment of SplitMix64's state.
const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes a number's bits: SplitMix64's output function.
pub(crate) fn mix(number: u64) -> u64 {
    // The generator adds the increment before it mixes.
    Random::new(number.wrapping_sub(INCREMENT)).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_published_sequence() {
        // The reference implementation's first outputs for the seed 1234567.
        let mut random = Random::new(1_234_567);
        let first = [(); 3].map(|()| random.next());
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
        assert_eq!(mix(1_234_567 + INCREMENT), first[0]);
    }
}
