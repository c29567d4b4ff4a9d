//! A process-crash-safe log on a full memory file system of 20 MB.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use counterfoil::{AllocError, AppendError, Log, Options, Rank, Ssn, Tier, create_private_dir};
use counterfoil_test_support::child;

const PEER: Rank = Rank(1);

#[test]
fn a_full_memory_file_system_is_an_error_and_loses_no_record() {
    child::run_on_a_small_disk("full_shared_memory::in_20_mb", Path::new(env!("CARGO_TARGET_TMPDIR")));
}

#[test]
#[ignore = "run by `a_full_memory_file_system_is_an_error_and_loses_no_record`"]
fn in_20_mb() {
    let place = PathBuf::from(child::argument());
    for (chunk_bytes, payload, prefault_ahead_bytes) in
        [(64 << 10, 1000, 0), (1 << 20, 300_000, 4 << 20), (64 << 10, 5 << 20, 1 << 20)]
    {
        let dir = place.join("log");
        create_private_dir(&dir).unwrap();
        let options = Options {
            tier: Tier::ProcessCrashSafe,
            dir: Some(dir.clone()),
            memory_bytes_max: 64 << 20,
            chunk_bytes,
            prefault_ahead_bytes,
            ..Options::new(Rank(0), 2)
        };
        let mut log = Log::create(options.clone()).unwrap();
        let refused = loop {
            match log.try_claim(PEER, 0, payload) {
                Ok(mut claim) => {
                    claim.payload_mut().fill(7);
                    claim.commit();
                }
                Err(refused) => break refused,
            }
        };
        let AppendError::NoMemory(AllocError::NoMemory { source, .. }) = *refused else { panic!("{refused}") };
        assert_eq!(source.kind(), ErrorKind::StorageFull, "{source}");
        let last = log.next_ssn(PEER).prev();
        let bytes = last.0 * payload as u64;
        assert!(bytes > 9 << 20, "{last}: {bytes} bytes in 20 MB, in chunks of {chunk_bytes}");
        drop(log);
        let (mut log, _) = Log::recover(options).unwrap();
        let mut cursor = log.cursor(PEER, Ssn::FIRST).unwrap();
        let mut read = 0;
        while let Some(record) = cursor.read().unwrap() {
            assert!(record.payload() == vec![7; payload]);
            read += 1;
        }
        assert_eq!(Ssn(read), last);
        drop(cursor);
        log.destroy().unwrap();
        std::fs::remove_dir(&dir).unwrap();
    }
}
