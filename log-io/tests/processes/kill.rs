//! A process is killed during its writes, and the next one reads the files.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use counterfoil_log_io::{BackendChoice, Directory, DirectoryAccess, DirectoryError, PAGE_BYTES};
use counterfoil_test_support::child;

const SEGMENT_BYTES: u64 = 1 << 20;
const WRITE_BYTES: usize = 64 << 10;

/// Fills a page with its round and index.
///
/// A round is a segment, written in parts and synced.
fn stamp(page: &mut [u8], round: u64, at: u64) {
    for word in page.chunks_exact_mut(16) {
        word[..8].copy_from_slice(&(round + 1).to_le_bytes());
        word[8..].copy_from_slice(&at.to_le_bytes());
    }
}

#[test]
fn synced_writes_survive_a_kill_and_others_are_whole_or_absent() {
    // One after the other: a process being started holds its parent's open files, including locks.
    for choice in ["io_uring", "pwrite"] {
        for kill in 0..6_u64 {
            let keep = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let path = keep.path().join("rank-0");
            killed(choice, &path, 2 + kill * 5, Duration::from_micros(kill * 700));
        }
    }
}

fn killed(choice: &str, path: &Path, rounds: u64, after: Duration) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(child::arguments("kill::a_writer"))
        .env(child::ARGUMENT, format!("{choice} {}", path.display()))
        .stdout(Stdio::piped())
        .spawn()
        .map(Ended)
        .unwrap();
    let mut synced = None;
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    for line in lines.by_ref() {
        let Some(round) = line.strip_prefix("synced ") else { continue };
        let round = round.parse::<u64>().unwrap();
        if synced.is_none() {
            let refused = Directory::open(path, BackendChoice::Auto, DirectoryAccess::ReadWrite);
            let id = child.0.id();
            assert!(matches!(refused, Err(DirectoryError::Locked { pid: Some(pid), .. }) if pid == id));
        }
        synced = Some(round);
        if round + 1 >= rounds {
            break;
        }
    }
    std::thread::sleep(after);
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    for line in lines {
        if let Some(round) = line.strip_prefix("synced ") {
            synced = Some(round.parse().unwrap());
        }
    }
    let synced = synced.unwrap();
    assert!(synced + 1 >= rounds, "{choice}: the writer ended after round {synced}");

    // The kernel released the lock with its owner, and none of its writes is in flight any more.
    let (mut backend, _) = Directory::open(path, BackendChoice::Auto, DirectoryAccess::ReadWrite).unwrap();
    let names = backend.list().unwrap();
    let mut expected = vec![0; PAGE_BYTES];
    for round in 0..names.len() as u64 {
        let name = format!("segment-{round:08}");
        assert!(names.contains(&name), "{choice}: {names:?}");
        let reader = backend.reader(&name).unwrap();
        let mut bytes = vec![0; reader.len().unwrap() as usize];
        assert!(bytes.len() as u64 == SEGMENT_BYTES || round > synced);
        reader.read_at(0, &mut bytes).unwrap();
        for (page, bytes) in bytes.chunks_exact(PAGE_BYTES).enumerate() {
            stamp(&mut expected, round, page as u64);
            let unwritten = round > synced && bytes.iter().all(|byte| *byte == 0);
            assert!(unwritten || bytes == expected, "{choice}: page {page} of round {round}, synced up to {synced}");
        }
    }
}

/// A child, killed on drop.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "run by `synced_writes_survive_a_kill_and_others_are_whole_or_absent`"]
fn a_writer() {
    let argument = child::argument();
    let (choice, path) = argument.split_once(' ').unwrap();
    let choice = match choice {
        "io_uring" => BackendChoice::IoUring,
        _ => BackendChoice::Pwrite,
    };
    let (mut backend, _) = Directory::create(&PathBuf::from(path), choice).unwrap();
    // Killed long before the last round; the limit ends a child after its parent's death.
    for round in 0..500 {
        let file = backend.create(&format!("segment-{round:08}"), SEGMENT_BYTES).unwrap();
        for at in (0..SEGMENT_BYTES).step_by(WRITE_BYTES) {
            let mut buffer = backend.buffer().unwrap();
            for (index, page) in buffer.bytes_mut()[..WRITE_BYTES].chunks_exact_mut(PAGE_BYTES).enumerate() {
                stamp(page, round, at / PAGE_BYTES as u64 + index as u64);
            }
            buffer.set_len(WRITE_BYTES);
            backend.write(file, at, buffer).unwrap();
        }
        backend.sync(file).unwrap();
        backend.close(file);
        writeln!(std::io::stdout(), "synced {round}").unwrap();
    }
}
