//! The power is cut at every operation of random histories, and what is left is compared with a model.
#![forbid(unsafe_code)]

use counterfoil_log_io::Unsynced;
use counterfoil_log_io::model::{Exploration, Explored, Mismatch, explore, numbers};

/// Power cuts in all, and with each seed.
const CRASHES: u64 = 100_000;
const CRASHES_EACH: u64 = 2_000;

fn run(seed: u64, crashes: u64, lie: Option<Unsynced>) -> Result<Explored, Mismatch> {
    explore(&mut numbers(seed), Exploration { crashes, lie })
}

#[test]
fn nothing_that_was_durable_is_lost_and_nothing_is_invented() {
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
        && all.blocks >= 4 * CRASHES
        && all.blocks_below_floors >= CRASHES / 50
        && all.tail_entries >= CRASHES / 20
        && all.faults >= CRASHES / 1000
        && all.refused >= CRASHES / 1000
        && all.chunks >= CRASHES / 250;
    assert!(is_varied, "{all:?}");
}

/// A disk that leaves one sync out of the barrier is found out.
fn is_found_out(lie: Unsynced) {
    let found = (1..=20).find_map(|seed| run(seed, 2_000, Some(lie)).err());
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
fn a_disk_that_does_not_sync_the_manifest_is_found_out() {
    is_found_out(Unsynced::Files("manifest"));
}

#[test]
fn a_disk_that_does_not_sync_the_directory_is_found_out() {
    is_found_out(Unsynced::Directory);
}
