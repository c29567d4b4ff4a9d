//! The pessimistic rule over real sockets: programs whose sends depend on their receive order, and die before each of
//! their calls.

use super::*;
use crate::endpoint::wait::Wait;
use counterfoil_protocols::pessimistic;

const TIERS: [Tier; 3] = [Tier::Volatile, Tier::ProcessCrashSafe, Tier::NodeLocal];

fn pessimistic(tier: Tier) -> RankSettings {
    RankSettings { rule: pessimistic::RULE, ..settings(tier) }
}

#[test]
fn the_program_of_the_plain_rule_runs_on_all_tiers() {
    let (expected, _, plain) = run(settings(Tier::Volatile), false, &[]);
    for tier in TIERS {
        for checkpoints in [false, true] {
            let (results, _, tally) = run(pessimistic(tier), checkpoints, &[]);
            assert_eq!(results, expected, "{tier:?} {checkpoints}");
            // Every message is received and recorded, also from ranks to themselves.
            assert_eq!(tally.determinants_logged, tally.messages_logged);
            assert_eq!(tally.determinant_bytes, 20 * tally.determinants_logged);
            // Under this rule only non-blocking tests and probes are choices.
            assert!(tally.choices_logged < plain.choices_logged, "{tally:?} {plain:?}");
        }
    }
    assert_eq!(plain.determinants_logged, 0);
}

#[test]
fn a_rank_may_die_before_each_of_its_calls() {
    let settings = pessimistic(Tier::ProcessCrashSafe);
    let (expected, calls, _) = run(settings.clone(), true, &[]);
    for rank in 0..RANKS {
        for call in (0..calls[rank as usize]).step_by(stride()) {
            let (results, _, _) = run(settings.clone(), true, &[(rank, 0, call)]);
            assert_eq!(results, expected, "rank {rank} died before call {call}");
        }
    }
}

#[test]
fn all_may_die_and_die_again() {
    let (expected, calls, _) = run(settings(Tier::Volatile), false, &[]);
    let mut next = places();
    for tier in TIERS {
        for checkpoints in [false, true] {
            for _ in 0..scaled(5) {
                let mut deaths = Vec::new();
                for rank in 0..RANKS {
                    deaths.extend((0..3).map(|incarnation| (rank, incarnation, next(calls[rank as usize]))));
                }
                let (results, _, _) = run(pessimistic(tier), checkpoints, &deaths);
                assert_eq!(results, expected, "{tier:?} {checkpoints} {deaths:?}");
            }
        }
    }
}

/// Rank 0 broadcasts a hash of its receive order, and the others send it back with their next message.
///
/// Runs may differ, but within a run all ranks must end with the same hash, whatever dies.
fn hash_the_receive_order(comm: &mut dyn Communicator) -> Result<Vec<u8>, Error> {
    const MESSAGES: u64 = 6;
    let (rank, size) = (comm.rank(), comm.size());
    let mut order = 0u64;
    for round in 1..=MESSAGES {
        comm.iteration(round)?;
        if rank > 0 {
            comm.send(0, 1, &order.to_le_bytes())?;
            order = number(&comm.recv(Some(0), Some(2))?.1);
            continue;
        }
        // A message to itself: its position is part of the order.
        comm.send(0, 1, &order.to_le_bytes())?;
        for _ in 0..size {
            let (status, bytes) = comm.recv(ANY_SOURCE, ANY_TAG)?;
            order = order.wrapping_mul(31).wrapping_add(u64::from(status.source) + 1) ^ number(&bytes).rotate_left(9);
        }
        (1..size).try_for_each(|to| comm.send(to, 2, &order.to_le_bytes()))?;
    }
    Ok(order.to_le_bytes().to_vec())
}

#[test]
fn a_program_whose_sends_depend_on_the_receive_order_is_repeated_exactly() {
    for tier in TIERS {
        for call in (0..60).step_by(4 * stride()) {
            let deaths = [(0, 0, call), (0, 1, call / 2), (2, 0, call % 7)];
            let (results, _, tally) = run_program(pessimistic(tier), &deaths, |comm| hash_the_receive_order(comm));
            assert!(results.iter().all(|result| *result == results[0]), "{tier:?} deaths {deaths:?}: {results:?}");
            assert_eq!(tally.choices_logged, 0, "a wildcard receive is no choice of its own");
        }
    }
}

/// While an early message is held, its predecessor in the recorded order is read, however many of that sender's
/// messages are unexpected.
#[test]
fn a_held_message_does_not_block_reading_its_predecessor() {
    let settings = RankSettings {
        unexpected_bytes_max: 150_000,
        log_bytes_max: 64 << 20,
        ranks: 3,
        ..pessimistic(Tier::Volatile)
    };
    let job = ThreadJob::new(settings);
    let large = vec![7; 100_000];
    let ran = job.run(|endpoint, incarnation| {
        match endpoint.rank() {
            0 => {
                if incarnation == 0 {
                    // This incarnation may read more, and does, before it lets rank 2 send.
                    endpoint.settings.unexpected_bytes_max = 64 << 20;
                    while endpoint.matching.unexpected_bytes(1) < 1_000_000 {
                        endpoint.progress(Wait::Forever)?;
                    }
                }
                endpoint.send(2, 3, b"")?;
                endpoint.recv(Some(2), Some(4))?;
                if incarnation == 0 {
                    return Ok(End::Killed);
                }
                assert!(endpoint.matching.unexpected_bytes(1) == 1_000_000);
                (0..10).try_for_each(|_| endpoint.recv(Some(1), Some(8)).map(drop))?;
            }
            1 => (0..10).try_for_each(|_| endpoint.send(0, 8, &large))?,
            _ => {
                endpoint.recv(Some(0), Some(3))?;
                endpoint.send(0, 4, b"")?;
            }
        }
        Ok(End::Result(Vec::new()))
    });
    let (_, tally) = ran.unwrap();
    // Both incarnations receive the message from rank 2.
    assert_eq!(tally.messages_delivered, 13);
    assert!(judge(&job.timelines()).is_clean());
}
