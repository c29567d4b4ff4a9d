//! Files that are cut short and bits that flip, everywhere: the right answer, or an error that says what is wrong.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a failed step of a test's setting is a failed test")]

mod small_chunks;
mod small_store;

use counterfoil_log_io::{CheckpointImage, SimulatedDisk, StoreError, StoreOptions, repair, scan};
use small_chunks::{build_of_chunks, options_of_chunks, records_of_chunks};
use small_store::{OwnedRecords, RECORDS, build, options, owned, read_all};

const FILES: [&str; 3] = ["manifest", "segment-00000001", "checkpoint-00000002"];

/// A store, and what is in it.
struct Whole {
    disk: SimulatedDisk,
    options: StoreOptions,
    image: CheckpointImage,
    records: OwnedRecords,
}

/// Blocks of records that were copied.
fn copied() -> Whole {
    let disk = SimulatedDisk::new(4096);
    let image = build(&disk, options(), &RECORDS);
    Whole { disk, options: options(), image, records: owned(&RECORDS) }
}

/// A block that is a chunk as it lay in memory, and one of a record that was copied.
fn of_chunks() -> Whole {
    let disk = SimulatedDisk::new(4096);
    let image = build_of_chunks(&disk);
    let records: Vec<u32> = image.lanes[0].blocks.iter().map(|block| block.records).collect();
    assert_eq!(records, [3, 1]);
    assert_eq!(disk.bytes("segment-00000001").unwrap()[4096 + 6], 4, "flag 4 of the first block's header");
    Whole { disk, options: options_of_chunks(), image, records: records_of_chunks() }
}

impl Whole {
    /// Opens what was damaged. What is found is right, or an error says what is wrong; nothing is made up. How it ended.
    fn check(&self, disk: &SimulatedDisk, what: &str) -> bool {
        let right = &self.image;
        match read_all(disk, self.options.clone()) {
            Ok((mut image, records)) => {
                // The last entry of the local log stands behind the checkpoint: damage looks like a write that was cut off.
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

    /// How many of the files, cut anywhere, were refused.
    fn cut_everywhere(&self) -> usize {
        let mut refused = 0;
        for file in FILES {
            let bytes = self.disk.bytes(file).unwrap();
            for len in 0..bytes.len() {
                let cut = self.disk.copy();
                cut.set_bytes(file, &bytes[..len]);
                let what = format!("{file} cut to {len}");
                refused += usize::from(!self.check(&cut, &what));
                if len % 8 == 0 {
                    look(&cut, &what);
                }
            }
        }
        refused
    }

    /// How many flipped bits were refused: every bit where something stands, one of eight where there are zeros.
    fn flip_everywhere(&self) -> usize {
        let mut refused = 0;
        for file in FILES {
            let mut bytes = self.disk.bytes(file).unwrap();
            for at in 0..bytes.len() {
                let has_meaning = bytes[at] != 0 || at % 4096 < 256;
                for bit in (0..8).filter(|&bit| has_meaning || bit == at % 8) {
                    bytes[at] ^= 1 << bit;
                    let flipped = self.disk.copy();
                    flipped.set_bytes(file, &bytes);
                    let what = format!("bit {bit} of byte {at} of {file}");
                    refused += usize::from(!self.check(&flipped, &what));
                    if bit == at % 8 {
                        look(&flipped, &what);
                    }
                    bytes[at] ^= 1 << bit;
                }
            }
        }
        refused
    }

    /// Sets every word near the beginning of a page to a large number, checksums notwithstanding.
    fn lie_everywhere(&self) {
        for file in FILES {
            let bytes = self.disk.bytes(file).unwrap();
            for at in (0..bytes.len()).step_by(4).filter(|at| at % 4096 < 256) {
                for large in [u32::MAX, 0x7fff_ffff, 1 << 24] {
                    let mut changed = bytes.clone();
                    changed[at..at + 4].copy_from_slice(&large.to_le_bytes());
                    let lying = self.disk.copy();
                    lying.set_bytes(file, &changed);
                    let what = format!("word {at} of {file} set to {large:#x}");
                    self.check(&lying, &what);
                    look(&lying, &what);
                }
            }
        }
    }
}

/// Looks at what was damaged, and says what a repair would do: both end, and change nothing.
fn look(disk: &SimulatedDisk, what: &str) {
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
fn a_file_that_is_cut_anywhere_is_right_or_says_what_is_wrong() {
    let refused = copied().cut_everywhere();
    assert!(refused > 4096, "only {refused} were refused");
}

#[test]
fn a_bit_that_flips_anywhere_is_harmless_or_found() {
    let refused = copied().flip_everywhere();
    // Headers and records: a slot of the manifest that is damaged costs nothing.
    assert!(refused > 1500, "only {refused} were refused");
}

#[test]
fn lengths_that_lie_cost_no_memory() {
    copied().lie_everywhere();
}

#[test]
fn a_chunk_that_is_cut_anywhere_is_right_or_says_what_is_wrong() {
    let refused = of_chunks().cut_everywhere();
    assert!(refused > 4 * 4096, "only {refused} were refused");
}

#[test]
fn a_bit_that_flips_anywhere_in_a_chunk_is_harmless_or_found() {
    let refused = of_chunks().flip_everywhere();
    // Every bit that was flipped in the records, beside headers and tables: 7,600 bytes, and more bits of those that aren't zero.
    assert!(refused > 7600 + 1500, "only {refused} were refused");
}

#[test]
fn lengths_that_lie_in_a_table_of_chunks_cost_no_memory() {
    of_chunks().lie_everywhere();
}
