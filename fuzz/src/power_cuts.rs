//! A log on a disk that loses what wasn't synced, with the power cut at a place of each step.

use counterfoil::model::{follow, numbers};

/// Bytes of input to a step, about.
const STEP_BYTES: usize = 8;
/// Power cuts of an input.
const STEPS_MAX: usize = 40;

/// Each byte is a choice: first of the log's limits, then of the steps and what they are about. Where the power is cut, and
/// what it takes, follows from the first.
pub fn power_cuts(data: &[u8]) {
    let mut choices = data.iter().copied();
    let mut number = 0;
    let mut chance = || {
        number += 1;
        // One byte changed is one choice changed, and each has all values of a number.
        match choices.next() {
            Some(byte) => numbers(u64::from(byte) << 32 | number)(),
            None => 0,
        }
    };
    if let Err(mismatch) = follow(&mut chance, (data.len() / STEP_BYTES).min(STEPS_MAX)) {
        panic!("{mismatch}");
    }
}
