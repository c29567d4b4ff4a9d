//! Length of random and exhaustive test campaigns, by one setting.
//!
//! `COUNTERFOIL_CAMPAIGN_PERCENT` (1 to 100, by default 100) shortens every campaign alike: `cargo xtask test --quick`
//! sets it. A test that counts cases met in its campaign scales these counts, too; so it can't pass on an empty
//! campaign.
//!
//! ```
//! use counterfoil_campaign::{scaled, stride};
//!
//! for seed in 0..scaled(3_000) {
//!     // A random schedule from this seed.
//! }
//! for place in (0..500).step_by(stride()) {
//!     // A fault at this place.
//! }
//! ```
#![forbid(unsafe_code)]

use std::sync::LazyLock;

/// Variable for the length.
pub const VARIABLE: &str = "COUNTERFOIL_CAMPAIGN_PERCENT";

static PERCENT: LazyLock<u64> = LazyLock::new(|| std::env::var(VARIABLE).map_or(100, |value| parse(&value)));

/// Returns the campaign length in percent of the full one, from 1 to 100.
///
/// # Panics
/// If the variable has another value: a misspelt one must not shorten the tests unnoticed.
pub fn percent() -> u64 {
    *PERCENT
}

/// Returns the length of a campaign with full length `full`: at least 1, unless `full` is 0.
///
/// # Panics
/// See [`percent`].
pub fn scaled(full: u64) -> u64 {
    scale(full, percent())
}

/// Returns the required count for a case met `full` times at full length: in a shorter campaign a tenth fewer, since
/// chance weighs more there.
///
/// # Panics
/// See [`percent`].
pub fn met(full: u64) -> u64 {
    meet(full, percent())
}

/// Returns the step between cases in an exhaustive campaign: 1 for all cases.
///
/// # Panics
/// See [`percent`].
pub fn stride() -> usize {
    (100 / percent()) as usize
}

fn parse(value: &str) -> u64 {
    match value.trim().parse() {
        Ok(percent @ 1..=100) => percent,
        _ => panic!("{VARIABLE} is {value:?}: a number from 1 to 100 is expected"),
    }
}

fn scale(full: u64, percent: u64) -> u64 {
    (full.saturating_mul(percent) / 100).max(full.min(1))
}

fn meet(full: u64, percent: u64) -> u64 {
    let scaled = scale(full, percent);
    if percent == 100 { scaled } else { scaled - scaled / 10 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_campaign_is_never_empty_and_never_longer() {
        assert_eq!((scale(3_000, 100), scale(3_000, 5), scale(10, 5), scale(0, 5)), (3_000, 150, 1, 0));
        assert_eq!(scale(u64::MAX, 1), u64::MAX / 100);
    }

    #[test]
    fn only_a_shorter_campaign_may_meet_a_case_less_often() {
        assert_eq!((meet(2_000, 100), meet(2_000, 99), meet(2_000, 10), meet(3, 10)), (2_000, 1_782, 180, 1));
    }

    #[test]
    fn a_percentage_is_from_1_to_100() {
        assert_eq!((parse("1"), parse(" 100 ")), (1, 100));
        for wrong in ["0", "101", "5%", "", "quick"] {
            assert!(std::panic::catch_unwind(|| parse(wrong)).is_err(), "{wrong:?}");
        }
    }
}
