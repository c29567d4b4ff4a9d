//! Recovery of a dead process's log by its replacement, and refusals.

use std::fs::Permissions;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use counterfoil::{
    Ack, AckPolicy, Epoch, Keep, Log, OpenError, Options, Phase, PoolError, PrivateFileError, Rank, Ssn, Tier,
    create_private_dir,
};

const ME: Rank = Rank(2);

/// A private directory for logs, removed at the end.
pub(crate) struct Job {
    _parent: tempfile::TempDir,
    dir: PathBuf,
}

impl Job {
    pub(crate) fn new() -> Job {
        let parent = tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" }).unwrap();
        let dir = parent.path().join("job");
        create_private_dir(&dir).unwrap();
        Job { _parent: parent, dir }
    }

    pub(crate) fn options(&self) -> Options {
        let mut options = Options::new(ME, 4);
        (options.tier, options.dir) = (Tier::ProcessCrashSafe, Some(self.dir.clone()));
        (options.memory_bytes_max, options.chunk_bytes, options.prefault_bytes) = (1 << 20, 4096, 0);
        options.local_bytes_max = 64 << 10;
        options
    }

    pub(crate) fn lanes_file(&self) -> PathBuf {
        self.dir.join("log.2")
    }

    pub(crate) fn local_file(&self) -> PathBuf {
        self.dir.join("local.2")
    }

    /// Creates a dead process's log.
    fn create_dead_log(&self) {
        let mut log = Log::create(self.options()).unwrap();
        append(&mut log, Rank(0), 300);
        append(&mut log, Rank(3), 20);
        drop(log.try_claim(Rank(3), 0, 50).unwrap());
        for key in 0..10 {
            log.local().append(1, key, &key.to_le_bytes()).unwrap();
        }
    }

    fn files(&self) -> Vec<(PathBuf, u64)> {
        let of = |path: PathBuf| (path.clone(), std::fs::metadata(path).unwrap().len());
        let mut files: Vec<_> = std::fs::read_dir(&self.dir).unwrap().map(|entry| of(entry.unwrap().path())).collect();
        files.sort();
        files
    }
}

pub(crate) fn append(log: &mut Log, peer: Rank, upto: u64) {
    while log.next_ssn(peer) <= Ssn(upto) {
        let ssn = log.next_ssn(peer).0;
        let mut claim = log.try_claim(peer, 8, (ssn % 200) as usize).unwrap();
        claim.prefix_mut().copy_from_slice(&ssn.to_le_bytes());
        claim.payload_mut().fill(ssn as u8);
        claim.commit();
    }
}

pub(crate) fn replayed(log: &mut Log, peer: Rank, from: u64) -> Vec<u64> {
    let mut cursor = log.cursor(peer, Ssn(from)).unwrap();
    let mut ssns = Vec::new();
    while let Some(record) = cursor.peek().unwrap() {
        let ssn = record.ssn().0;
        assert_eq!(record.prefix(), ssn.to_le_bytes());
        assert_eq!(record.payload(), vec![ssn as u8; (ssn % 200) as usize]);
        ssns.push(ssn);
        cursor.advance();
    }
    ssns
}

#[test]
fn committed_records_are_recovered_and_the_log_continues() {
    let job = Job::new();
    job.create_dead_log();
    let (mut log, recovered) = Log::recover(job.options()).unwrap();
    let found = recovered.lanes.iter().map(|lane| (lane.peer, lane.kept_from, lane.last));
    assert_eq!(found.collect::<Vec<_>>(), [(Rank(0), Ssn(1), Ssn(300)), (Rank(3), Ssn(1), Ssn(20))]);
    assert_eq!(recovered.local_entries, 10);
    assert_eq!(replayed(&mut log, Rank(0), 1), (1..=300).collect::<Vec<_>>());
    assert_eq!(replayed(&mut log, Rank(3), 20), [20]);
    assert_eq!(log.acked(Rank(0)), Ssn::ZERO, "peers acknowledge again");
    assert_eq!(log.local().consume(1, 7).map(|entry| entry.bytes), Some(7_u64.to_le_bytes().to_vec()));
    assert_eq!(log.stats().messages_logged, 0, "none by this process");

    assert_eq!([0, 1, 3].map(|peer| log.kept_from(Rank(peer))), [Ssn(1); 3]);
    append(&mut log, Rank(0), 500);
    append(&mut log, Rank(1), 5);
    log.acknowledge(Rank(0), Ack { ssn: Ssn(450), epoch: Epoch(2) }, Phase::default()).unwrap();
    log.receiver_covered(Rank(0), Epoch(3), Ssn(400)).unwrap();
    assert!(log.collect().chunks > 0);
    let kept_from = log.kept_from(Rank(0));
    assert!(kept_from > Ssn(1) && kept_from <= Ssn(401), "{kept_from}");
    assert_eq!(replayed(&mut log, Rank(0), kept_from.0), (kept_from.0..=500).collect::<Vec<_>>());
    assert!(log.cursor(Rank(0), kept_from.prev()).is_err());
    assert_eq!(log.stats().messages_logged, 205);
    drop(log);

    let (mut log, recovered) = Log::recover(job.options()).unwrap();
    let peers: Vec<_> = recovered.lanes.iter().map(|lane| (lane.peer.0, lane.last.0)).collect();
    assert_eq!(peers, [(0, 500), (1, 5), (3, 20)]);
    assert!(
        recovered.lanes[0].kept_from > Ssn(1) && recovered.lanes[0].kept_from <= Ssn(401),
        "collected records stay collected: {recovered:?}"
    );
    assert_eq!(replayed(&mut log, Rank(0), 401), (401..=500).collect::<Vec<_>>());
    log.destroy().unwrap();
    assert_eq!(job.files(), []);
}

#[test]
fn a_re_executing_replacement_repeats_committed_messages() {
    let job = Job::new();
    job.create_dead_log();
    let (mut log, _) = Log::recover(job.options()).unwrap();
    log.rewind(Rank(0), Ssn(297));
    for ssn in 298..=300_u64 {
        assert_eq!(log.rewound_to(Rank(0)), Some(Ssn(ssn)));
        assert!(log.repeat(Rank(0), b"something else").is_err());
        assert_eq!(log.repeat(Rank(0), &vec![ssn as u8; (ssn % 200) as usize]), Ok(Ssn(ssn)));
    }
    assert_eq!((log.rewound_to(Rank(0)), log.next_ssn(Rank(0))), (None, Ssn(301)));
}

#[test]
fn missing_files_of_the_dead_process_are_created() {
    let job = Job::new();
    let (mut log, recovered) = Log::recover(job.options()).unwrap();
    assert_eq!(recovered, counterfoil::Recovered::default());
    append(&mut log, Rank(1), 3);
    drop(log);
    std::fs::remove_file(job.local_file()).unwrap();
    let (_, recovered) = Log::recover(job.options()).unwrap();
    assert_eq!((recovered.lanes.len(), recovered.local_entries), (1, 0));
    assert_eq!(job.files().len(), 2);
}

#[test]
fn in_the_volatile_tier_only_the_local_log_survives() {
    let job = Job::new();
    let volatile = Options { tier: Tier::Volatile, ..job.options() };
    let mut log = Log::create(volatile.clone()).unwrap();
    append(&mut log, Rank(0), 50);
    log.local().append(2, 1, b"chosen").unwrap();
    drop(log);
    assert!(!job.lanes_file().exists());
    let (log, recovered) = Log::recover(volatile).unwrap();
    assert_eq!((recovered.lanes, recovered.local_entries, log.next_ssn(Rank(0))), (Vec::new(), 1, Ssn::FIRST));
}

/// Checks that a recovery is refused and changes no file; returns the error.
fn refused(job: &Job, options: Options) -> OpenError {
    let before = job.files();
    let error = match Log::recover(options) {
        Err(error) => error,
        Ok(_) => panic!("the log was recovered"),
    };
    assert_eq!(job.files(), before);
    error
}

/// Returns a file's contents and its memory in blocks.
fn contents(path: &Path) -> (Vec<u8>, u64) {
    (std::fs::read(path).unwrap(), std::fs::metadata(path).unwrap().blocks())
}

#[test]
fn a_refusal_leaves_both_files_unchanged() {
    let job = Job::new();
    job.create_dead_log();
    // Both have free chunks; a recovery would return them to the system.
    let (mut log, _) = Log::recover(job.options()).unwrap();
    append(&mut log, Rank(0), 2000);
    log.receiver_covered(Rank(0), Epoch(2), Ssn(1990)).unwrap();
    assert!(log.collect().chunks > 0);
    for key in 100..500 {
        log.local().append(1, key, &[0; 40]).unwrap();
    }
    log.local().seal(Epoch(2)).unwrap();
    assert!(log.local().discard_sealed(Epoch(2)));
    drop(log);
    let paths = [job.lanes_file(), job.local_file()];
    let before = paths.each_ref().map(|path| contents(path));
    let same = |paths: &[PathBuf; 2]| paths.each_ref().map(|path| contents(path)) == before;

    let error = refused(&job, Options { ranks: 3, ..job.options() });
    assert!(matches!(error, OpenError::Lane { peer: Rank(3), ranks: 3, .. }), "{error}");
    assert!(same(&paths));
    let error = refused(&job, Options { local_bytes_max: 128 << 10, ..job.options() });
    assert!(matches!(error, OpenError::Pool(PoolError::Refused { .. })), "{error}");
    assert!(same(&paths));
    // A missing file is not created, either.
    let away = job.dir.join("away");
    std::fs::rename(job.lanes_file(), &away).unwrap();
    refused(&job, Options { local_bytes_max: 128 << 10, ..job.options() });
    std::fs::rename(&away, job.lanes_file()).unwrap();
    assert!(same(&paths));

    drop(Log::recover(job.options()).unwrap());
    let after = paths.each_ref().map(|path| contents(path).1);
    assert!(after[0] < before[0].1 && after[1] < before[1].1, "{after:?}: no memory was given back");
}

#[test]
fn copies_leave_both_files_as_they_are_and_go_on_by_themselves() {
    let job = Job::new();
    job.create_dead_log();
    // Free chunks, returned to the system by a recovery.
    let (mut log, _) = Log::recover(job.options()).unwrap();
    append(&mut log, Rank(1), 2000);
    log.receiver_covered(Rank(1), Epoch(2), Ssn(1990)).unwrap();
    assert!(log.collect().chunks > 0);
    drop(log);
    let paths = [job.lanes_file(), job.local_file()];
    let before = paths.each_ref().map(|path| contents(path));

    let (mut first, recovered) = Log::recover_copy(job.options()).unwrap();
    assert_eq!((recovered.lanes.len(), recovered.local_entries), (3, 10));
    let (mut second, _) = Log::recover_copy(job.options()).unwrap();
    append(&mut first, Rank(0), 2000);
    append(&mut second, Rank(0), 310);
    first.local().append(1, 10, &[]).unwrap();
    first.rewind(Rank(3), Ssn(19));
    assert!(first.repeat(Rank(3), b"something else").is_err());
    assert_eq!(first.repeat(Rank(3), &[20; 20]), Ok(Ssn(20)));
    for (log, last) in [(&mut first, 2000), (&mut second, 310)] {
        assert_eq!(replayed(log, Rank(0), 1), (1..=last).collect::<Vec<_>>());
        log.receiver_covered(Rank(0), Epoch(3), Ssn(300)).unwrap();
        assert!(log.collect().chunks > 0);
        assert_eq!(replayed(log, Rank(0), 301), (301..=last).collect::<Vec<_>>());
    }
    let error = Log::recover(job.options()).unwrap_err();
    assert!(is_file(&error, |why| matches!(why, PrivateFileError::OwnerAlive { .. })), "{error}");
    drop(first);
    second.destroy().unwrap();

    assert!(paths.each_ref().map(|path| contents(path)) == before);
    // Missing files are not created.
    for path in paths {
        std::fs::remove_file(path).unwrap();
        let error = Log::recover_copy(job.options()).unwrap_err();
        assert!(matches!(error, OpenError::NoLog { rank: ME, .. }), "{error}");
    }
    assert_eq!(job.files(), []);
}

fn expect_everything(job: &Job) {
    let (mut log, recovered) = Log::recover(job.options()).unwrap();
    assert_eq!((recovered.lanes.len(), recovered.local_entries), (2, 10));
    assert_eq!(replayed(&mut log, Rank(0), 1), (1..=300).collect::<Vec<_>>());
    assert_eq!(replayed(&mut log, Rank(3), 1), (1..=20).collect::<Vec<_>>());
}

fn is_file(error: &OpenError, expected: impl Fn(&PrivateFileError) -> bool) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(cause) = source {
        if let Some(file) = cause.downcast_ref::<PrivateFileError>() {
            return expected(file);
        }
        source = cause.source();
    }
    false
}

#[test]
fn a_log_with_a_living_owner_is_refused() {
    let job = Job::new();
    job.create_dead_log();
    let (log, _) = Log::recover(job.options()).unwrap();
    let error = refused(&job, job.options());
    assert!(error.to_string().contains("in use by a living process"), "{error}");
    let error = Log::create(job.options()).map(|_| ()).unwrap_err();
    assert!(!error.to_string().is_empty());
    drop(log);
    expect_everything(&job);
}

#[test]
fn a_log_made_with_other_options_is_refused_by_name() {
    let job = Job::new();
    job.create_dead_log();
    let names = |options: Options, name: &str| {
        let error = refused(&job, options);
        assert!(matches!(error, OpenError::Pool(PoolError::Refused { .. })), "{error}");
        assert!(error.to_string().contains(&format!("made with {name} = ")), "{error}");
    };
    names(Options { memory_bytes_max: 2 << 20, ..job.options() }, "memory_bytes_max");
    names(Options { chunk_bytes: 8192, ..job.options() }, "chunk_bytes");
    names(Options { local_bytes_max: 128 << 10, ..job.options() }, "memory_bytes_max");
    // Options not affecting the file may change.
    let other = Options { keep: Keep::All, cursors_max: 3, prefault_bytes: 8192, ..job.options() };
    drop(Log::recover(other).unwrap());

    // Two lanes go to ranks missing in a smaller job.
    let error = refused(&job, Options { ranks: 3, ..job.options() });
    assert!(matches!(error, OpenError::Lane { peer: Rank(3), ranks: 3, .. }), "{error}");
    expect_everything(&job);
}

#[test]
fn another_ranks_log_and_another_kind_of_log_are_refused() {
    let job = Job::new();
    job.create_dead_log();
    std::fs::rename(job.lanes_file(), job.dir.join("log.1")).unwrap();
    std::fs::rename(job.local_file(), job.dir.join("local.1")).unwrap();
    let error = refused(&job, Options { rank: Rank(1), ..job.options() });
    assert!(error.to_string().contains("made with rank = "), "{error}");
    std::fs::rename(job.dir.join("log.1"), job.local_file()).unwrap();
    let options = Options { tier: Tier::Volatile, local_bytes_max: 1 << 20, ..job.options() };
    let error = refused(&job, options);
    assert!(error.to_string().contains("made with label = "), "{error}");
}

#[test]
fn a_file_or_directory_accessible_to_others_is_refused() {
    let job = Job::new();
    job.create_dead_log();
    for path in [job.lanes_file(), job.local_file()] {
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let error = refused(&job, job.options());
        let right = |error: &PrivateFileError| matches!(error, PrivateFileError::NotPrivate { mode: 0o640, .. });
        assert!(is_file(&error, right), "{error}");
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }
    std::fs::set_permissions(&job.dir, Permissions::from_mode(0o755)).unwrap();
    let error = refused(&job, job.options());
    assert!(is_file(&error, |error| matches!(error, PrivateFileError::NotPrivate { mode: 0o755, .. })), "{error}");
    std::fs::set_permissions(&job.dir, Permissions::from_mode(0o700)).unwrap();
    expect_everything(&job);
}

#[test]
fn a_link_is_never_followed() {
    let job = Job::new();
    job.create_dead_log();
    let elsewhere = job.dir.join("elsewhere");
    std::fs::rename(job.lanes_file(), &elsewhere).unwrap();
    symlink(&elsewhere, job.lanes_file()).unwrap();
    let error = refused(&job, job.options());
    assert!(is_file(&error, |error| matches!(error, PrivateFileError::WrongKind { .. })), "{error}");

    let link = job.dir.with_file_name("link");
    symlink(&job.dir, &link).unwrap();
    let error = refused(&job, Options { dir: Some(link), ..job.options() });
    assert!(is_file(&error, |error| matches!(error, PrivateFileError::WrongKind { .. })), "{error}");

    std::fs::rename(&elsewhere, job.lanes_file()).unwrap();
    expect_everything(&job);
}

#[test]
fn a_damaged_file_is_refused_with_the_place() {
    let job = Job::new();
    job.create_dead_log();
    for path in [job.lanes_file(), job.local_file()] {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        for (at, expected) in
            [(0, "not a shared-memory log"), (12, "version"), (40, "check"), (4000, "no writer writes")]
        {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 0x41], at).unwrap();
            let error = refused(&job, job.options());
            assert!(error.to_string().contains(expected), "{}, offset {at}: {error}", path.display());
            file.write_all_at(&byte, at).unwrap();
        }
    }
    expect_everything(&job);
}

#[test]
fn a_file_of_another_length_is_refused() {
    for (lanes, len) in [(true, 0), (true, 1), (true, 4095), (true, 4096), (true, 1 << 20), (false, 0), (false, 9000)] {
        let job = Job::new();
        job.create_dead_log();
        let path = if lanes { job.lanes_file() } else { job.local_file() };
        std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
        let error = refused(&job, job.options());
        assert!(error.to_string().contains("cut short") || error.to_string().contains("empty"), "{len} bytes: {error}");
    }
    let job = Job::new();
    job.create_dead_log();
    let file = std::fs::OpenOptions::new().write(true).open(job.lanes_file()).unwrap();
    let len = file.metadata().unwrap().len();
    file.set_len(len + 1).unwrap();
    let error = refused(&job, job.options());
    assert!(error.to_string().contains(&format!("{} bytes long, expected {len}", len + 1)), "{error}");
    file.set_len(len).unwrap();
    expect_everything(&job);
}

#[test]
fn a_log_is_never_created_over_another() {
    let job = Job::new();
    job.create_dead_log();
    assert!(Log::create(job.options()).is_err());
    expect_everything(&job);
}

#[test]
fn freed_messages_count_as_acknowledged_and_a_send_window_is_made_anew() {
    let job = Job::new();
    let options = Options { keep: Keep::Acked, ..job.options() };
    let mut log = Log::create(options.clone()).unwrap();
    append(&mut log, Rank(0), 300);
    append(&mut log, Rank(3), 20);
    log.acknowledge(Rank(0), Ack { ssn: Ssn(200), epoch: Epoch::FIRST }, Phase(0)).unwrap();
    drop(log);
    let (mut log, _) = Log::recover(options).unwrap();
    let acked = log.acked(Rank(0));
    assert_eq!((acked, log.acked(Rank(3))), (log.kept_from(Rank(0)).prev(), Ssn::ZERO));
    assert!((150..=200).contains(&acked.0), "{acked}");
    let window = log.send_window(Rank(0), AckPolicy::default(), Epoch(3)).unwrap();
    assert_eq!((window.next_ssn(), window.acked(), window.epoch()), (Ssn(301), acked, Epoch(3)));
    assert_eq!(window.unacked_bytes(), (acked.0 + 1..=300).map(|ssn| ssn % 200).sum::<u64>());
    // The receiver acknowledges what it has, once more.
    log.acknowledge(Rank(0), Ack { ssn: Ssn(200), epoch: Epoch::FIRST }, Phase(0)).unwrap();
    assert_eq!(log.acked(Rank(0)), Ssn(200));
    assert_eq!(replayed(&mut log, Rank(0), acked.0 + 1).last(), Some(&300));
}
