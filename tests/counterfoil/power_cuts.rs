//! Power cuts at every disk operation in random log histories, compared with a model.
//!
//! Set `COUNTERFOIL_SEED` to repeat a run.

use counterfoil_campaign::scaled;
use counterfoil_test_support::SkippedSync;
use counterfoil_test_support::power_cuts::{Exploration, assert_detected, explore_seeds, log};
use counterfoil_test_support::random::split_mix;

/// Total number of power cuts, and number for each seed.
const CRASHES: u64 = 20_000;
const CRASHES_EACH: u64 = 500;

#[test]
fn no_message_that_was_durable_is_lost_and_none_is_invented() {
    let crashes = scaled(CRASHES);
    let all = explore_seeds(log::explore, crashes, CRASHES_EACH);
    eprintln!("{all:?}");
    assert!(all.crashes >= crashes, "{all:?}");
    let is_varied = all.crashes_in_recovery >= crashes / 20
        && all.checkpoints >= crashes / 4
        && all.messages >= 10 * crashes
        && all.held_messages >= crashes / 40
        && all.tail_entries >= crashes / 20
        && all.unsynced_entries >= crashes / 500
        && all.lanes_in_memory >= crashes / 500
        && all.spilled_bytes >= 25 * crashes
        && all.faults >= crashes / 400
        && all.refused >= crashes / 150
        && all.stopped >= crashes / 2000;
    assert!(is_varied, "{all:?}");
}

/// A cursor on disk passed over messages covered, and freed in memory, before it came to them: the model allowed this
/// in the process-crash-safe tier only.
#[test]
fn histories_that_once_failed_pass() {
    let explored = log::explore(&mut split_mix(1_993_433_046), Exploration { crashes: 3_500, skipped_sync: None });
    explored.unwrap_or_else(|mismatch| panic!("{mismatch}"));
}

/// Asserts that a disk omitting these syncs fails the test above.
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
