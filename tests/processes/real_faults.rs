//! Faults of real disks and processes: a full disk, a failing disk, kills during writes; and memory usage as counted by
//! the system.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use counterfoil::{
    AppendError, Builder, CheckpointError, Contents, Epoch, Log, Options, Rank, Recovered, Ssn, create_private_dir,
};
use counterfoil_log_io::{Access, BackendChoice, Directory, DirectoryAccess, Store, StoreError};
use counterfoil_test_support::random::split_mix;
use counterfoil_test_support::{Fault, SimulatedDisk, child};

use crate::spilled::{MIB, acknowledge, append, check_replay, options};

/// Number of ranks: three peers.
const RANKS: u32 = 4;

fn peers() -> impl Iterator<Item = Rank> {
    (1..RANKS).map(Rank)
}

/// Logs acknowledged messages to the peers in turn until `until` returns `true`, or until an error.
fn log_until(log: &mut Log, mut until: impl FnMut(&Log) -> bool) -> Result<(), AppendError> {
    for number in 0.. {
        let peer = Rank(1 + number % 3);
        let ssn = append(log, peer)?;
        acknowledge(log, peer, ssn);
        if until(log) {
            break;
        }
    }
    Ok(())
}

fn cover_everything(log: &mut Log, epoch: Epoch) {
    for peer in peers() {
        let acked = log.acked(peer);
        log.receiver_covered(peer, epoch, acked).unwrap();
    }
    log.collect();
}

// A 20 MB disk.

#[test]
fn a_log_on_a_full_disk_refuses_or_stops_logging_and_continues_when_there_is_space() {
    child::run_on_a_small_disk("real_faults::on_a_disk_of_20_mb", Path::new(env!("CARGO_TARGET_TMPDIR")));
}

#[test]
#[ignore = "run by `a_log_on_a_full_disk_refuses_or_stops_logging_and_continues_when_there_is_space`"]
fn on_a_disk_of_20_mb() {
    let disk = PathBuf::from(child::argument());
    for stops_logging in [false, true] {
        for backend in [BackendChoice::Auto, BackendChoice::Pwrite] {
            let mut options = options(&disk, RANKS);
            options.stops_logging = stops_logging;
            options.store.as_mut().unwrap().backend = backend;
            fill_disk(&disk, &options);
            std::fs::remove_dir_all(disk.join("rank-0")).unwrap();
        }
    }
}

fn fill_disk(disk: &Path, options: &Options) {
    let foreign_file = disk.join("big");
    std::fs::write(&foreign_file, vec![1; 8 << 20]).unwrap();
    let mut log = Log::create(options.clone()).unwrap();
    log_until(&mut log, |log| log.stats().spilled_bytes > 2 * MIB).unwrap();
    log.checkpoint(Epoch(2), Contents { application: b"before the disk was full".to_vec(), tables: Vec::new() })
        .unwrap();
    let next: Vec<Ssn> = peers().map(|peer| log.next_ssn(peer)).collect();

    let continues = options.stops_logging;
    let result = log_until(&mut log, |log| log.stats().bytes_logged > 40 * MIB);
    assert_eq!((result.is_ok(), log.stats().stopped_logging), (continues, continues), "{result:?}");
    assert!(matches!(log.disk_error(), Some(StoreError::DiskFull { .. })), "{:?}", log.disk_error());
    if let Err(error) = result {
        assert!(matches!(error, AppendError::DiskRefused(_)), "{error}");
        assert!(error.to_string().contains("the disk is full"), "{error}");
        let refused = log.checkpoint(Epoch(3), Contents::default()).unwrap_err();
        assert!(refused.to_string().contains("the disk is full"), "{refused}");
        // All messages are kept, and logging continues when the foreign file is removed.
        assert!(peers().all(|peer| check_replay(&mut log, peer) == (Ssn::FIRST, log.next_ssn(peer))));
        std::fs::remove_file(&foreign_file).unwrap();
        let before = log.stats().bytes_logged;
        log_until(&mut log, |log| log.stats().bytes_logged > before + 5 * MIB).unwrap();
        std::fs::write(&foreign_file, []).unwrap();
        log_until(&mut log, |_| false).unwrap_err();
        assert!(peers().all(|peer| check_replay(&mut log, peer) == (Ssn::FIRST, log.next_ssn(peer))));
    }
    open_while_full(log, disk, options, &next);
}

fn open_while_full(log: Log, disk: &Path, options: &Options, next: &[Ssn]) {
    drop(log);
    // Fills the disk.
    let rest = disk.join("rest");
    let mut file = std::fs::File::create(&rest).unwrap();
    while file.write_all(&[7; 4096]).is_ok() {}
    let rank_dir = options.store.as_ref().unwrap().rank_dir(Rank(0));
    let (backend, _) = Directory::open(&rank_dir, BackendChoice::Auto, DirectoryAccess::ReadOnly).unwrap();
    let store_options = counterfoil_log_io::StoreOptions::new(Rank(0), RANKS);
    let (store, image) = Store::open(backend, store_options, Access::ReadOnly).unwrap();
    assert_eq!(image.unwrap().application, b"before the disk was full");
    drop(store);

    let (mut log, recovered) = Log::recover(options.clone()).unwrap();
    assert_eq!(recovered.checkpoint.unwrap().contents.application, b"before the disk was full");
    for (peer, next) in peers().zip(next) {
        assert_eq!(check_replay(&mut log, peer), (Ssn::FIRST, *next));
    }
    // Covered messages free space on the disk without further help, like those logged after the checkpoint.
    cover_everything(&mut log, Epoch(3));
    log.checkpoint(Epoch(3), Contents::default()).unwrap();
    log_until(&mut log, |log| log.stats().spilled_bytes > MIB).unwrap();
    drop(log);
    std::fs::remove_file(rest).unwrap();
    std::fs::remove_file(disk.join("big")).unwrap();
}

// A failing disk.

#[test]
fn a_failed_write_ends_only_writing() {
    let (mut harmless, mut failed_at_once) = (0, 0);
    for operation in 0..60 {
        let disk = SimulatedDisk::new(64 << 10);
        let mut log = Builder::new(options(Path::new(""), RANKS), Box::new(disk.clone())).create().unwrap();
        disk.fail_at(disk.operations() + operation, Fault::Error);
        let refused = match log_until(&mut log, |log| log.stats().bytes_logged > 20 * MIB) {
            Err(refused) => refused,
            // Creating a file failed, and succeeded later.
            Ok(()) => {
                harmless += 1;
                continue;
            }
        };
        let AppendError::DiskRefused(refused) = refused else { panic!("{refused}") };
        // Committed messages are still read, from disk and memory.
        failed_at_once += u32::from(log.stats().spilled_bytes == 0);
        for peer in peers() {
            assert_eq!(check_replay(&mut log, peer), (Ssn::FIRST, log.next_ssn(peer)));
        }
        assert_eq!(log.disk_error().unwrap().to_string(), refused.source.to_string());
        let Some(StoreError::Failed { .. }) = log.disk_error() else { panic!("{refused}") };
        let CheckpointError::Store(error) = log.checkpoint(Epoch(2), Contents::default()).unwrap_err() else {
            panic!("another error")
        };
        assert!(matches!(*error, StoreError::Failed { .. }), "{error}");
        log.local().append(1, 1, b"an entry").unwrap();
        assert!(matches!(log.sync_local(), Err(CheckpointError::Store(_))));
        // Covered messages free memory.
        cover_everything(&mut log, Epoch(2));
        append(&mut log, Rank(1)).unwrap();
    }
    assert!(harmless < 20 && failed_at_once < 30, "{harmless} faults did no harm, {failed_at_once} preceded any spill");
}

// A killed process.

/// Number of processes killed in sequence, each resuming its predecessor's log.
const KILLS: u64 = 120;

#[test]
fn checkpoints_survive_kills_at_any_moment() {
    // A kill doesn't affect the page cache, so a file system in memory is sufficient, and faster.
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory } else { Path::new(env!("CARGO_TARGET_TMPDIR")) };
    let keep = tempfile::tempdir_in(parent).unwrap();
    create_private_dir(&keep.path().join("store")).unwrap();
    let mut reported = Reported::default();
    let mut numbers = split_mix(20_110_516);
    let (mut checkpoints, mut spilled) = (0, 0);
    for kill in 0..KILLS {
        let dir = keep.path().join("store");
        let (mut child, mut lines) = start("real_faults::log_until_killed", &dir);
        let mut output = String::new();
        while !output.ends_with("recovered\n") {
            assert!(lines.read_line(&mut output).unwrap() > 0, "kill {kill}: {output}");
        }
        std::thread::sleep(Duration::from_micros(numbers() % 25_000));
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        lines.read_to_string(&mut output).unwrap();
        // The last line may be incomplete.
        for line in output.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            reported.record(line);
        }
        let (mut log, recovered) = Log::recover(kill_options(&dir)).unwrap();
        reported.check(&mut log, &recovered, kill);
        checkpoints = recovered.checkpoint.map_or(0, |checkpoint| checkpoint.epoch.0);
        spilled = spilled.max(reported.spilled);
    }
    assert!(checkpoints > 100, "{checkpoints} checkpoints in {KILLS} processes");
    assert!(spilled > MIB, "{spilled} bytes spilled");
}

fn kill_options(dir: &Path) -> Options {
    let mut options = options(dir, RANKS);
    (options.memory_bytes_max, options.chunk_bytes) = (256 << 10, 4 << 10);
    let store = options.store.as_mut().unwrap();
    (store.block_bytes, store.compress) = (16 << 10, true);
    options
}

/// Combined reports from the processes.
#[derive(Default)]
struct Reported {
    /// Epoch, next SSNs, local log entries: the newest durable checkpoint, then those begun since.
    checkpoints: Vec<(u32, Vec<u64>, usize)>,
    synced: usize,
    spilled: u64,
}

impl Reported {
    fn record(&mut self, line: &str) {
        let (what, numbers) = line.split_once(' ').unwrap_or((line, ""));
        let numbers: Vec<u64> = numbers.split(' ').filter_map(|number| number.parse().ok()).collect();
        match what {
            "begin" => self.checkpoints.push((numbers[0] as u32, numbers[2..].to_vec(), numbers[1] as usize)),
            "durable" => self.checkpoints.retain(|(epoch, ..)| u64::from(*epoch) >= numbers[0]),
            "synced" => self.synced = numbers[0] as usize,
            "spilled" => self.spilled = numbers[0],
            _ => {}
        }
    }

    fn check(&mut self, log: &mut Log, recovered: &Recovered, kill: u64) {
        let epoch = recovered.checkpoint.as_ref().map(|checkpoint| checkpoint.epoch.0);
        let Some(at) = self.checkpoints.iter().position(|(begun, ..)| Some(*begun) == epoch) else {
            assert!(
                epoch.is_none() && self.checkpoints.first().is_none_or(|(epoch, ..)| *epoch == 2),
                "kill {kill}: {epoch:?}"
            );
            self.checkpoints.clear();
            self.synced = recovered.local_entries;
            return;
        };
        self.checkpoints = vec![self.checkpoints.swap_remove(at)];
        let (epoch, next, entries) = &self.checkpoints[0];
        for (peer, next) in peers().zip(next) {
            assert_eq!(log.next_ssn(peer), Ssn(*next), "kill {kill}, epoch {epoch}, {peer}");
            assert_eq!(check_replay(log, peer).1, Ssn(*next));
            // The processes cover all but the last 300 acknowledged messages.
            assert!(log.kept_from(peer).0 <= next.saturating_sub(300).max(1));
        }
        let found = recovered.local_entries;
        assert!(found >= *entries && found >= self.synced, "kill {kill}: {found} entries, {} synced", self.synced);
        for key in 0..found as u64 {
            assert_eq!(log.local().get(7, key).unwrap().bytes, key.to_le_bytes());
        }
        self.synced = found;
    }
}

#[test]
#[ignore = "run by `checkpoints_survive_kills_at_any_moment`"]
fn log_until_killed() {
    let (mut log, recovered) = Log::recover(kill_options(Path::new(&child::argument()))).unwrap();
    let mut out = std::io::stdout();
    writeln!(out, "recovered").unwrap();
    let mut epoch = recovered.checkpoint.map_or(1, |checkpoint| checkpoint.epoch.0);
    let mut entries = recovered.local_entries as u64;
    // Killed long before the end, which only limits the run time without a parent.
    for round in 0..3000_u64 {
        for number in 0..60 {
            let peer = Rank(1 + number % 3);
            let ssn = append(&mut log, peer).unwrap();
            acknowledge(&mut log, peer, Ssn(ssn.0.saturating_sub(4)));
        }
        log.local().append(7, entries, &entries.to_le_bytes()).unwrap();
        entries += 1;
        if round % 3 == 0 {
            log.sync_local().unwrap();
            writeln!(out, "synced {entries}").unwrap();
        }
        if round % 8 == 7 {
            epoch += 1;
            let next: Vec<String> = peers().map(|peer| log.next_ssn(peer).0.to_string()).collect();
            writeln!(out, "begin {epoch} {entries} {}", next.join(" ")).unwrap();
            let pending = log.begin_checkpoint(Epoch(epoch), Contents::default()).unwrap();
            for number in 0..100 {
                append(&mut log, Rank(1 + number % 3)).unwrap();
            }
            pending.wait().unwrap();
            writeln!(out, "durable {epoch}\nspilled {}", log.stats().spilled_bytes).unwrap();
        }
        for peer in peers().filter(|_| round % 5 == 0) {
            let upto = Ssn(log.acked(peer).0.saturating_sub(1000));
            log.receiver_covered(peer, Epoch(2), upto).unwrap();
            log.collect();
        }
    }
}

/// A child process, killed at the end of the test.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(test: &str, told: &Path) -> (KillOnDrop, BufReader<ChildStdout>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(child::arguments(test)).env(child::ARGUMENT, told).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = KillOnDrop(command.spawn().unwrap());
    let lines = BufReader::new(child.0.stdout.take().unwrap());
    (child, lines)
}

// Memory.

/// Maximum memory of an 8 MiB log in addition to its budget: ten write buffers of 256 KiB, in large pages (4 MiB);
/// sixteen read-ahead buffers (4 MiB); a chunk of the local log, the index (a hundred bytes for each of 640 blocks),
/// the threads' stacks, and the allocator's free memory (some 4 MiB).
const OVERHEAD_BYTES_MAX: u64 = 14 << 20;
const BUDGET: usize = 8 << 20;

#[test]
fn a_run_that_logs_twenty_times_its_budget_stays_within_it() {
    let keep = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (mut child, mut lines) = start("real_faults::log_twenty_times_the_budget", keep.path());
    let pid = child.0.id();
    let mut high_water_after = |what: &str| {
        let line = lines.by_ref().lines().map(Result::unwrap).find(|line| line.contains(what));
        assert!(line.is_some(), "the child ended before it was {what}");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let kib: u64 = line.trim().strip_suffix(" kB").unwrap().parse().unwrap();
        child.0.stdin.as_mut().unwrap().write_all(b"continue\n").unwrap();
        kib << 10
    };
    let (before, after) = (high_water_after("started"), high_water_after("done"));
    let taken = after - before;
    assert!(taken > BUDGET as u64 / 2, "{taken} bytes: too few for such a log");
    assert!(taken < BUDGET as u64 + OVERHEAD_BYTES_MAX, "{taken} bytes above {before}");
    assert!(child.0.wait().unwrap().success());
}

#[test]
#[ignore = "run by `a_run_that_logs_twenty_times_its_budget_stays_within_it`"]
fn log_twenty_times_the_budget() {
    let report = |what: &str| {
        writeln!(std::io::stdout(), "{what}").unwrap();
        std::io::stdin().read_line(&mut String::new()).unwrap();
    };
    report("started");
    let mut options = options(Path::new(&child::argument()), RANKS);
    (options.memory_bytes_max, options.chunk_bytes) = (BUDGET, 64 << 10);
    options.store.as_mut().unwrap().segment_bytes = 16 << 20;
    options.store.as_mut().unwrap().block_bytes = 256 << 10;
    let mut log = Log::create(options).unwrap();
    log_until(&mut log, |log| log.stats().bytes_logged > 20 * BUDGET as u64).unwrap();
    log.checkpoint(Epoch(2), Contents::default()).unwrap();
    for peer in peers() {
        assert_eq!(check_replay(&mut log, peer), (Ssn::FIRST, log.next_ssn(peer)));
    }
    report("done");
}
