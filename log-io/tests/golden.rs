//! Files that were written once can be read for ever, and this version writes the same bytes.
//!
//! `COUNTERFOIL_WRITE_GOLDEN=1 cargo test -p counterfoil-log-io --test golden` writes them, where the format's version
//! changes: then the old ones move to a directory of their own.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a failed step of a test's setting is a failed test")]

mod small_chunks;
mod small_store;

use std::fs;
use std::path::PathBuf;

use counterfoil_log_io::{SimulatedDisk, StoreOptions};
use small_chunks::{build_of_chunks, options_of_chunks, records_of_chunks};
use small_store::{RECORDS, build, options, owned, read_all};

const FILES: [&str; 4] = ["checkpoint-00000002", "manifest", "reserve", "segment-00000001"];

fn directory(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "golden", name].iter().collect()
}

fn compressible() -> StoreOptions {
    StoreOptions { compress: true, ..options() }
}

/// A record that lz4 makes smaller, and one behind it.
fn long_record() -> Vec<u8> {
    (0..3000u32).map(|at| (at % 50) as u8).collect()
}

fn write_if_asked(disk: &SimulatedDisk, name: &str) {
    if std::env::var_os("COUNTERFOIL_WRITE_GOLDEN").is_some() {
        let directory = directory(name);
        fs::create_dir_all(&directory).unwrap();
        for file in disk.names() {
            fs::write(directory.join(&file), disk.bytes(&file).unwrap()).unwrap();
        }
    }
}

fn load(name: &str) -> SimulatedDisk {
    let disk = SimulatedDisk::new(4096);
    for file in FILES {
        disk.set_bytes(file, &fs::read(directory(name).join(file)).unwrap());
    }
    disk
}

#[test]
fn this_version_writes_the_bytes_that_were_written_before_and_reads_them() {
    let disk = SimulatedDisk::new(4096);
    let image = build(&disk, options(), &RECORDS);
    write_if_asked(&disk, "plain");
    assert_eq!(disk.names(), FILES);
    let golden = load("plain");
    for file in FILES {
        let (written, golden) = (disk.bytes(file).unwrap(), golden.bytes(file).unwrap());
        let differs = written.iter().zip(&golden).position(|(a, b)| a != b);
        assert_eq!((differs, written.len()), (None, golden.len()), "{file}");
    }
    assert_eq!(read_all(&golden, options()).unwrap(), (image, owned(&RECORDS)));
}

#[test]
fn compressed_blocks_that_were_written_before_can_be_read() {
    let long = long_record();
    let records: [(u64, &[u8]); 2] = [(1, &long), (2, b"p2 short")];
    let disk = SimulatedDisk::new(4096);
    let image = build(&disk, compressible(), &records);
    write_if_asked(&disk, "lz4");
    // Another version of lz4 may compress differently: the bytes aren't compared, what is in them is.
    let (golden, found) = read_all(&load("lz4"), compressible()).unwrap();
    assert_eq!(found, owned(&records));
    assert_eq!(golden.local, image.local);
    assert_eq!(golden.lanes[0].blocks[0].raw_bytes, image.lanes[0].blocks[0].raw_bytes);
    // Flag 1 of the first block's header says that it is compressed.
    assert_eq!(load("lz4").bytes("segment-00000001").unwrap()[4096 + 6], 1);
}

#[test]
fn chunks_that_were_written_before_can_be_read() {
    let disk = SimulatedDisk::new(4096);
    let image = build_of_chunks(&disk);
    write_if_asked(&disk, "chunks");
    // What stands in front of a chunk's records and behind them is no part of the format, and isn't compared.
    let golden = load("chunks");
    assert_eq!(read_all(&golden, options_of_chunks()).unwrap(), (image, records_of_chunks()));
    let (written, golden) = (disk.bytes("segment-00000001").unwrap(), golden.bytes("segment-00000001").unwrap());
    // The block's header and table; then the chunk's records, which are 112 bytes behind.
    assert_eq!((golden[4096 + 6], &golden[4096..8192]), (4, &written[4096..8192]));
    let record_bytes = u64::from_le_bytes(golden[4096 + 64..][..8].try_into().unwrap()) as usize;
    assert_eq!(golden[8192 + 112..][..record_bytes], written[8192 + 112..][..record_bytes]);
}
