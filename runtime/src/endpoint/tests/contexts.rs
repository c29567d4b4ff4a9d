//! Messages in several communicators, the choice among several operations, and cancelled receives.

use counterfoil::Tier;
use counterfoil_campaign::stride;

use super::{RANKS, ROUNDS, number, run_program, settings};
use crate::Error;
use crate::communicator::{APPLICATION_CONTEXT, Communicator, FailStop, Request};
use crate::local::testing::{End, Killable, ThreadJob};
use crate::settings::RankSettings;
use counterfoil_protocols::api::Rule;
use counterfoil_protocols::{pessimistic, sender_based};

/// Contexts of two communicators.
const ONE: u32 = 2;
const OTHER: u32 = 4;

/// Runs a program whose messages include everything that the outcomes of a rank's choices depend on, so a repetition
/// with another outcome diverges.
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
        for (context, value) in [(ONE, round), (OTHER, round + 100)] {
            let sent = comm.endpoint()?.isend_in(context, right, 1, &(value << 32 | seen & 0xffff).to_le_bytes())?;
            comm.wait(sent)?;
        }
        // In the other order: messages of the two don't match each other's receives.
        for (context, expected) in [(OTHER, round + 100), (ONE, round)] {
            let received = comm.endpoint()?.irecv_in(context, Some(left), None)?;
            assert_eq!(number(&comm.wait(received)?.1) >> 32, expected);
        }
        if rank == 0 {
            seen = choose(comm, seen)?;
        } else {
            for tag in [2, 3] {
                let sent = comm.endpoint()?.isend_in(OTHER, 0, tag, &[rank as u8])?;
                comm.wait(sent)?;
            }
        }
        let sent = comm.endpoint()?.isend_in(ONE, right, 7, &round.to_le_bytes())?;
        comm.wait(sent)?;
        seen = cancel(comm, left, round, seen)?;
        if checkpoints && (round + u64::from(rank)).is_multiple_of(2) {
            comm.checkpoint(&[&[round as u8][..], &seen.to_le_bytes()].concat())?;
        }
    }
    comm.send(right, 9, &seen.to_le_bytes())?;
    comm.recv(Some(left), Some(9))?;
    Ok(vec![round as u8])
}

/// Receives two messages from each other rank, each pair as one operation, in arrival order.
fn choose(comm: &mut Killable<'_>, mut seen: u64) -> Result<u64, Error> {
    let mut operations: Vec<Vec<Request>> = Vec::new();
    for source in 1..RANKS {
        let tags = [2, 3].into_iter();
        operations
            .push(tags.map(|tag| comm.endpoint()?.irecv_in(OTHER, Some(source), Some(tag))).collect::<Result<_, _>>()?);
    }
    while !operations.is_empty() {
        let requests: Vec<Vec<&Request>> = operations.iter().map(|requests| requests.iter().collect()).collect();
        let requests: Vec<&[&Request]> = requests.iter().map(Vec::as_slice).collect();
        let mut tested = comm.endpoint()?.test_any(&requests)?;
        if tested.is_none() && !comm.endpoint()?.repeat_nothing_found()? {
            tested = comm.endpoint()?.test_any(&requests)?;
        }
        let index = match tested {
            Some(index) => index,
            None => comm.endpoint()?.wait_any(&requests)?.unwrap(),
        };
        let mut sources = operations.remove(index).into_iter().map(|request| Ok(comm.wait(request)?.0.source));
        let sources = sources.by_ref().collect::<Result<Vec<_>, Error>>()?;
        assert_eq!(sources[0], sources[1]);
        seen = seen * 31 + u64::from(sources[0]) * 2 + u64::from(tested.is_some());
    }
    assert_eq!(comm.endpoint()?.wait_any(&[])?, None);
    Ok(seen)
}

/// Cancels receives for a message that may have come, and for one never sent.
///
/// Receives the message if it had not.
fn cancel(comm: &mut Killable<'_>, from: u32, round: u64, mut seen: u64) -> Result<u64, Error> {
    let never = comm.endpoint()?.irecv_in(ONE, None, Some(8))?;
    // As a wildcard, its match is an outcome of its own.
    let source = if round.is_multiple_of(2) { None } else { Some(from) };
    let perhaps = comm.endpoint()?.irecv_in(ONE, source, Some(7))?;
    seen = seen * 31 + u64::from(comm.test(&perhaps)?);
    let cancelled = comm.endpoint()?.cancel(perhaps)?;
    assert_eq!(comm.endpoint()?.cancel(never)?, None);
    seen = seen * 2 + u64::from(cancelled.is_some());
    let message = match cancelled {
        Some((_, message)) => message,
        None => {
            let later = comm.endpoint()?.irecv_in(ONE, None, Some(7))?;
            comm.wait(later)?.1
        }
    };
    assert_eq!(number(&message), round);
    Ok(seen)
}

#[test]
fn an_operation_is_complete_with_all_its_requests() {
    let job = ThreadJob::new(settings(Tier::Volatile));
    let ran = job.run(|endpoint, _| {
        match endpoint.rank() {
            0 => {
                let post = |tag| endpoint.irecv_in(ONE, Some(1), Some(tag));
                let [first, second]: [Request; 2] = [1, 2].map(post).map(Result::unwrap);
                // The first message has arrived once a later one has.
                endpoint.recv(Some(1), Some(3))?;
                assert_eq!(endpoint.test_any(&[&[&first, &second]])?, None);
                assert!(endpoint.test(&first)?);
                endpoint.send(1, 4, &[])?;
                assert_eq!(endpoint.wait_any(&[&[], &[&first, &second]])?, Some(0));
                assert_eq!(endpoint.wait_any(&[&[&first, &second]])?, Some(0));
                // The outcome is known by now.
                let known = endpoint.tally().choices_logged;
                assert_eq!(endpoint.test_any(&[&[&first, &second]])?, Some(0));
                assert_eq!(endpoint.tally().choices_logged, known);
                assert!(endpoint.cancel(first)?.is_some());
                endpoint.wait(second)?;
                assert_eq!(endpoint.tally().choices_logged, known);
            }
            1 => {
                for (context, tag) in [(ONE, 1), (APPLICATION_CONTEXT, 3)] {
                    let sent = endpoint.isend_in(context, 0, tag, &[])?;
                    endpoint.wait(sent)?;
                }
                endpoint.recv(Some(0), Some(4))?;
                let sent = endpoint.isend_in(ONE, 0, 2, &[])?;
                endpoint.wait(sent)?;
            }
            _ => {}
        }
        Ok(End::Result(Vec::new()))
    });
    ran.unwrap();
}

#[test]
fn a_test_is_repeated_only_after_one_that_found_nothing() {
    let ran = ThreadJob::new(RankSettings { ranks: 1, ..settings(Tier::Volatile) }).run(|endpoint, _| {
        assert!(!endpoint.repeat_nothing_found()?);
        let receive = endpoint.irecv(None, Some(7))?;
        assert!(!endpoint.test(&receive)?);
        assert!(endpoint.repeat_nothing_found()? && endpoint.repeat_nothing_found()?);
        assert_eq!(endpoint.tally().choices_logged, 3);
        endpoint.send(0, 7, &[])?;
        assert!(endpoint.test(&receive)?);
        assert!(!endpoint.repeat_nothing_found()?);
        endpoint.wait(receive)?;
        Ok(End::Result(Vec::new()))
    });
    ran.unwrap();
}

#[test]
fn calls_fail_after_one_that_has_failed_for_good() {
    let ran = ThreadJob::new(RankSettings { ranks: 1, ..settings(Tier::Volatile) }).run(|endpoint, incarnation| {
        let never = endpoint.irecv(None, Some(7))?;
        if incarnation == 0 {
            assert_eq!(endpoint.cancel(never)?, None);
            return Ok(End::Killed);
        }
        let mut communicator = FailStop::new(endpoint);
        assert!(matches!(communicator.send(7, 0, b""), Err(Error::Call(_))));
        communicator.send(0, 0, b"x")?;
        communicator.check()?;
        assert!(matches!(communicator.wait(never), Err(Error::DivergedCancel { .. })));
        assert!(matches!(communicator.recv(Some(0), Some(0)), Err(Error::Failed { .. })));
        communicator.check()?;
        unreachable!();
    });
    let said = ran.unwrap_err().to_string();
    assert!(said.starts_with("an earlier call failed: the re-execution of this rank diverged"), "{said}");
}

#[test]
fn a_repetition_that_waits_for_a_cancelled_receive_is_an_error() {
    let ran = ThreadJob::new(RankSettings { ranks: 1, ..settings(Tier::Volatile) }).run(|endpoint, incarnation| {
        let never = endpoint.irecv(None, Some(7))?;
        if incarnation == 0 {
            assert_eq!(endpoint.cancel(never)?, None);
            return Ok(End::Killed);
        }
        endpoint.wait(never)?;
        Ok(End::Result(Vec::new()))
    });
    assert!(matches!(ran, Err(Error::DivergedCancel { request: 0 })), "{ran:?}");
}

#[test]
fn many_polls_are_one_record_and_are_repeated() {
    const POLLS: u64 = 100_000;
    // 10 bytes for a poll.
    let settings = RankSettings { local_log_bytes_max: 1 << 20, ..settings(Tier::ProcessCrashSafe) };
    // After the question was sent, and once more in the midst of the polls.
    let deaths = [(0, 0, POLLS + 3), (0, 1, POLLS / 2)];
    run_program(settings, &deaths, |comm| {
        match comm.rank() {
            0 => {
                let answer = comm.irecv(Some(1), Some(1))?;
                // In a repetition the answer may be there from the start.
                for _ in 0..POLLS {
                    assert!(!comm.test(&answer)?);
                }
                comm.send(1, 2, &[])?;
                comm.wait(answer)?;
            }
            1 => {
                comm.recv(Some(0), Some(2))?;
                comm.send(0, 1, &[])?;
            }
            _ => {}
        }
        Ok(Vec::new())
    });
}

/// Runs the program; the incarnations in `deaths`, as (rank, incarnation, call), die before that call.
///
/// Returns the number of calls by each rank's last incarnation.
fn run(settings: RankSettings, checkpoints: bool, deaths: &[(u32, u32, u64)]) -> Vec<u64> {
    let (results, calls, _) = run_program(settings, deaths, |comm| program(comm, checkpoints));
    assert!(results.iter().all(|result| *result == [ROUNDS as u8]));
    calls
}

/// Kills each rank before each of its calls in turn, and two replacements some calls later.
fn a_rank_may_die_before_each_of_its_calls(rule: Rule) {
    for (tier, checkpoints) in [(Tier::Volatile, false), (Tier::ProcessCrashSafe, true)] {
        let settings = RankSettings { rule, ..settings(tier) };
        let calls = run(settings.clone(), checkpoints, &[]);
        for rank in 0..RANKS {
            for call in (0..calls[rank as usize]).step_by(stride()) {
                run(settings.clone(), checkpoints, &[(rank, 0, call), (rank, 1, 20), (rank, 2, 30)]);
            }
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
