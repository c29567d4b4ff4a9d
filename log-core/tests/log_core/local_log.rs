//! Local log of a dead process with damaged memory: a replacement must not accept changed entries.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use counterfoil_log_core::{Epoch, LocalLog, LocalLogError, Owner, Pool, PoolOptions, Rank, Ssn};
use tempfile::TempDir;

const OWNER: Owner = Owner { rank: Rank(3), label: 1 };
const OPTIONS: PoolOptions =
    PoolOptions { memory_bytes_max: 64 << 10, chunk_bytes: 4096, prefault_bytes: 0, cursors_max: 2 };

/// Entries as read by a program: kind, key and bytes of each.
type Past = Vec<(u8, u64, Vec<u8>)>;

fn private_directory() -> TempDir {
    let root = if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" };
    let permissions = std::fs::Permissions::from_mode(0o700);
    tempfile::Builder::new().permissions(permissions).tempdir_in(root).unwrap()
}

/// Writes entries with all lengths below 40 bytes, with a seal among them.
fn write(path: &Path) {
    let mut log = LocalLog::new(Pool::create(path, OWNER, OPTIONS).unwrap());
    for number in 0..40_u8 {
        log.append(number % 3, u64::from(number) << 20, &vec![number; usize::from(number)]).unwrap();
        if number == 30 {
            log.seal(Epoch(2)).unwrap();
        }
    }
}

/// Returns the entries found by a replacement; `None` if the file or an entry is refused.
fn recover(path: &Path) -> Option<Past> {
    let (pool, lanes) = Pool::recover(path, OWNER, OPTIONS).ok()?;
    let mut log = match LocalLog::recovered(pool, lanes) {
        Err(LocalLogError::Damaged { .. }) => return None,
        other => other.unwrap(),
    };
    let mut past = Vec::new();
    for kind in 0..u8::MAX {
        while let Some(entry) = log.next_key(kind).and_then(|key| log.consume(kind, key)) {
            past.push((entry.kind, entry.key, entry.bytes));
        }
    }
    assert_eq!(past.len() + 1, log.len(), "all but the seal can be consumed");
    assert!(log.discard_sealed(Epoch(2)));
    Some(past)
}

fn file(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn every_changed_byte_of_a_dead_processs_local_log_is_refused_or_changes_nothing() {
    let directory = private_directory();
    let path = directory.path().join("local.3");
    write(&path);
    let image = std::fs::read(&path).unwrap();
    let expected = recover(&path).unwrap();
    assert_eq!(expected.len(), 40);
    let used = image.chunks(4096).enumerate().filter(|(_, page)| page.iter().any(|&byte| byte != 0));
    let mut refused = 0;
    for at in used.flat_map(|(number, page)| (0..page.len()).map(move |at| number * 4096 + at)) {
        let file = file(&path);
        file.write_all_at(&image, 0).unwrap();
        file.write_all_at(&[image[at] ^ 1 << (at % 8)], at as u64).unwrap();
        drop(file);
        match recover(&path) {
            Some(past) => assert_eq!(past, expected, "byte {at} changed an entry"),
            None => refused += 1,
        }
    }
    // At least the prefix, bytes, commit word and SSN of each entry.
    assert!(refused > 40 * 32 + (0..40).sum::<usize>(), "{refused}");
}

#[test]
fn an_entry_that_was_changed_is_named() {
    let directory = private_directory();
    let path = directory.path().join("local.3");
    write(&path);
    let image = std::fs::read(&path).unwrap();
    // The bytes of the entry with SSN 21: twenty bytes of value 20.
    let at = image.windows(20).position(|bytes| bytes == [20; 20]).unwrap();
    file(&path).write_all_at(&[21], at as u64 + 7).unwrap();
    let (pool, lanes) = Pool::recover(&path, OWNER, OPTIONS).unwrap();
    let error = LocalLog::recovered(pool, lanes).unwrap_err();
    assert_eq!(
        error.to_string(),
        "local log: the entry with SSN 21 was changed after it was written; a replacement can't go on from it"
    );
}

#[test]
fn entries_are_forgotten_up_to_their_seal_and_those_behind_it_stay_as_they_are() {
    let mut log = LocalLog::new(Pool::volatile(OPTIONS).unwrap());
    assert!(log.is_empty());
    for number in 0..4 {
        log.append(1, number, b"before").unwrap();
    }
    log.seal(Epoch(2)).unwrap();
    for number in 4..8 {
        log.append(1, number, b"after").unwrap();
        // The key of the seal looked for, and another kind.
        log.append(3, 2, b"other").unwrap();
    }
    assert_eq!((log.is_empty(), log.len(), log.pending(1)), (false, 13, 8));
    let keys = |epoch| log.sealed(epoch).iter().map(|entry| (entry.kind, entry.key)).collect::<Vec<_>>();
    assert_eq!((keys(Epoch(2)), keys(Epoch(3))), (vec![(1, 0), (1, 1), (1, 2), (1, 3)], vec![]));
    for number in [0, 1, 2, 3, 4, 6] {
        assert!(log.consume(1, number).is_some());
    }
    assert!(!log.discard_sealed(Epoch(3)) && log.len() == 13);
    assert!(log.discard_sealed(Epoch(2)));
    assert_eq!((log.len(), log.pending(1), log.next_key(1)), (8, 2, Some(5)));
    assert!(log.consume(1, 4).is_none() && log.consume(1, 6).is_none(), "they were consumed");
    log.skip_below(1, 7);
    assert_eq!((log.pending(1), log.next_key(1), log.pending(3)), (1, Some(7), 4));
    assert_eq!(log.consume(3, 2).map(|entry| entry.bytes), Some(b"other".to_vec()));
    log.skip_below(1, 8);
    log.skip_below(3, 3);
    assert_eq!((log.pending(1), log.pending(3), log.len()), (0, 0, 8));
    log.append(1, 8, b"last").unwrap();
    assert_eq!(log.consume(1, 8).map(|entry| entry.bytes), Some(b"last".to_vec()));
}

#[test]
fn a_restored_log_has_the_numbers_seals_and_entries_that_were_saved() {
    let mut log = LocalLog::new(Pool::volatile(OPTIONS).unwrap());
    for number in 0..5 {
        log.append(1, number, &[number as u8]).unwrap();
        log.seal(Epoch(number as u32 + 2)).unwrap();
    }
    assert!(log.discard_sealed(Epoch(3)));
    let saved = log.entries_after(Ssn(4));
    assert_eq!((saved.len(), log.last(), saved[0].0), (6, Ssn(10), Ssn(5)));
    let mut restored = LocalLog::new(Pool::volatile(OPTIONS).unwrap());
    for (ssn, entry) in &saved {
        restored.restore(*ssn, entry.kind, entry.key, &entry.bytes).unwrap();
    }
    assert!(restored.restore(Ssn(7), 1, 0, &[]).is_err(), "numbers rise");
    assert_eq!((restored.last(), restored.pending(1), restored.len()), (Ssn(10), 3, 6));
    for number in 2..5 {
        assert_eq!(restored.consume(1, number).map(|entry| entry.bytes), Some(vec![number as u8]));
    }
    assert!(restored.discard_sealed(Epoch(5)) && restored.len() == 2);
}
