//! Endpoints connected to each other, and ranks that die before each of their calls in turn.

mod by_tag;
mod contexts;
mod effects;
mod pessimistic;
mod replay;
mod sending;
mod synchronous;
mod verdicts;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use counterfoil::{Keep, OnFull, OpenError, StoreError, Tier};
use counterfoil_campaign::{scaled, stride};

use crate::communicator::{ANY_SOURCE, ANY_TAG, CallError, Communicator, Reduction};
use crate::local::testing::{End, Killable, ThreadJob};
use crate::oracle::judge;
use crate::settings::RankSettings;
use crate::{Error, Tally};
use counterfoil_protocols::user_level;

const RANKS: u32 = 3;
const ROUNDS: u64 = 3;

fn settings(tier: Tier) -> RankSettings {
    RankSettings { tier, log_bytes_max: 16 << 20, disk_block_bytes: 16 << 10, ..RankSettings::new(RANKS) }
}

/// Program with named and wildcard receives, tests, probes, messages to itself, large and empty messages, late
/// receives, collectives, and checkpoints.
fn program(comm: &mut dyn Communicator, checkpoints: bool) -> Result<Vec<u8>, Error> {
    let (rank, size) = (comm.rank(), comm.size());
    let (mut round, mut sum) = match comm.restore()? {
        Some(state) => (u64::from(state[0]), u64::from_le_bytes(state[1..9].try_into().unwrap())),
        None => (0, u64::from(rank) + 1),
    };
    while round < ROUNDS {
        round += 1;
        comm.iteration(round)?;
        let right = (rank + 1) % size;
        // Received only in the next round, so a checkpoint finds it unexpected.
        comm.send(right, 9, &(sum ^ round).to_le_bytes())?;
        if rank == 0 {
            // The sum doesn't depend on the arrival order.
            let large = vec![round as u8; 100_000];
            (1..size).try_for_each(|worker| comm.send(worker, 1, &large))?;
            let first = comm.irecv(ANY_SOURCE, Some(2))?;
            let ready = comm.test(&first)?;
            if ready {
                sum = sum.wrapping_add(0); // the program may branch on it, the result may not depend on it
            }
            let (_, bytes) = comm.wait(first)?;
            sum = sum.wrapping_add(number(&bytes));
            for _ in 2..size {
                let status = match comm.iprobe(ANY_SOURCE, Some(2))? {
                    Some(status) => status,
                    None => comm.probe(ANY_SOURCE, Some(2))?,
                };
                let (_, bytes) = comm.recv(Some(status.source), Some(status.tag))?;
                sum = sum.wrapping_add(number(&bytes));
            }
        } else {
            let (status, large) = comm.recv(Some(0), Some(1))?;
            assert_eq!((status.tag, large.len(), large[99_999]), (1, 100_000, round as u8));
            comm.send(0, 2, &sum.wrapping_mul(3).to_le_bytes())?;
        }
        comm.send(rank, 4, b"")?;
        assert_eq!(comm.recv(Some(rank), ANY_TAG)?.1, Bytes::new());
        let mut values = [sum];
        comm.allreduce_u64(&mut values, Reduction::Sum)?;
        sum = sum.wrapping_mul(31).wrapping_add(values[0]);
        if round > 1 {
            let (_, late) = comm.recv(Some((rank + size - 1) % size), Some(9))?;
            sum ^= number(&late);
        }
        if checkpoints && (round + u64::from(rank)).is_multiple_of(2) {
            let mut state = vec![round as u8];
            state.extend_from_slice(&sum.to_le_bytes());
            comm.checkpoint(&state)?;
        }
    }
    let (_, late) = comm.recv(Some((rank + size - 1) % size), Some(9))?;
    Ok((sum ^ number(&late)).to_le_bytes().to_vec())
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

/// Runs the program; for each (rank, incarnation, call) in `deaths` that incarnation dies before that call.
///
/// Returns the results, the number of calls by each rank's last incarnation, and the counters.
fn run(settings: RankSettings, checkpoints: bool, deaths: &[(u32, u32, u64)]) -> (Vec<Vec<u8>>, Vec<u64>, Tally) {
    run_program(settings, deaths, |comm| program(comm, checkpoints))
}

/// Runs another program, as [`run`] does.
fn run_program<F>(settings: RankSettings, deaths: &[(u32, u32, u64)], program: F) -> (Vec<Vec<u8>>, Vec<u64>, Tally)
where
    F: Fn(&mut Killable<'_>) -> Result<Vec<u8>, Error> + Sync,
{
    let job = ThreadJob::new(settings);
    let calls: Vec<AtomicU64> = (0..RANKS).map(|_| AtomicU64::new(0)).collect();
    let ran = job.run(|endpoint, incarnation| {
        let rank = endpoint.rank();
        let death = deaths.iter().find(|death| (death.0, death.1) == (rank, incarnation)).map(|death| death.2);
        let mut killable = Killable::new(endpoint, death);
        let result = program(&mut killable);
        calls[rank as usize].store(killable.calls, Ordering::Relaxed);
        killable.end(result)
    });
    let (results, tally) = ran.unwrap_or_else(|error| panic!("deaths {deaths:?}: {error}"));
    let verdict = judge(&job.timelines());
    assert!(verdict.is_clean(), "deaths {deaths:?}: {verdict:?}");
    (results, calls.into_iter().map(AtomicU64::into_inner).collect(), tally)
}

#[test]
fn a_program_runs_on_both_tiers_with_and_without_checkpoints_alike() {
    let (expected, _, _) = run(settings(Tier::Volatile), false, &[]);
    for tier in [Tier::Volatile, Tier::ProcessCrashSafe, Tier::NodeLocal] {
        for checkpoints in [false, true] {
            assert_eq!(run(settings(tier), checkpoints, &[]).0, expected, "{tier:?} {checkpoints}");
        }
    }
}

/// Kills each rank before each of its calls in turn.
fn a_rank_may_die_before_each_of_its_calls(tier: Tier, checkpoints: bool) {
    let (expected, calls, _) = run(settings(tier), checkpoints, &[]);
    for rank in 0..RANKS {
        for call in (0..calls[rank as usize]).step_by(stride()) {
            let (results, _, _) = run(settings(tier), checkpoints, &[(rank, 0, call)]);
            assert_eq!(results, expected, "rank {rank} died before call {call}");
        }
    }
}

#[test]
fn a_rank_may_die_before_each_of_its_calls_volatile() {
    a_rank_may_die_before_each_of_its_calls(Tier::Volatile, false);
}

#[test]
fn a_rank_may_die_before_each_of_its_calls_volatile_with_checkpoints() {
    a_rank_may_die_before_each_of_its_calls(Tier::Volatile, true);
}

#[test]
fn a_rank_may_die_before_each_of_its_calls_process_crash_safe() {
    a_rank_may_die_before_each_of_its_calls(Tier::ProcessCrashSafe, false);
}

#[test]
fn a_rank_may_die_before_each_of_its_calls_process_crash_safe_with_checkpoints() {
    a_rank_may_die_before_each_of_its_calls(Tier::ProcessCrashSafe, true);
}

#[test]
fn a_rank_may_die_before_each_of_its_calls_node_local_with_checkpoints() {
    a_rank_may_die_before_each_of_its_calls(Tier::NodeLocal, true);
}

/// Returns low-discrepancy numbers below a bound, so that all combinations of early and late occur.
fn places() -> impl FnMut(u64) -> u64 {
    let mut place = 0u64;
    move |below| {
        place = place.wrapping_add(0x9E37_79B9_7F4A_7C15);
        (place >> 32) % below
    }
}

#[test]
fn all_may_die_and_die_again_at_any_of_their_calls() {
    let (expected, calls, _) = run(settings(Tier::Volatile), false, &[]);
    let mut next = places();
    for tier in [Tier::Volatile, Tier::ProcessCrashSafe, Tier::NodeLocal] {
        for checkpoints in [false, true] {
            for _ in 0..scaled(20) {
                let mut deaths = Vec::new();
                for rank in 0..RANKS {
                    let most = calls[rank as usize];
                    deaths.extend((0..3).map(|incarnation| (rank, incarnation, next(most))));
                }
                assert_eq!(run(settings(tier), checkpoints, &deaths).0, expected, "{tier:?} {checkpoints} {deaths:?}");
            }
        }
    }
}

#[test]
fn a_replacement_repeats_its_logged_sends_and_gets_replays() {
    let (_, _, tally) = run(settings(Tier::ProcessCrashSafe), false, &[(1, 0, 40)]);
    assert!(tally.sends_repeated > 0 && tally.messages_replayed > 0, "{tally:?}");
    let (_, _, tally) = run(settings(Tier::Volatile), false, &[(1, 0, 40)]);
    // Messages received by a survivor aren't transmitted again.
    assert!(tally.sends_repeated == 0 && tally.messages_replayed > 0 && tally.duplicates_dropped == 0, "{tally:?}");
}

/// Two ranks, one program each.
fn pair<A, B>(settings: RankSettings, zero: A, one: B) -> Result<(Vec<Vec<u8>>, Tally), Error>
where
    A: Fn(&mut dyn Communicator) -> Result<(), Error> + Sync,
    B: Fn(&mut dyn Communicator) -> Result<(), Error> + Sync,
{
    ThreadJob::new(RankSettings { ranks: 2, ..settings }).run(|endpoint, _| {
        if endpoint.rank() == 0 {
            zero(endpoint)?
        } else {
            one(endpoint)?
        }
        Ok(End::Result(Vec::new()))
    })
}

#[test]
fn a_sender_waits_for_log_space_until_the_receiver_has_acknowledged() {
    // 100 times the capacity of the log.
    let settings = RankSettings { log_bytes_max: 1 << 20, keep: Keep::Acked, ..settings(Tier::Volatile) };
    let message = vec![7; 100_000];
    let sent = pair(
        settings,
        |comm| (0..1000).try_for_each(|_| comm.send(1, 0, &message)),
        |comm| (0..1000).try_for_each(|_| comm.recv(Some(0), Some(0)).map(drop)),
    );
    assert_eq!(sent.unwrap().1.messages_delivered, 1000);
}

#[test]
fn a_full_log_is_an_error_that_names_the_holder() {
    let settings = RankSettings { log_bytes_max: 1 << 20, on_full: OnFull::Fail, ..settings(Tier::Volatile) };
    let message = vec![7; 100_000];
    let error = pair(
        settings,
        |comm| (0..1000).try_for_each(|_| comm.send(1, 0, &message)),
        |comm| comm.recv(Some(0), Some(1)).map(drop),
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("the log is full") && error.contains("held for rank 1"), "{error}");
}

#[test]
fn a_log_that_stays_full_is_an_error_after_the_wait() {
    let settings =
        RankSettings { log_bytes_max: 1 << 20, full_wait_max: Duration::from_millis(50), ..settings(Tier::Volatile) };
    let message = vec![7; 100_000];
    let result = pair(
        settings,
        |comm| match (0..1000).try_for_each(|_| comm.send(1, 0, &message)) {
            Err(Error::StillFull { to: 1, .. }) => Err(Error::RequestsMax { max: 77 }),
            other => panic!("{other:?}"),
        },
        |_| Ok(()),
    );
    assert!(matches!(result, Err(Error::RequestsMax { max: 77 })));
}

#[test]
fn a_job_continues_after_logging_stops_and_counts_it() {
    let settings = RankSettings { log_bytes_max: 1 << 20, on_full: OnFull::StopLogging, ..settings(Tier::Volatile) };
    let message = vec![7; 100_000];
    let (_, tally) = pair(
        settings,
        |comm| (0..200).try_for_each(|_| comm.send(1, 0, &message)),
        |comm| (0..200).try_for_each(|_| comm.recv(Some(0), Some(0)).map(drop)),
    )
    .unwrap();
    assert_eq!((tally.messages_delivered, tally.logging_stopped), (200, 1));
}

#[test]
fn a_peer_that_sends_ahead_is_not_read_until_a_receive_fits() {
    let settings = RankSettings { unexpected_bytes_max: 1 << 20, ..settings(Tier::Volatile) };
    let message = vec![7; 100_000];
    // 10 MB wait at the sender until rank 1 receives them.
    let (_, tally) = pair(
        RankSettings { log_bytes_max: 64 << 20, ..settings },
        |comm| {
            (0..100).try_for_each(|_| comm.send(1, 0, &message))?;
            comm.recv(Some(1), Some(5)).map(drop)
        },
        |comm| {
            comm.send(0, 5, b"")?;
            (0..100).try_for_each(|_| comm.recv(Some(0), Some(0)).map(drop))
        },
    )
    .unwrap();
    assert_eq!(tally.messages_delivered, 101);
}

#[test]
fn too_many_unexpected_bytes_are_an_error_and_not_a_deadlock() {
    let settings = RankSettings {
        unexpected_bytes_max: 1 << 20,
        unexpected_bytes_limit: 2 << 20,
        log_bytes_max: 64 << 20,
        ..settings(Tier::Volatile)
    };
    let message = vec![7; 100_000];
    let result = pair(
        settings,
        |comm| {
            (0..100).try_for_each(|_| comm.send(1, 0, &message))?;
            comm.send(1, 1, b"the one")?;
            comm.recv(Some(1), Some(1)).map(drop)
        },
        |comm| match comm.recv(Some(0), Some(1)) {
            Err(Error::Unexpected { peer: 0, bytes, max }) if bytes > max => Err(Error::RequestsMax { max: 77 }),
            other => panic!("{other:?}"),
        },
    );
    assert!(matches!(result, Err(Error::RequestsMax { max: 77 })));
}

#[test]
fn wrong_calls_are_refused_and_change_nothing() {
    let settings = RankSettings { requests_max: 4, ..settings(Tier::Volatile) };
    let check = |comm: &mut dyn Communicator| {
        let no_such_rank = |result| matches!(result, Err(Error::Call(CallError::NoSuchRank { rank: 9, .. })));
        assert!(no_such_rank(comm.send(9, 0, b"")));
        assert!(no_such_rank(comm.recv(Some(9), None).map(drop)));
        assert!(no_such_rank(comm.probe(Some(9), None).map(drop)));
        let negative = |result| matches!(result, Err(Error::Call(CallError::NegativeTag { tag: -1, .. })));
        assert!(negative(comm.send(0, -1, b"")) && negative(comm.recv(None, Some(-1)).map(drop)));
        let posted = comm.irecv(Some(comm.rank()), Some(3))?;
        assert!(matches!(comm.checkpoint(b""), Err(Error::RequestsOpen { open: 1 })));
        let others = (0..3).map(|_| comm.irecv(Some(comm.rank()), Some(3))).collect::<Result<Vec<_>, _>>()?;
        assert!(matches!(comm.send(comm.rank(), 3, b""), Err(Error::RequestsMax { max: 4 })));
        drop((posted, others));
        Ok(())
    };
    pair(settings, check, check).unwrap();
}

/// Rank 0 takes a checkpoint and dies; the checkpoint file is damaged; the replacement must refuse it.
#[test]
fn a_damaged_checkpoint_is_refused() {
    let job = ThreadJob::new(RankSettings { ranks: 1, ..settings(Tier::Volatile) });
    let result = job.run(|endpoint, _| {
        endpoint.checkpoint(b"state")?;
        let files = fs::read_dir(job.job.checkpoints().join("rank-0")).unwrap().map(|entry| entry.unwrap().path());
        let file = files.filter(|path| path.to_string_lossy().contains("/checkpoint-")).last().unwrap();
        let mut bytes = fs::read(&file).unwrap();
        bytes[40] ^= 1;
        fs::write(&file, bytes).unwrap();
        Ok(End::Killed)
    });
    assert!(matches!(result, Err(Error::Open(OpenError::Store(StoreError::Damaged { .. })))), "{result:?}");
}

/// Rank 0 dies; its shared-memory log is truncated; the replacement must refuse it.
#[test]
fn a_truncated_shared_log_is_refused() {
    let job = ThreadJob::new(RankSettings { ranks: 1, ..settings(Tier::ProcessCrashSafe) });
    let result = job.run(|endpoint, _| {
        endpoint.send(0, 0, b"to itself")?;
        for entry in fs::read_dir(job.job.paths().logs()).unwrap() {
            let file = fs::OpenOptions::new().write(true).open(entry.unwrap().path()).unwrap();
            // Less than its header; this process doesn't access its mapping again.
            file.set_len(100).unwrap();
        }
        Ok(End::Killed)
    });
    assert!(matches!(result, Err(Error::Open(_))));
}

#[test]
fn a_checkpoint_that_is_not_due_is_passed_over() {
    let of = |mtbf| RankSettings { ranks: 1, mtbf, ..settings(Tier::Volatile) };
    for (mtbf, taken) in [(None, 3), (Some(Duration::from_secs(3600)), 1)] {
        let ran = ThreadJob::new(of(mtbf)).run(|endpoint, _| {
            assert!(endpoint.is_checkpoint_due());
            for _ in 0..3 {
                endpoint.checkpoint(b"state")?;
            }
            assert_eq!(endpoint.is_checkpoint_due(), mtbf.is_none());
            assert_eq!(endpoint.tally().checkpoints, taken);
            Ok(End::Result(Vec::new()))
        });
        assert!(ran.is_ok(), "{:?}", ran.err());
    }
}

/// Thread of a rank, and its number of returned calls, for another rank waiting for it to be blocked.
#[derive(Default)]
struct Observed {
    /// The thread's directory in /proc.
    thread: OnceLock<PathBuf>,
    returned: AtomicU64,
}

impl Observed {
    fn note_thread(&self) {
        let _ = self.thread.set(Path::new("/proc").join(fs::read_link("/proc/thread-self").unwrap()));
    }

    fn note_return(&self) {
        self.returned.fetch_add(1, Ordering::Release);
    }

    /// Waits until the thread sleeps in a call after the first `calls`.
    fn wait_until_blocked_after(&self, calls: u64) {
        let begun = Instant::now();
        while self.returned.load(Ordering::Acquire) < calls || !self.sleeps() {
            assert!(begun.elapsed() < Duration::from_secs(60), "not blocked after {:?} calls", self.returned);
            std::thread::yield_now();
        }
    }

    fn sleeps(&self) -> bool {
        let stat = fs::read_to_string(self.thread.get().unwrap().join("stat")).unwrap();
        // The state follows the name, which may have spaces.
        stat.rsplit_once(") ").unwrap().1.starts_with('S')
    }
}

#[test]
fn a_root_that_broadcasts_again_and_again_waits_for_slower_ranks() {
    const LENGTH: usize = 1 << 20;
    const CALLS: u8 = 40;
    let settings = RankSettings {
        rule: user_level::RULE,
        local_log_bytes_max: 128 << 20,
        unexpected_bytes_max: 4 << 20,
        unexpected_bytes_limit: 16 << 20,
        ..settings(Tier::Volatile)
    };
    let root = Observed::default();
    let receives = |comm: &mut dyn Communicator| {
        comm.recv(Some(0), Some(1))?;
        // The first broadcast has filled the connection.
        root.wait_until_blocked_after(1);
        for call in 0..CALLS {
            assert!(comm.bcast(0, &[])?.iter().all(|byte| *byte == call));
        }
        assert_eq!(comm.bcast(0, &[])?.len(), 6 * LENGTH, "longer than all control frames that may be queued");
        comm.send(0, 1, b"done")
    };
    let sends = |comm: &mut dyn Communicator| {
        root.note_thread();
        comm.send(1, 1, b"connected")?;
        for call in 0..CALLS {
            comm.bcast(0, &vec![call; LENGTH])?;
            root.note_return();
        }
        comm.bcast(0, &vec![CALLS; 6 * LENGTH])?;
        comm.recv(Some(1), Some(1)).map(drop)
    };
    let ran = pair(settings, sends, receives);
    assert!(ran.is_ok(), "{:?}", ran.err());
}
