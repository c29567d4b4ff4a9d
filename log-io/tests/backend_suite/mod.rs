//! What every way of writing has to do, as functions of the way.

pub(crate) mod chunks;
pub(crate) mod files;
pub(crate) mod recovery;
pub(crate) mod writes;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use counterfoil_log_io::{BackendChoice, BackendKind, Directory, FileId, PAGE_BYTES, StorageBackend};

/// A property, by name.
pub(crate) type Property = (&'static str, fn(BackendChoice));

/// All of them.
pub(crate) const ALL: &[Property] = &[
    ("what_is_written_anywhere_is_read_back", writes::what_is_written_anywhere_is_read_back),
    ("a_new_file_is_zeros_that_have_their_place", files::a_new_file_is_zeros_that_have_their_place),
    ("only_whole_pages_of_open_files_are_written", writes::only_whole_pages_of_open_files_are_written),
    ("only_plain_names_are_files", files::only_plain_names_are_files),
    ("a_hole_gives_its_space_back", files::a_hole_gives_its_space_back),
    ("a_file_is_cut", files::a_file_is_cut),
    ("a_removed_file_is_gone", files::a_removed_file_is_gone),
    ("a_file_may_be_closed_before_its_writes_are_over", writes::a_file_may_be_closed_before_its_writes_are_over),
    ("a_failed_write_is_told_once_and_hurts_no_other", writes::a_failed_write_is_told_once_and_hurts_no_other),
    (
        "buffers_may_be_dropped_hoarded_or_come_from_elsewhere",
        writes::buffers_may_be_dropped_hoarded_or_come_from_elsewhere,
    ),
    ("what_is_in_flight_is_completed_at_the_end", writes::what_is_in_flight_is_completed_at_the_end),
    ("another_thread_may_go_on", writes::another_thread_may_go_on),
    ("a_reader_sees_what_was_flushed", writes::a_reader_sees_what_was_flushed),
    ("chunks_are_written_from_where_they_lie", chunks::chunks_are_written_from_where_they_lie),
    ("a_chunk_is_kept_until_it_is_written_and_no_longer", chunks::a_chunk_is_kept_until_it_is_written_and_no_longer),
    (
        "a_chunk_that_can_not_be_written_is_told_and_given_back",
        chunks::a_chunk_that_can_not_be_written_is_told_and_given_back,
    ),
    ("what_is_refused_in_the_middle_is_given_back", chunks::what_is_refused_in_the_middle_is_given_back),
    ("a_lane_written_from_memory_is_read_back", chunks::a_lane_written_from_memory_is_read_back),
    ("the_trial_leaves_nothing", files::the_trial_leaves_nothing),
    ("a_store_is_recovered_and_its_damage_found", recovery::a_store_is_recovered_and_its_damage_found),
    (
        "a_segment_that_gets_short_or_is_missing_hurts_no_other",
        recovery::a_segment_that_gets_short_or_is_missing_hurts_no_other,
    ),
];

/// A directory to be, which is removed at the end.
pub(crate) struct Place {
    keep: tempfile::TempDir,
}

impl Place {
    /// A new one, on the disk that the build is on.
    pub(crate) fn new() -> Place {
        Place { keep: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    /// Its path; nothing is there yet.
    pub(crate) fn path(&self) -> PathBuf {
        self.keep.path().join("rank-0")
    }

    fn blocks_bytes(&self, name: &str) -> u64 {
        std::fs::metadata(self.path().join(name)).unwrap().blocks() * 512
    }
}

/// Opens or creates the directory; what it is written with has to be what was asked for.
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

/// Begins a write of `pages` pages full of `fill`.
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
