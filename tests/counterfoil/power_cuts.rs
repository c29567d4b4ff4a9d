//! Power cuts at every disk operation of random histories of a log, compared with a model.
//!
//! Set `COUNTERFOIL_SEED` to repeat a run.

use counterfoil_test_support::SkippedSync;
use counterfoil_test_support::power_cuts::{assert_detected, explore_seeds, log};

/// Total number of power cuts, and number for each seed.
const CRASHES: u64 = 20_000;
const CRASHES_EACH: u64 = 500;

#[test]
fn no_message_that_was_durable_is_lost_and_none_is_invented() {
    let all = explore_seeds(log::explore, CRASHES, CRASHES_EACH);
    eprintln!("{all:?}");
    assert!(all.crashes >= CRASHES, "{all:?}");
    let is_varied = all.crashes_in_recovery >= CRASHES / 20
        && all.checkpoints >= CRASHES / 4
        && all.messages >= 10 * CRASHES
        && all.held_messages >= CRASHES / 40
        && all.tail_entries >= CRASHES / 20
        && all.spilled_bytes >= 50 * CRASHES
        && all.faults >= CRASHES / 400
        && all.refused >= CRASHES / 100
        && all.stopped >= CRASHES / 2000;
    assert!(is_varied, "{all:?}");
}

/// Asserts that a disk that leaves out these syncs fails the test above.
fn is_detected(skipped: SkippedSync) {
    assert_detected(log::explore, skipped, 40, CRASHES_EACH);
}

#[test]
fn a_disk_that_does_not_sync_segments_is_detected() {
    is_detected(SkippedSync::Files("segment"));
}

#[test]
fn a_disk_that_does_not_sync_checkpoint_files_is_detected() {
    is_detected(SkippedSync::Files("checkpoint"));
}

#[test]
fn a_disk_that_does_not_sync_the_manifest_is_detected() {
    is_detected(SkippedSync::Files("manifest"));
}

#[test]
fn a_disk_that_does_not_sync_the_directory_is_detected() {
    is_detected(SkippedSync::Directory);
}
