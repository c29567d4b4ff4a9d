//! Golden files for the format: this version reads them, and writes the same bytes.
//!
//! `COUNTERFOIL_WRITE_GOLDEN=1 cargo test -p counterfoil-log-io golden::` writes them after a format version change;
//! the old ones then move to their own directory.

use std::fs;
use std::path::PathBuf;

use counterfoil_log_io::StoreOptions;
use counterfoil_test_support::SimulatedDisk;

use crate::small_chunks::{build_of_chunks, options_of_chunks, records_of_chunks};
use crate::small_store::{RECORDS, build, options, owned, read_all};

const FILES: [&str; 4] = ["checkpoint-00000002", "manifest", "reserve", "segment-00000001"];

fn directory(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "golden", name].iter().collect()
}

fn compressible() -> StoreOptions {
    StoreOptions { compress: true, ..options() }
}

/// Returns a compressible record.
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
fn this_version_reads_and_writes_the_golden_bytes() {
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
fn compressed_golden_blocks_can_be_read() {
    let long = long_record();
    let records: [(u64, &[u8]); 2] = [(1, &long), (2, b"p2 short")];
    let disk = SimulatedDisk::new(4096);
    let image = build(&disk, compressible(), &records);
    write_if_asked(&disk, "lz4");
    // Another lz4 version may compress differently: the contents are compared, not the bytes.
    let (golden, found) = read_all(&load("lz4"), compressible()).unwrap();
    assert_eq!(found, owned(&records));
    assert_eq!(golden.local, image.local);
    assert_eq!(golden.lanes[0].blocks[0].raw_bytes, image.lanes[0].blocks[0].raw_bytes);
    // Flag 1 in the first block's header: compressed.
    assert_eq!(load("lz4").bytes("segment-00000001").unwrap()[4096 + 6], 1);
}

#[test]
fn golden_chunks_can_be_read() {
    let disk = SimulatedDisk::new(4096);
    let image = build_of_chunks(&disk);
    write_if_asked(&disk, "chunks");
    // The bytes before and after a chunk's records aren't part of the format, and aren't compared.
    let golden = load("chunks");
    assert_eq!(read_all(&golden, options_of_chunks()).unwrap(), (image, records_of_chunks()));
    let (written, golden) = (disk.bytes("segment-00000001").unwrap(), golden.bytes("segment-00000001").unwrap());
    // The block's header and table; then the chunk's records, which start 112 bytes into the chunk.
    assert_eq!((golden[4096 + 6], &golden[4096..8192]), (4, &written[4096..8192]));
    let record_bytes = u64::from_le_bytes(golden[4096 + 64..][..8].try_into().unwrap()) as usize;
    assert_eq!(golden[8192 + 112..][..record_bytes], written[8192 + 112..][..record_bytes]);
}
