//! Every way of writing files has every property of the suite.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod backend_suite;

macro_rules! tests {
    ($($part:ident::$property:ident)*) => {
        /// Fails where io_uring is refused: that is to be known, not passed over.
        mod io_uring {
            $(#[test] fn $property() { crate::backend_suite::$part::$property(counterfoil_log_io::BackendChoice::IoUring) })*
        }

        mod pwrite {
            $(#[test] fn $property() { crate::backend_suite::$part::$property(counterfoil_log_io::BackendChoice::Pwrite) })*
        }

        #[test]
        fn no_property_is_forgotten() {
            let tested = [$(stringify!($property)),*];
            let all: Vec<&str> = backend_suite::ALL.iter().map(|(name, _)| *name).collect();
            assert_eq!(tested.as_slice(), all);
        }
    };
}

tests! {
    writes::what_is_written_anywhere_is_read_back
    files::a_new_file_is_zeros_that_have_their_place
    writes::only_whole_pages_of_open_files_are_written
    files::only_plain_names_are_files
    files::a_hole_gives_its_space_back
    files::a_file_is_cut
    files::a_removed_file_is_gone
    writes::a_file_may_be_closed_before_its_writes_are_over
    writes::a_failed_write_is_told_once_and_hurts_no_other
    writes::buffers_may_be_dropped_hoarded_or_come_from_elsewhere
    writes::what_is_in_flight_is_completed_at_the_end
    writes::another_thread_may_go_on
    writes::a_reader_sees_what_was_flushed
    chunks::chunks_are_written_from_where_they_lie
    chunks::a_chunk_is_kept_until_it_is_written_and_no_longer
    chunks::a_chunk_that_can_not_be_written_is_told_and_given_back
    chunks::what_is_refused_in_the_middle_is_given_back
    chunks::a_lane_written_from_memory_is_read_back
    files::the_trial_leaves_nothing
    recovery::a_store_is_recovered_and_its_damage_found
    recovery::a_segment_that_gets_short_or_is_missing_hurts_no_other
}
