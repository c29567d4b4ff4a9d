//! The power is cut at every operation of random histories of a log, and what is left is compared with a model.
//!
//! Set `COUNTERFOIL_SEED` to repeat a run.
#![forbid(unsafe_code)]

use counterfoil::model::{Exploration, Explored, Mismatch, explore, numbers};
use counterfoil::store::Unsynced;

/// Power cuts in all, and with each seed.
const CRASHES: u64 = 20_000;
const CRASHES_EACH: u64 = 500;

fn run(seed: u64, crashes: u64, lie: Option<Unsynced>) -> Result<Explored, Mismatch> {
    explore(&mut numbers(seed), Exploration { crashes, lie })
}

#[test]
fn no_message_that_was_durable_is_lost_and_none_is_invented() {
    let base: u64 = std::env::var("COUNTERFOIL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut all = Explored::default();
    for seed in (base..).take((CRASHES / CRASHES_EACH) as usize) {
        match run(seed, CRASHES_EACH, None) {
            Ok(explored) => all.add(explored),
            Err(mismatch) => panic!("COUNTERFOIL_SEED={seed}: {mismatch}"),
        }
    }
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

/// A disk that leaves one sync out is found out.
fn is_found_out(lie: Unsynced) {
    let found = (1..=40).find_map(|seed| run(seed, CRASHES_EACH, Some(lie)).err());
    assert!(found.is_some(), "a disk that doesn't sync {lie:?} passes");
}

#[test]
fn a_disk_that_does_not_sync_segments_is_found_out() {
    is_found_out(Unsynced::Files("segment"));
}

#[test]
fn a_disk_that_does_not_sync_checkpoint_files_is_found_out() {
    is_found_out(Unsynced::Files("checkpoint"));
}

#[test]
fn a_disk_that_does_not_sync_the_directory_is_found_out() {
    is_found_out(Unsynced::Directory);
}

#[test]
fn a_disk_that_does_not_sync_the_manifest_is_found_out() {
    is_found_out(Unsynced::Files("manifest"));
}
