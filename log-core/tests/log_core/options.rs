//! Limits of a pool's options, each on both sides.

use counterfoil_log_core::{BODY_BYTES_MAX, LaneWriter, MEMORY_BYTES_MAX, PREFIX_BYTES_MAX, Pool, PoolOptions, Rank};

#[test]
fn options_are_refused_just_outside_of_their_limits() {
    let least = PoolOptions { memory_bytes_max: 4096, chunk_bytes: 4096, prefault_bytes: 4096, cursors_max: 1 };
    let most =
        PoolOptions { memory_bytes_max: MEMORY_BYTES_MAX, chunk_bytes: 1 << 30, prefault_bytes: 0, cursors_max: 64 };
    for allowed in [&least, &most] {
        allowed.geometry().unwrap();
    }
    let refused = [
        ("chunk_bytes", PoolOptions { chunk_bytes: 2048, ..least.clone() }),
        ("chunk_bytes", PoolOptions { chunk_bytes: 6144, ..most.clone() }),
        ("chunk_bytes", PoolOptions { chunk_bytes: 1 << 31, ..most.clone() }),
        ("memory_bytes_max", PoolOptions { memory_bytes_max: 4095, prefault_bytes: 0, ..least.clone() }),
        ("memory_bytes_max", PoolOptions { memory_bytes_max: MEMORY_BYTES_MAX + 1, ..most.clone() }),
        ("prefault_bytes", PoolOptions { prefault_bytes: 4097, ..least.clone() }),
        ("cursors_max", PoolOptions { cursors_max: 0, ..least.clone() }),
        ("cursors_max", PoolOptions { cursors_max: 65, ..least.clone() }),
    ];
    for (option, options) in refused {
        assert_eq!(options.geometry().unwrap_err().option, option, "{options:?}");
    }
    assert!(!least.geometry().unwrap().is_empty());
}

#[test]
fn the_least_memory_for_a_record_holds_it_and_a_page_less_does_not() {
    let options = PoolOptions { chunk_bytes: 4096, prefault_bytes: 0, ..PoolOptions::default() };
    for payload in (0..40_000).step_by(if cfg!(miri) { 13_777 } else { 97 }) {
        for prefix in [0, 3, PREFIX_BYTES_MAX] {
            let memory_bytes_max = options.memory_bytes_for(prefix, payload).unwrap();
            let can_hold = |memory_bytes_max| {
                let pool = Pool::volatile(PoolOptions { memory_bytes_max, ..options.clone() }).unwrap();
                LaneWriter::new(pool, Rank(0)).claim(prefix, payload).is_ok()
            };
            assert!(can_hold(memory_bytes_max), "{prefix} and {payload} bytes in {memory_bytes_max}");
            let less = memory_bytes_max - 4096;
            assert!(less < options.chunk_bytes || !can_hold(less), "{prefix} and {payload} bytes in {less}");
        }
    }
}

#[test]
fn no_memory_is_enough_for_a_record_that_is_too_large() {
    let options = PoolOptions::default();
    assert!(options.memory_bytes_for(PREFIX_BYTES_MAX, BODY_BYTES_MAX - PREFIX_BYTES_MAX).is_some());
    assert_eq!(options.memory_bytes_for(PREFIX_BYTES_MAX + 1, 0), None);
    assert_eq!(options.memory_bytes_for(1, BODY_BYTES_MAX), None);
    assert_eq!(options.memory_bytes_for(1, usize::MAX), None);
}
