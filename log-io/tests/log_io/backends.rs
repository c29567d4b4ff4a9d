//! Runs the whole suite on every backend.

macro_rules! tests {
    ($($part:ident::$property:ident)*) => {
        /// Fails if io_uring is refused, instead of skipping its tests.
        mod io_uring {
            $(#[test] fn $property() { crate::backend_suite::$part::$property(counterfoil_log_io::BackendChoice::IoUring) })*
        }

        mod pwrite {
            $(#[test] fn $property() { crate::backend_suite::$part::$property(counterfoil_log_io::BackendChoice::Pwrite) })*
        }

        #[test]
        fn every_property_is_tested() {
            let tested = [$(stringify!($property)),*];
            let all: Vec<&str> = crate::backend_suite::ALL.iter().map(|(name, _)| *name).collect();
            assert_eq!(tested.as_slice(), all);
        }
    };
}

tests! {
    writes::writes_at_any_page_are_read_back
    files::a_new_file_is_preallocated_zeros
    writes::only_whole_pages_of_open_files_are_written
    files::only_plain_names_are_valid
    files::a_punched_hole_frees_its_space
    files::a_file_is_truncated
    files::a_removed_file_is_gone
    writes::a_file_may_be_closed_before_its_writes_complete
    writes::a_failed_write_is_reported_once_and_affects_no_other
    writes::buffers_may_be_dropped_held_or_allocated_elsewhere
    writes::writes_in_flight_complete_when_the_backend_is_dropped
    writes::another_thread_may_continue
    writes::a_reader_sees_flushed_bytes
    chunks::chunks_are_written_in_place
    chunks::a_chunk_stays_pinned_until_it_is_written_and_no_longer
    chunks::a_failed_chunk_write_is_reported_and_unpins_the_chunk
    chunks::an_append_refused_in_the_middle_unpins_its_chunks
    chunks::a_lane_written_from_memory_is_read_back
    files::the_probe_leaves_no_file
    recovery::a_store_is_recovered_and_its_damage_detected
    recovery::a_short_or_missing_segment_affects_no_other
}
