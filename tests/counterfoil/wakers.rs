//! Waiting for more than the log: checkpoints as futures, room yet to be made by the disk, and uncommitted records.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use counterfoil::{AppendError, CheckpointError, Contents, Epoch, Keep, Log, Options, Phase, Rank, ReplayError, Ssn};

use crate::spilled::{acknowledge, append, check_replay, payload, with_dir};

/// Unparks the waiting thread, and counts.
struct Unpark(Thread, AtomicU64);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.unpark();
    }
}

fn unpark() -> Arc<Unpark> {
    Arc::new(Unpark(std::thread::current(), AtomicU64::new(0)))
}

/// Polls until the result is ready, and parks between two polls.
///
/// Returns the result and the number of pending polls.
fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> (T, u64) {
    let unpark = unpark();
    let waker = Waker::from(unpark.clone());
    let mut pending = 0;
    loop {
        if let Poll::Ready(result) = poll(&mut Context::from_waker(&waker)) {
            return (result, pending);
        }
        pending += 1;
        // A thread may be unparked for no reason; without a wake it would be parked for ever.
        let woken = || unpark.1.load(Ordering::Relaxed) >= pending;
        let start = std::time::Instant::now();
        while !woken() {
            std::thread::park_timeout(Duration::from_secs(60).saturating_sub(start.elapsed()));
            assert!(woken() || start.elapsed() < Duration::from_secs(60), "nobody woke the task");
        }
    }
}

#[test]
fn a_checkpoint_is_a_future() {
    with_dir(2, |options| {
        let mut log = Log::create(options.clone()).unwrap();
        for epoch in 2..20 {
            for _ in 0..100 {
                append(&mut log, Rank(1)).unwrap();
            }
            let mut pending = pin!(log.begin_checkpoint(Epoch(epoch), Contents::default()).unwrap());
            let (result, _) = block_on(|context| pending.as_mut().poll(context));
            assert_eq!(result.unwrap(), Epoch(epoch));
            // Ready once, ready for ever.
            assert!(pending.is_done() && block_on(|context| pending.as_mut().poll(context)).1 == 0);
        }
        // The store refuses an epoch that isn't later.
        let mut pending = pin!(log.begin_checkpoint(Epoch(3), Contents::default()).unwrap());
        let (refused, _) = block_on(|context| pending.as_mut().poll(context));
        assert!(matches!(refused, Err(CheckpointError::Store(_))), "{refused:?}");
        drop(log);
        let (_, recovered) = Log::recover(options).unwrap();
        assert_eq!(recovered.checkpoint.map(|restored| restored.epoch), Some(Epoch(19)));
    });
}

#[test]
fn a_task_is_woken_when_the_disk_has_made_room() {
    with_dir(2, |mut options| {
        options.keep = Keep::All;
        // Otherwise a fast disk may keep up with every append.
        options.store.as_mut().unwrap().cpu_percent_max = 1;
        let mut log = Log::create(options).unwrap();
        log.begin_checkpoint(Epoch(2), Contents::default()).unwrap().wait().unwrap();
        let (peer, mut waits) = (Rank(1), 0);
        // Ten times as much as memory holds.
        for ssn in (1..=10_000).map(Ssn) {
            let bytes = payload(peer, ssn);
            let (made, pending) = block_on(|context| log.poll_reserve(context, peer, 0, bytes.len()));
            made.unwrap();
            waits += pending;
            let mut claim = log.claim_if_room(peer, 0, bytes.len()).expect("it was reserved");
            claim.payload_mut().copy_from_slice(&bytes);
            assert_eq!(claim.commit(), ssn);
            if ssn.0 % 50 == 0 {
                acknowledge(&mut log, peer, ssn);
                log.collect();
            }
        }
        assert!(waits > 0, "the disk kept up with every append");
        assert_eq!(check_replay(&mut log, peer), (Ssn(1), Ssn(10_001)));
    });
}

#[test]
fn what_only_acknowledgements_free_is_refused_at_once() {
    let mut options = Options::new(Rank(0), 2);
    (options.memory_bytes_max, options.chunk_bytes, options.prefault_bytes) = (64 << 10, 16 << 10, 0);
    options.keep = Keep::Acked;
    let mut log = Log::create(options).unwrap();
    let full = loop {
        match block_on(|context| log.poll_reserve(context, Rank(1), 0, 1000)) {
            (Ok(()), 0) => log.claim_if_room(Rank(1), 0, 1000).expect("it was reserved").commit(),
            (Err(refused), 0) => break refused,
            (_, pending) => panic!("pending {pending} times"),
        };
    };
    assert!(matches!(*full, AppendError::Full(_)), "{full}");
    let last = log.next_ssn(Rank(1)).prev();
    let ack = counterfoil::Ack { ssn: last, epoch: Epoch::FIRST };
    log.acknowledge(Rank(1), ack, Phase(0)).unwrap();
    log.collect();
    assert!(matches!(block_on(|context| log.poll_reserve(context, Rank(1), 0, 1000)), (Ok(()), 0)));
}

#[test]
fn a_task_at_the_end_of_a_lane_is_woken_after_commits_and_at_the_end_of_the_log() {
    const RECORDS: u64 = 20_000;
    let mut log = Log::create(Options::new(Rank(0), 3)).unwrap();
    let readers = [1, 2].map(|peer| {
        let mut cursor = log.cursor(Rank(peer), Ssn::FIRST).unwrap();
        std::thread::spawn(move || {
            let (mut next, mut waits) = (Ssn::FIRST, 0);
            loop {
                let (ready, pending) = block_on(|context| cursor.poll_ready(context));
                waits += pending;
                match ready {
                    Ok(()) => {}
                    Err(ReplayError::Ended) => break,
                    Err(error) => panic!("{error}"),
                }
                while let Some(record) = cursor.read().unwrap() {
                    assert_eq!((record.ssn(), record.payload()), (next, &next.0.to_le_bytes()[..]));
                    next = next.next();
                }
            }
            (next, waits)
        })
    });
    for n in 1..=RECORDS {
        for peer in [1, 2] {
            let mut claim = log.claim(Rank(peer), 0, 8).unwrap();
            claim.payload_mut().copy_from_slice(&n.to_le_bytes());
            claim.commit();
        }
        // In between the readers come to the end.
        if n % 7 == 0 {
            log.wake_readers();
        }
        if n % 1_000 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    drop(log);
    for reader in readers {
        let (next, waits) = reader.join().unwrap();
        assert_eq!(next, Ssn(RECORDS + 1));
        assert!(waits > 0, "the reader was never at the end");
    }
}

#[test]
fn a_commit_alone_wakes_nobody() {
    let mut log = Log::create(Options::new(Rank(0), 2)).unwrap();
    let mut cursor = log.cursor(Rank(1), Ssn::FIRST).unwrap();
    let unpark = unpark();
    let waker = Waker::from(unpark.clone());
    let mut poll = || cursor.poll_ready(&mut Context::from_waker(&waker));
    assert!(poll().is_pending());
    log.claim(Rank(1), 0, 8).unwrap().commit();
    assert_eq!(unpark.1.load(Ordering::Relaxed), 0);
    log.wake_readers();
    assert_eq!(unpark.1.load(Ordering::Relaxed), 1);
    assert!(matches!(poll(), Poll::Ready(Ok(()))));
    log.wake_readers();
    assert_eq!(unpark.1.load(Ordering::Relaxed), 1, "it waits no more");
}
