//! Seeded random numbers: the seed determines a schedule.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(SplitMix64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(SplitMix64::seed_from_u64(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number from 0 to `bound - 1`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Does [`Random::below`] for an index.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// State increment of SplitMix64.
const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes the bits of a number: the output function of SplitMix64.
pub(crate) fn mix(number: u64) -> u64 {
    // The generator adds the increment before it mixes.
    Random::new(number.wrapping_sub(INCREMENT)).next()
}
