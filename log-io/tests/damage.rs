//! Files that are cut short and bits that flip, everywhere: the right answer, or an error that says what is wrong.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a failed step of a test's setting is a failed test")]

mod small_store;

use counterfoil_log_io::{CheckpointImage, SimulatedDisk, StoreError, repair, scan};
use small_store::{RECORDS, build, options, owned, read_all};

const FILES: [&str; 3] = ["manifest", "segment-00000001", "checkpoint-00000002"];

/// Opens what was damaged. What is found is right, or an error says what is wrong; nothing is made up. How it ended.
fn check(disk: &SimulatedDisk, right: &CheckpointImage, what: &str) -> bool {
    match read_all(disk, options()) {
        Ok((mut image, records)) => {
            // The last entry of the local log stands behind the checkpoint: damage looks like a write that was cut off.
            assert!(right.local.starts_with(&image.local) && !image.local.is_empty(), "{what}: {:?}", image.local);
            image.local.clone_from(&right.local);
            assert_eq!(image, *right, "{what}");
            assert_eq!(records, owned(&RECORDS), "{what}");
            true
        }
        Err(StoreError::Damaged { .. } | StoreError::Version { .. } | StoreError::Missing) => false,
        Err(error) => panic!("{what}: {error}"),
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
    let disk = SimulatedDisk::new(4096);
    let right = build(&disk, options(), &RECORDS);
    let mut refused = 0;
    for file in FILES {
        let bytes = disk.bytes(file).unwrap();
        for len in 0..bytes.len() {
            let cut = disk.copy();
            cut.set_bytes(file, &bytes[..len]);
            let what = format!("{file} cut to {len}");
            refused += usize::from(!check(&cut, &right, &what));
            if len % 8 == 0 {
                look(&cut, &what);
            }
        }
    }
    assert!(refused > 4096, "only {refused} were refused");
}

#[test]
fn a_bit_that_flips_anywhere_is_harmless_or_found() {
    let disk = SimulatedDisk::new(4096);
    let right = build(&disk, options(), &RECORDS);
    let mut refused = 0;
    for file in FILES {
        let mut bytes = disk.bytes(file).unwrap();
        for at in 0..bytes.len() {
            // Every bit where something stands, one of eight where there are zeros.
            let has_meaning = bytes[at] != 0 || at % 4096 < 256;
            for bit in (0..8).filter(|&bit| has_meaning || bit == at % 8) {
                bytes[at] ^= 1 << bit;
                let flipped = disk.copy();
                flipped.set_bytes(file, &bytes);
                let what = format!("bit {bit} of byte {at} of {file}");
                refused += usize::from(!check(&flipped, &right, &what));
                if bit == at % 8 {
                    look(&flipped, &what);
                }
                bytes[at] ^= 1 << bit;
            }
        }
    }
    // Headers and records: a slot of the manifest that is damaged costs nothing.
    assert!(refused > 1500, "only {refused} were refused");
}

#[test]
fn lengths_that_lie_cost_no_memory() {
    let disk = SimulatedDisk::new(4096);
    let right = build(&disk, options(), &RECORDS);
    // Every word of the three files is set to a large number, checksums notwithstanding.
    for file in FILES {
        let bytes = disk.bytes(file).unwrap();
        for at in (0..bytes.len()).step_by(4).filter(|at| at % 4096 < 256) {
            for large in [u32::MAX, 0x7fff_ffff, 1 << 24] {
                let mut changed = bytes.clone();
                changed[at..at + 4].copy_from_slice(&large.to_le_bytes());
                let lying = disk.copy();
                lying.set_bytes(file, &changed);
                let what = format!("word {at} of {file} set to {large:#x}");
                check(&lying, &right, &what);
                look(&lying, &what);
            }
        }
    }
}
