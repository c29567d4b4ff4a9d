//! Reproducible pseudo-random numbers: a seed gives the same sequence on every machine.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A random number source.
pub type Random<'a> = &'a mut dyn FnMut() -> u64;

/// Returns a pseudo-random number generator, SplitMix64 (Steele, Lea and Flood 2014).
pub fn split_mix(seed: u64) -> impl FnMut() -> u64 {
    let mut random = SplitMix64::seed_from_u64(seed);
    move || random.next_u64()
}

/// Draws a number below `bound`; 0 for a bound of 0.
pub(crate) fn below(random: Random<'_>, bound: usize) -> usize {
    (random() % bound.max(1) as u64) as usize
}

/// Returns `len` bytes, different for each `salt`; compressible for an odd `salt`.
pub(crate) fn distinct_bytes(len: usize, salt: u64) -> Vec<u8> {
    let mut word = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let byte = |at: usize| {
        if salt.is_multiple_of(2) || at.is_multiple_of(16) {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(salt);
        }
        (word >> 56) as u8
    };
    (0..len).map(byte).collect()
}
