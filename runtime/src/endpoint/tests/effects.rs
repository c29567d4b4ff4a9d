//! Effects that may leave a job's end unchanged: a suppressed send, a repeated call, local log entries, and a
//! checkpoint requested by the rule.

use std::sync::{Arc, Mutex};

use super::by_tag::{ASK, ASK_IN_CALL, ByTag, COPIED, DISCARD, KEEP, REPEAT, SUPPRESS, entries};
use super::*;
use crate::communicator::CollectiveSubstrate;

/// Runs a program on three ranks under the rule.
///
/// `program` returns `false` for a rank that dies.
fn run(
    rule: ByTag,
    program: impl Fn(&mut crate::local::testing::ThreadEndpoint, u32) -> Result<bool, Error> + Sync,
) -> Tally {
    let job = ThreadJob::under(rule.rule(), settings(Tier::ProcessCrashSafe));
    let ran = job
        .run(|comm, incarnation| Ok(if program(comm, incarnation)? { End::Result(Vec::new()) } else { End::Killed }));
    ran.unwrap().1
}

/// Rank 1 has a message from rank 2, sent after the suppressed one, and finds nothing from rank 0.
#[test]
fn a_send_that_is_suppressed_never_arrives() {
    let tally = run(ByTag::default(), |comm, _| {
        match comm.rank() {
            0 => {
                comm.send(1, SUPPRESS, b"never")?;
                comm.send(2, 1, b"")?;
            }
            1 => {
                comm.recv(Some(2), Some(1))?;
                assert_eq!(comm.iprobe(Some(0), ANY_TAG)?, None);
            }
            _ => {
                comm.recv(Some(0), Some(1))?;
                comm.send(1, 1, b"")?;
            }
        }
        Ok(true)
    });
    assert_eq!(tally.sends_suppressed, 1);
}

/// Rank 2's program counts the first call without making it, like one restored beyond it.
#[test]
fn a_rank_takes_part_once_more_in_a_call_that_its_program_does_not_make() {
    let tally = run(ByTag::default(), |comm, _| {
        if comm.rank() == 2 {
            comm.send(1, REPEAT, b"")?;
            let _ = comm.begin_collective();
        } else {
            assert_eq!(comm.bcast(0, b"first")?, &b"first"[..]);
        }
        assert_eq!(comm.bcast(0, b"second")?, &b"second"[..]);
        if comm.rank() == 1 {
            comm.recv(Some(2), Some(REPEAT))?;
        }
        Ok(true)
    });
    assert_eq!((tally.collectives_repeated, tally.collectives), (1, 5));
}

#[test]
fn a_replacement_is_given_the_entries_that_were_not_discarded_and_receives_the_messages_among_them() {
    let rule = ByTag::default();
    let recovered = Arc::clone(&rule.recovered);
    run(rule, |comm, incarnation| {
        if comm.rank() != 1 {
            return Ok(true);
        }
        if incarnation == 0 {
            (1..5).try_for_each(|number| comm.send(2, KEEP, &vec![0; number]))?;
            comm.send(2, DISCARD, &[0; 2])?;
            return Ok(false);
        }
        for number in 3..5_u64 {
            assert_eq!(comm.recv(Some(0), Some(COPIED))?.1, &number.to_le_bytes()[..]);
        }
        assert_eq!(comm.iprobe(Some(0), ANY_TAG)?, None);
        Ok(true)
    });
    let expected = [3, 4].map(entries);
    assert_eq!(*recovered.lock().unwrap(), [expected[0][0], expected[1][0], expected[0][1], expected[1][1]]);
}

/// Runs a job in which rank 0's rule asks for a checkpoint before a receive that waits, while another receive is open.
///
/// `posted_first`: that one was posted before sending the message with which the rule asks. Rank 0 dies after the
/// waiting receive, and its replacement posts the other one again. Returns rank 0's steps in which its state was
/// requested.
fn ask_with_an_open_receive(posted_first: bool) -> Vec<u8> {
    let asked = Arc::new(Mutex::new(Vec::new()));
    run(ByTag::default(), |comm, incarnation| {
        match comm.rank() {
            0 => {
                let (step, steps) = (Arc::new(Mutex::new(0)), Arc::clone(&asked));
                let present = Arc::clone(&step);
                comm.provide_state(Box::new(move || {
                    let step = *present.lock().unwrap();
                    steps.lock().unwrap().push(step);
                    vec![step]
                }));
                let first = if comm.restore()?.is_some_and(|state| *state == [1]) {
                    comm.irecv(Some(1), Some(1))?
                } else if posted_first {
                    let first = comm.irecv(Some(1), Some(1))?;
                    comm.send(1, ASK, b"")?;
                    first
                } else {
                    comm.send(1, ASK, b"")?;
                    comm.irecv(Some(1), Some(1))?
                };
                *step.lock().unwrap() = 1;
                assert_eq!(comm.recv(Some(2), Some(2))?.1, &b"second"[..]);
                *step.lock().unwrap() = 2;
                if incarnation == 0 {
                    return Ok(false);
                }
                comm.send(1, 3, b"")?;
                assert_eq!(comm.wait(first)?.1, &b"first"[..]);
            }
            1 => {
                comm.recv(Some(0), Some(ASK))?;
                comm.send(2, 1, b"")?;
                comm.recv(Some(0), Some(3))?;
                comm.send(0, 1, b"first")?;
            }
            _ => {
                comm.recv(Some(1), Some(1))?;
                while !posted_first && asked.lock().unwrap().is_empty() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                comm.send(0, 2, b"second")?;
            }
        }
        Ok(true)
    });
    let asked = asked.lock().unwrap();
    asked.clone()
}

/// Requests keep their numbers: the receives reposted by a replacement are the last.
#[test]
fn a_checkpoint_is_taken_while_receives_are_open_that_were_posted_last() {
    assert_eq!(ask_with_an_open_receive(false), [1]);
}

#[test]
fn a_checkpoint_waits_for_a_receive_that_was_posted_before_another_request() {
    assert!(!ask_with_an_open_receive(true).contains(&1));
}

/// Runs a job in which a call on rank 0 waits for a checkpoint.
///
/// With `open`, rank 0 has a receive posted before one that is complete, and its message comes only after the call.
/// Returns the numbers of checkpoints taken and refused.
fn call_that_waits_for_a_checkpoint(open: bool, has_state: bool) -> (u64, u64) {
    let rule = ByTag::default();
    let refused = Arc::clone(&rule.refused);
    let tally = run(rule, |comm, _| {
        let mut values = [u64::from(comm.rank())];
        match comm.rank() {
            0 => {
                if has_state {
                    comm.provide_state(Box::new(Vec::new));
                }
                let first = if open { Some(comm.irecv(Some(1), Some(1))?) } else { None };
                comm.send(2, ASK_IN_CALL, b"")?;
                comm.recv(Some(2), Some(2))?;
                comm.allreduce_u64(&mut values, Reduction::Sum)?;
                if let Some(first) = first {
                    assert_eq!(comm.wait(first)?.1, &b"first"[..]);
                }
            }
            1 => {
                comm.allreduce_u64(&mut values, Reduction::Sum)?;
                if open {
                    comm.send(0, 1, b"first")?;
                }
            }
            _ => {
                comm.recv(Some(0), Some(ASK_IN_CALL))?;
                comm.send(0, 2, b"")?;
                comm.allreduce_u64(&mut values, Reduction::Sum)?;
            }
        }
        assert_eq!(values, [3]);
        Ok(true)
    });
    (tally.checkpoints_asked, refused.load(Ordering::Relaxed))
}

#[test]
fn a_call_that_waits_for_a_checkpoint_is_made_after_it() {
    assert_eq!(call_that_waits_for_a_checkpoint(false, true), (1, 0));
}

/// The open receive's message comes after the call: waiting for it would never end.
#[test]
fn a_call_is_made_without_the_checkpoint_that_an_open_receive_prevents() {
    assert_eq!(call_that_waits_for_a_checkpoint(true, true), (0, 1));
}

#[test]
fn a_call_is_made_without_the_checkpoint_of_a_program_that_cannot_give_its_state() {
    assert_eq!(call_that_waits_for_a_checkpoint(false, false), (0, 1));
}
