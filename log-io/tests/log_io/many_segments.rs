//! A store with many segments.

use std::path::Path;

use counterfoil_log_core::{Epoch, Rank, Record, Ssn};
use counterfoil_log_io::{
    BackendChoice, CheckpointImage, Directory, DirectoryAccess, LaneImage, RecordSource, StorageBackend, Store,
    StoreOptions,
};

/// Number of segments of the store.
pub(crate) const SEGMENTS: usize = 40;

/// Creates a store with many segments, each with a record referenced by a checkpoint.
pub(crate) fn build(path: &Path) {
    let (backend, _) = Directory::create(path, BackendChoice::Pwrite).unwrap();
    let mut store = Store::create(backend, many()).unwrap();
    let body = vec![7; 3000];
    let mut blocks = Vec::new();
    for ssn in 1..=SEGMENTS as u64 {
        store.append(Rank(2), &mut One(Some((Ssn(ssn), &body))), &mut blocks).unwrap();
    }
    let lane = LaneImage {
        peer: Rank(2),
        next: Ssn(SEGMENTS as u64 + 1),
        acked: Ssn(0),
        covered: Ssn(0),
        runs: Vec::new(),
        blocks,
    };
    let image = CheckpointImage { epoch: Epoch(2), lanes: vec![lane], ..Default::default() };
    store.checkpoint(&image).unwrap();
}

pub(crate) fn many() -> StoreOptions {
    StoreOptions {
        segment_bytes: 8 << 10,
        block_bytes: 4 << 10,
        reserve_bytes: 4 << 10,
        ..StoreOptions::new(Rank(1), 3)
    }
}

/// One record.
pub(crate) struct One<'a>(pub(crate) Option<(Ssn, &'a [u8])>);

impl RecordSource for One<'_> {
    fn next(&mut self) -> Option<Record<'_>> {
        let (ssn, wire) = self.0.take()?;
        Record::new(ssn, wire, 0)
    }
}

pub(crate) fn backend(path: &Path, access: DirectoryAccess) -> Box<dyn StorageBackend> {
    Directory::open(path, BackendChoice::Pwrite, access).unwrap().0
}

pub(crate) fn place() -> (tempfile::TempDir, std::path::PathBuf) {
    let keep = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = keep.path().join("store");
    (keep, path)
}
