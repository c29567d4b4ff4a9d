//! Fuzz body for power cuts: a log on a disk that loses unsynced bytes, with a power cut in each step.

use counterfoil_test_support::power_cuts::log::follow;
use counterfoil_test_support::random::split_mix;

/// Approximate number of input bytes for a step.
const STEP_BYTES: usize = 8;
/// Maximum number of steps, and power cuts, for an input.
const STEPS_MAX: usize = 40;

/// Tests a log with power cuts.
///
/// Each byte is a choice: first for the log's limits, then for the steps and their parameters. The first byte also
/// determines the places of the power cuts, and the lost bytes.
pub fn power_cuts(data: &[u8]) {
    let mut choices = data.iter().copied();
    let mut number = 0;
    let mut chance = || {
        number += 1;
        // A changed byte changes one choice, and a choice can have any 64-bit value.
        match choices.next() {
            Some(byte) => split_mix(u64::from(byte) << 32 | number)(),
            None => 0,
        }
    };
    if let Err(mismatch) = follow(&mut chance, (data.len() / STEP_BYTES).min(STEPS_MAX)) {
        panic!("{mismatch}");
    }
}
