//! NAS Parallel Benchmarks' pseudo-random numbers (Bailey et al., RNR-94-007, section 2.3): x' = a x mod 2^46 with a =
//! 5^13, scaled into (0, 1).

const MULTIPLIER: u64 = 1_220_703_125; // 5^13
const SEED: u64 = 314_159_265;
const BITS: u32 = 46;

/// Random number generator.
///
/// Its state is the sequence's last number, below 2^46.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Creates the generator with the seed for CG and FT.
    pub(crate) const fn seeded() -> Random {
        Random(SEED)
    }

    /// Creates a generator with a sequence starting at a place derived from `seed`.
    pub(crate) fn from_seed(seed: u64) -> Random {
        // An odd number: the sequence has its full period, 2^44.
        let mut random = Random((SEED ^ (seed << 1)) & ((1 << BITS) - 1) | 1);
        random.skip(1 + seed % 1000);
        random
    }

    /// Passes over `count` numbers.
    pub(crate) fn skip(&mut self, mut count: u64) {
        let mut power = MULTIPLIER;
        while count > 0 {
            if count % 2 == 1 {
                self.0 = self.0.wrapping_mul(power) & ((1 << BITS) - 1);
            }
            power = power.wrapping_mul(power) & ((1 << BITS) - 1);
            count /= 2;
        }
    }

    /// Returns the sequence's next number, with 46 bits.
    fn next_bits(&mut self) -> u64 {
        // 2^46 divides 2^64, so the product may wrap: its lower 46 bits are exact.
        self.0 = self.0.wrapping_mul(MULTIPLIER) & ((1 << BITS) - 1);
        self.0
    }

    /// Returns the next number, scaled into (0, 1).
    ///
    /// Exact: 46 bits fit an f64.
    pub(crate) fn next_fraction(&mut self) -> f64 {
        self.next_bits() as f64 / (1u64 << BITS) as f64
    }

    /// Returns the next number, scaled to an index below 2^`bits` and rounded down, for at most 46 bits.
    pub(crate) fn next_index(&mut self, bits: u32) -> u64 {
        self.next_bits() >> (BITS - bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_that_of_wide_arithmetic() {
        let mut random = Random::seeded();
        let mut wide = u128::from(SEED);
        for _ in 0..1000 {
            wide = wide * 5u128.pow(13) % (1 << 46);
            assert_eq!(u128::from(random.next_bits()), wide);
        }
    }

    #[test]
    fn numbers_that_are_skipped_are_those_that_would_have_come() {
        for count in [0, 1, 2, 3, 64, 1000] {
            let (mut skipped, mut counted) = (Random::from_seed(9), Random::from_seed(9));
            skipped.skip(count);
            (0..count).for_each(|_| _ = counted.next_bits());
            assert_eq!(skipped.next_bits(), counted.next_bits(), "{count}");
        }
        assert_ne!(Random::from_seed(1).next_bits(), Random::from_seed(2).next_bits());
    }

    #[test]
    fn an_index_is_the_scaled_fraction_rounded_down() {
        let mut fractions = Random::seeded();
        let mut indices = Random::seeded();
        for _ in 0..1000 {
            let scaled = fractions.next_fraction() * 2048.0;
            assert_eq!(indices.next_index(11), scaled as u64);
        }
    }
}
