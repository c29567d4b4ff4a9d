//! Truncation and bit flips everywhere in a store: the result is correct, or an error names the damage.

use counterfoil_campaign::{met, stride};
use counterfoil_log_io::{CheckpointImage, StoreError, StoreOptions, repair, scan};
use counterfoil_test_support::SimulatedDisk;

use crate::small_chunks::{build_of_chunks, options_of_chunks, records_of_chunks};
use crate::small_store::{OwnedRecords, RECORDS, build, options, owned, read_all};

const FILES: [&str; 3] = ["manifest", "segment-00000001", "checkpoint-00000002"];

/// An undamaged store and its contents.
struct Whole {
    disk: SimulatedDisk,
    options: StoreOptions,
    image: CheckpointImage,
    records: OwnedRecords,
}

/// Builds a store with blocks of copied records.
fn copied() -> Whole {
    let disk = SimulatedDisk::new(4096);
    let image = build(&disk, options(), &RECORDS);
    Whole { disk, options: options(), image, records: owned(&RECORDS) }
}

/// Builds a store with a block of one in-place chunk and a block of one copied record.
fn of_chunks() -> Whole {
    let disk = SimulatedDisk::new(4096);
    let image = build_of_chunks(&disk);
    let records: Vec<u32> = image.lanes[0].blocks.iter().map(|block| block.records).collect();
    assert_eq!(records, [3, 1]);
    assert_eq!(disk.bytes("segment-00000001").unwrap()[4096 + 6], 4, "flag 4 of the first block's header");
    Whole { disk, options: options_of_chunks(), image, records: records_of_chunks() }
}

impl Whole {
    /// Opens the damaged store.
    ///
    /// Returns `true` if its contents are correct, `false` for an error naming the damage.
    fn check(&self, disk: &SimulatedDisk, what: &str) -> bool {
        let right = &self.image;
        match read_all(disk, self.options.clone()) {
            Ok((mut image, records)) => {
                // The last local log entry follows the checkpoint: its damage looks like a torn write.
                assert!(right.local.starts_with(&image.local) && !image.local.is_empty(), "{what}: {:?}", image.local);
                image.local.clone_from(&right.local);
                assert_eq!(image, *right, "{what}");
                assert_eq!(records, self.records, "{what}");
                true
            }
            Err(StoreError::Damaged { .. } | StoreError::Version { .. } | StoreError::Missing) => false,
            Err(error) => panic!("{what}: {error}"),
        }
    }

    /// Truncates each file to every length.
    ///
    /// Returns the number of refused stores.
    fn cut_everywhere(&self) -> u64 {
        let mut refused = 0;
        for file in FILES {
            let bytes = self.disk.bytes(file).unwrap();
            for len in (0..bytes.len()).step_by(stride()) {
                let cut = self.disk.copy();
                cut.set_bytes(file, &bytes[..len]);
                let what = format!("{file} cut to {len}");
                refused += u64::from(!self.check(&cut, &what));
                if len % 8 == 0 {
                    inspect(&cut, &what);
                }
            }
        }
        refused
    }

    /// Flips bits in each file: every bit in headers and nonzero bytes, one in eight in zeros.
    ///
    /// A shorter campaign takes fewer bits from each byte. Returns the number of refused stores.
    fn flip_everywhere(&self) -> u64 {
        let mut refused = 0;
        for file in FILES {
            let mut bytes = self.disk.bytes(file).unwrap();
            for at in 0..bytes.len() {
                let has_meaning = bytes[at] != 0 || at % 4096 < 256;
                let is_taken = |bit: usize| (at + bit).is_multiple_of(stride()) && (has_meaning || bit == at % 8);
                for bit in (0..8).filter(|bit| is_taken(*bit)) {
                    bytes[at] ^= 1 << bit;
                    let flipped = self.disk.copy();
                    flipped.set_bytes(file, &bytes);
                    let what = format!("bit {bit} of byte {at} of {file}");
                    refused += u64::from(!self.check(&flipped, &what));
                    if bit == at % 8 {
                        inspect(&flipped, &what);
                    }
                    bytes[at] ^= 1 << bit;
                }
            }
        }
        refused
    }

    /// Sets each word near the start of a page to a large number, without correcting checksums.
    fn enlarge_everywhere(&self) {
        for file in FILES {
            let bytes = self.disk.bytes(file).unwrap();
            for at in (0..bytes.len()).step_by(4).filter(|at| at % 4096 < 256) {
                for large in [u32::MAX, 0x7fff_ffff, 1 << 24] {
                    let mut changed = bytes.clone();
                    changed[at..at + 4].copy_from_slice(&large.to_le_bytes());
                    let enlarged = self.disk.copy();
                    enlarged.set_bytes(file, &changed);
                    let what = format!("word {at} of {file} set to {large:#x}");
                    self.check(&enlarged, &what);
                    inspect(&enlarged, &what);
                }
            }
        }
    }
}

/// Scans a damaged store, and repairs it in a dry run: both return, and change nothing.
fn inspect(disk: &SimulatedDisk, what: &str) {
    let operations = disk.operations();
    let mut backend = disk.clone();
    match scan(&mut backend, &mut |done, total| assert!(done <= total, "{what}: {done} of {total}")) {
        Ok(_) | Err(StoreError::Damaged { .. } | StoreError::Missing) => {}
        Err(error) => panic!("{what}: {error}"),
    }
    match repair(&mut backend, true) {
        Ok(_) | Err(StoreError::Damaged { .. } | StoreError::Version { .. } | StoreError::Missing) => {}
        Err(error) => panic!("{what}: {error}"),
    }
    assert_eq!(disk.operations(), operations, "{what}");
}

#[test]
fn a_file_truncated_anywhere_is_read_correctly_or_refused() {
    let refused = copied().cut_everywhere();
    assert!(refused > met(4096), "only {refused} were refused");
}

#[test]
fn a_bit_flip_anywhere_is_harmless_or_detected() {
    let refused = copied().flip_everywhere();
    // Headers and records: damage to one manifest slot is harmless.
    assert!(refused > met(1500), "only {refused} were refused");
}

#[test]
fn wrong_lengths_cost_no_memory() {
    copied().enlarge_everywhere();
}

#[test]
fn a_chunk_truncated_anywhere_is_read_correctly_or_refused() {
    let refused = of_chunks().cut_everywhere();
    assert!(refused > met(4 * 4096), "only {refused} were refused");
}

#[test]
fn a_bit_flip_anywhere_in_a_chunk_is_harmless_or_detected() {
    let refused = of_chunks().flip_everywhere();
    // Besides headers and tables every flipped bit in the 7,600 bytes of records: at least one for each byte.
    assert!(refused > met(7600 + 1500), "only {refused} were refused");
}

#[test]
fn wrong_lengths_in_a_table_of_chunks_cost_no_memory() {
    of_chunks().enlarge_everywhere();
}
