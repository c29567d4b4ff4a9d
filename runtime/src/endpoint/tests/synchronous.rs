//! Sends that complete once a receive has taken the message.

use counterfoil::Tier;
use counterfoil_campaign::{scaled, stride};

use super::{RANKS, ROUNDS, number, places, run_program, settings};
use crate::Error;
use crate::communicator::{APPLICATION_CONTEXT, Communicator, Request};
use crate::local::testing::{End, Killable, ThreadEndpoint, ThreadJob};
use crate::settings::RankSettings;
use counterfoil_protocols::api::Rule;
use counterfoil_protocols::{pessimistic, send_deterministic, sender_based};

const RULES: [Rule; 3] = [sender_based::RULE, pessimistic::RULE, send_deterministic::RULE.with_clusters(1)];

/// Runs a program on two ranks under each rule.
fn run_pair(program: impl Fn(&mut ThreadEndpoint) -> Result<(), Error> + Sync) {
    for rule in RULES {
        let settings = RankSettings { ranks: 2, rule, ..settings(Tier::Volatile) };
        let ran = ThreadJob::new(settings).run(|endpoint, _| {
            program(endpoint)?;
            Ok(End::Result(Vec::new()))
        });
        ran.unwrap_or_else(|error| panic!("{rule:?}: {error}"));
    }
}

fn synchronous(comm: &mut ThreadEndpoint, to: u32, tag: i32) -> Result<Request, Error> {
    comm.issend_in(APPLICATION_CONTEXT, to, tag, &[tag as u8])
}

#[test]
fn a_synchronous_send_completes_when_a_receive_takes_the_message_and_not_before() {
    run_pair(|comm| {
        if comm.rank() == 0 {
            let sent = synchronous(comm, 1, 1)?;
            // Rank 1 has the message by the time it answers.
            comm.send(1, 2, b"")?;
            comm.recv(Some(1), Some(3))?;
            assert!(!comm.test(&sent)?);
            comm.send(1, 4, b"")?;
            let (status, none) = comm.wait(sent)?;
            assert_eq!((status.source, status.tag, status.len, none.len()), (1, 1, 1, 0));
            // Rank 1 waits for its receive after this.
            return comm.send(1, 5, b"");
        }
        comm.recv(Some(0), Some(2))?;
        comm.send(0, 3, b"")?;
        comm.recv(Some(0), Some(4))?;
        let received = comm.irecv(Some(0), Some(1))?;
        comm.recv(Some(0), Some(5))?;
        assert_eq!(comm.wait(received)?.1[..], [1]);
        Ok(())
    });
}

#[test]
fn a_rank_may_send_to_itself() {
    run_pair(|comm| {
        let own = comm.rank();
        let sent = synchronous(comm, own, 1)?;
        assert!(!comm.test(&sent)?);
        let received = comm.irecv(None, None)?;
        assert!(comm.test(&sent)?);
        comm.wait(sent)?;
        comm.wait(received)?;
        let received = comm.irecv(Some(own), Some(2))?;
        let sent = synchronous(comm, own, 2)?;
        comm.wait(sent)?;
        comm.wait(received).map(drop)
    });
}

#[test]
fn a_freed_send_continues_and_is_not_pending() {
    run_pair(|comm| {
        if comm.rank() == 0 {
            let sent = synchronous(comm, 1, 1)?;
            assert!(matches!(comm.checkpoint(b""), Err(Error::RequestsOpen { open: 1 })));
            comm.free_send(sent);
            comm.checkpoint(b"")?;
            return comm.send(1, 2, b"");
        }
        comm.recv(Some(0), Some(2))?;
        comm.recv(Some(0), Some(1)).map(drop)
    });
}

#[test]
fn a_cancelled_send_is_waited_for() {
    run_pair(|comm| {
        if comm.rank() == 0 {
            let sent = synchronous(comm, 1, 1)?;
            let status = comm.cancel(sent)?.unwrap().0;
            assert_eq!((status.source, status.tag), (1, 1));
            return Ok(());
        }
        comm.recv(Some(0), Some(1)).map(drop)
    });
}

#[test]
fn the_answer_is_read_after_more_messages_than_may_be_unexpected() {
    let settings = RankSettings { unexpected_bytes_max: 1 << 20, log_bytes_max: 64 << 20, ..settings(Tier::Volatile) };
    let message = vec![7; 100_000];
    let job = ThreadJob::new(RankSettings { ranks: 2, ..settings });
    let ran = job.run(|comm, _| {
        if comm.rank() == 0 {
            let sent = synchronous(comm, 1, 1)?;
            comm.wait(sent)?;
            (0..100).try_for_each(|_| comm.recv(Some(1), Some(2)).map(drop))?;
        } else {
            (0..100).try_for_each(|_| comm.send(0, 2, &message))?;
            comm.recv(Some(0), Some(1))?;
        }
        Ok(End::Result(Vec::new()))
    });
    assert_eq!(ran.unwrap().1.messages_delivered, 101);
}

/// Program with test outcomes, and outcomes of waits for one of several requests, in its messages, so that a repetition
/// with other outcomes diverges.
///
/// Ranks receive in reverse order, and after polls without a message, on which their matches depend.
fn program(comm: &mut Killable<'_>, checkpoints: bool) -> Result<Vec<u8>, Error> {
    let (rank, size) = (comm.rank(), comm.size());
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
    let (mut round, mut seen) = match comm.restore()? {
        Some(state) => (u64::from(state[0]), number(&state[1..])),
        None => (0, 0),
    };
    while round < ROUNDS {
        round += 1;
        comm.iteration(round)?;
        let mut requests = Vec::new();
        for tag in [1, 2] {
            requests.push(comm.endpoint()?.issend_in(APPLICATION_CONTEXT, right, tag, &seen.to_le_bytes())?);
        }
        seen = seen * 2 + u64::from(comm.iprobe(None, Some(2))?.is_some());
        requests.push(comm.irecv(Some(left), Some(2))?);
        requests.push(comm.irecv(None, Some(1))?);
        for request in &requests {
            seen = seen * 2 + u64::from(comm.test(request)?);
        }
        // A send and a receive with the same peer and number are different outcomes.
        while !requests.is_empty() {
            let each: Vec<&Request> = requests.iter().collect();
            let each: Vec<&[&Request]> = each.chunks(1).collect();
            let index = comm.endpoint()?.wait_any(&each)?.unwrap();
            seen = (seen * 5 + index as u64) & 0xffff_ffff;
            let done = requests.remove(index);
            comm.wait(done)?;
        }
        let sent = comm.endpoint()?.issend_in(APPLICATION_CONTEXT, left, 3, &seen.to_le_bytes())?;
        let received = comm.recv(Some(right), Some(3))?;
        assert_eq!(received.1.len(), 8);
        comm.wait(sent)?;
        if checkpoints && (round + u64::from(rank)).is_multiple_of(2) {
            comm.checkpoint(&[&[round as u8][..], &seen.to_le_bytes()].concat())?;
        }
    }
    comm.send(right, 9, &seen.to_le_bytes())?;
    comm.recv(Some(left), Some(9))?;
    Ok(vec![round as u8])
}

/// Runs the program; the incarnations in `deaths`, as (rank, incarnation, call), die before that call.
///
/// Returns the number of calls by each rank's last incarnation.
fn run(settings: RankSettings, checkpoints: bool, deaths: &[(u32, u32, u64)]) -> Vec<u64> {
    let (results, calls, _) = run_program(settings, deaths, |comm| program(comm, checkpoints));
    assert!(results.iter().all(|result| *result == [ROUNDS as u8]));
    calls
}

fn a_rank_may_die_before_each_of_its_calls(rule: Rule) {
    let mut next = places();
    for (tier, checkpoints) in [(Tier::Volatile, false), (Tier::ProcessCrashSafe, true)] {
        let settings = RankSettings { rule, ..settings(tier) };
        let calls = run(settings.clone(), checkpoints, &[]);
        for rank in 0..RANKS {
            for call in (0..calls[rank as usize]).step_by(stride()) {
                run(settings.clone(), checkpoints, &[(rank, 0, call), (rank, 1, 20), (rank, 2, 30)]);
            }
        }
        for _ in 0..scaled(20) {
            let ranks = 0..RANKS;
            let deaths = ranks.flat_map(|rank| [0, 1, 2].map(|incarnation| (rank, incarnation)));
            let deaths: Vec<_> = deaths.map(|(rank, incarnation)| (rank, incarnation, next(40))).collect();
            run(settings.clone(), checkpoints, &deaths);
        }
    }
}

#[test]
fn a_rank_may_die_before_each_of_its_calls_sender_based() {
    a_rank_may_die_before_each_of_its_calls(sender_based::RULE);
}

#[test]
fn a_rank_may_die_before_each_of_its_calls_pessimistic() {
    a_rank_may_die_before_each_of_its_calls(pessimistic::RULE);
}
