//! Properties required from every backend, as functions of the backend.

pub(crate) mod chunks;
pub(crate) mod files;
pub(crate) mod recovery;
pub(crate) mod writes;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use counterfoil_log_io::{BackendChoice, BackendKind, Directory, FileId, PAGE_BYTES, StorageBackend};

/// A property and its name.
pub(crate) type Property = (&'static str, fn(BackendChoice));

/// All properties.
pub(crate) const ALL: &[Property] = &[
    ("writes_at_any_page_are_read_back", writes::writes_at_any_page_are_read_back),
    ("a_new_file_is_preallocated_zeros", files::a_new_file_is_preallocated_zeros),
    ("only_whole_pages_of_open_files_are_written", writes::only_whole_pages_of_open_files_are_written),
    ("only_plain_names_are_valid", files::only_plain_names_are_valid),
    ("a_punched_hole_frees_its_space", files::a_punched_hole_frees_its_space),
    ("a_file_is_truncated", files::a_file_is_truncated),
    ("a_removed_file_is_gone", files::a_removed_file_is_gone),
    ("a_file_may_be_closed_before_its_writes_complete", writes::a_file_may_be_closed_before_its_writes_complete),
    (
        "a_failed_write_is_reported_once_and_affects_no_other",
        writes::a_failed_write_is_reported_once_and_affects_no_other,
    ),
    ("buffers_may_be_dropped_held_or_allocated_elsewhere", writes::buffers_may_be_dropped_held_or_allocated_elsewhere),
    (
        "writes_in_flight_complete_when_the_backend_is_dropped",
        writes::writes_in_flight_complete_when_the_backend_is_dropped,
    ),
    ("another_thread_may_continue", writes::another_thread_may_continue),
    ("a_reader_sees_flushed_bytes", writes::a_reader_sees_flushed_bytes),
    ("chunks_are_written_in_place", chunks::chunks_are_written_in_place),
    (
        "a_chunk_stays_pinned_until_it_is_written_and_no_longer",
        chunks::a_chunk_stays_pinned_until_it_is_written_and_no_longer,
    ),
    (
        "a_failed_chunk_write_is_reported_and_unpins_the_chunk",
        chunks::a_failed_chunk_write_is_reported_and_unpins_the_chunk,
    ),
    ("an_append_refused_in_the_middle_unpins_its_chunks", chunks::an_append_refused_in_the_middle_unpins_its_chunks),
    ("a_lane_written_from_memory_is_read_back", chunks::a_lane_written_from_memory_is_read_back),
    ("the_probe_leaves_no_file", files::the_probe_leaves_no_file),
    ("a_store_is_recovered_and_its_damage_detected", recovery::a_store_is_recovered_and_its_damage_detected),
    ("a_short_or_missing_segment_affects_no_other", recovery::a_short_or_missing_segment_affects_no_other),
];

/// A path for a directory, in a temporary directory removed at the end.
pub(crate) struct TestDir {
    keep: tempfile::TempDir,
}

impl TestDir {
    /// Creates one on the disk of the target directory.
    pub(crate) fn new() -> TestDir {
        TestDir { keep: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    /// Returns the path; nothing exists there yet.
    pub(crate) fn path(&self) -> PathBuf {
        self.keep.path().join("rank-0")
    }

    pub(crate) fn blocks_bytes(&self, name: &str) -> u64 {
        std::fs::metadata(self.path().join(name)).unwrap().blocks() * 512
    }
}

/// Opens or creates the directory, and checks that the requested backend is in use.
pub(crate) fn backend(path: &Path, choice: BackendChoice) -> Box<dyn StorageBackend> {
    let (backend, probe) = Directory::create(path, choice).unwrap();
    assert_eq!(backend.kind(), probe.kind);
    match choice {
        BackendChoice::IoUring => assert_eq!(probe.kind, BackendKind::IoUring),
        BackendChoice::Pwrite => assert_eq!(probe.kind, BackendKind::Pwrite),
        BackendChoice::Auto => {}
    }
    backend
}

/// Starts to write `pages` pages filled with `fill`.
pub(crate) fn write(backend: &mut dyn StorageBackend, file: FileId, at: u64, pages: usize, fill: u8) {
    let mut buffer = backend.buffer().unwrap();
    assert!(buffer.is_empty() && buffer.capacity() == backend.buffer_bytes());
    buffer.bytes_mut()[..pages * PAGE_BYTES].fill(fill);
    buffer.set_len(pages * PAGE_BYTES);
    backend.write(file, at, buffer).unwrap();
}

fn read(backend: &mut dyn StorageBackend, name: &str, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    backend.reader(name).unwrap().read_at(at, &mut bytes).unwrap();
    bytes
}

fn is_all(bytes: &[u8], fill: u8) -> bool {
    bytes.iter().all(|byte| *byte == fill)
}

const PAGE: u64 = PAGE_BYTES as u64;
