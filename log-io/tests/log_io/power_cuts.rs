//! Power cuts at every disk operation in random store histories, compared with a model.
//!
//! Set `COUNTERFOIL_SEED` to repeat a run.

use counterfoil_campaign::scaled;
use counterfoil_test_support::SkippedSync;
use counterfoil_test_support::power_cuts::{assert_detected, explore_seeds, store};

/// Power cuts in all, and with each seed.
const CRASHES: u64 = 100_000;
const CRASHES_EACH: u64 = 2_000;

#[test]
fn nothing_that_was_durable_is_lost_and_nothing_is_invented() {
    let crashes = scaled(CRASHES);
    let all = explore_seeds(store::explore, crashes, CRASHES_EACH);
    eprintln!("{all:?}");
    assert!(all.crashes >= crashes, "{all:?}");
    let is_varied = all.crashes_in_recovery >= crashes / 20
        && all.blocks >= 4 * crashes
        && all.blocks_below_floors >= crashes / 50
        && all.tail_entries >= crashes / 20
        && all.faults >= crashes / 1000
        && all.refused >= crashes / 1000
        && all.chunks >= crashes / 250;
    assert!(is_varied, "{all:?}");
}

/// Asserts that a disk without these syncs fails the test above.
fn is_detected(skipped: SkippedSync) {
    assert_detected(store::explore, skipped, 20, CRASHES_EACH);
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
