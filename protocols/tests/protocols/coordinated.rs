//! Statements about the coordinated rule, each shown on two state machines and their initiator, without a network.

mod calls;
mod initiator;
mod job;

use counterfoil_ack_piggyback::Flags;
use counterfoil_log_core::{Determinant, Epoch, Rank, Ssn};
use counterfoil_protocols::api::{
    DiscardReason, Effect, EntryKey, EntryKind, Incoming, Inspect, Misbehaviour, Protocol, ProtocolError, RestoreError,
    Transmission,
};
use counterfoil_protocols::coordinated::{Config, Coordinated};

use job::{A, B, Job, PLAIN, config};

#[test]
fn a_late_message_is_logged_and_comes_back_and_an_early_one_is_not_sent_again() {
    let mut job = Job::new();
    job.begin_line();
    let (late, _) = job.send(A, B);
    job.checkpoint(B);
    let (early, _) = job.send(B, A);
    assert_eq!(job.deliver(&early), PLAIN);
    job.checkpoint(A);
    assert_eq!(job.initiator.open_line(), Some((Epoch(2), vec![A, B])));
    let entry = EntryKey { kind: EntryKind::Message, number: 2 << 32 };
    assert_eq!(job.deliver(&late), Incoming::Deliver { keep: Some(entry) });
    job.settle();
    assert_eq!((job.initiator.open_line(), job.ranks[0].committed()), (None, Epoch(2)));

    job.kill(A);
    job.settle();
    assert!(job.ranks.iter().all(Protocol::is_running));
    assert_eq!(job.ranks[1].hello(A).unwrap().received.upto(), late.ssn(), "the log has it");
    let (again, transmission) = job.send(B, A);
    assert_eq!((again.ssn(), transmission), (early.ssn(), Transmission::Suppress));
    assert_eq!(job.send(B, A).1, Transmission::Now);
}

#[test]
fn logging_ends_with_the_first_message_of_a_rank_that_has_ended_it() {
    let mut job = Job::new();
    job.begin_line();
    job.checkpoint(A);
    // B has A's counts, and is ready: only the order to stop doesn't come.
    job.deaf = Some(B);
    job.checkpoint(B);
    let phases = |job: &Job| [job.ranks[0].phase_of_line(), job.ranks[1].phase_of_line()];
    assert_eq!(phases(&job), [4, 3], "A has stopped, B logs");
    let before = job.rank(B).next_choice().sequence;
    let (message, _) = job.send(A, B);
    assert!(!message.flags().contains(Flags::AM_LOGGING));
    assert_eq!(job.deliver(&message), PLAIN);
    assert_eq!(phases(&job), [4, 4]);
    // Nothing dependent on the message is in the log; the order, when it comes, changes nothing.
    job.rank(B).handle_choice(Determinant { sequence: before, source: A, ssn: message.ssn() }).unwrap();
    job.deaf = None;
    job.settle();
    assert_eq!(job.ranks[1].committed(), Epoch(2));
    job.kill(B);
    job.settle();
    assert_eq!(job.rank(B).next_choice().forced, None);
}

#[test]
fn outcomes_are_forced_as_far_as_they_were_logged() {
    let mut job = Job::new();
    job.begin_line();
    job.checkpoint(B);
    let choices = [0, 1].map(|_| job.rank(B).next_choice().sequence);
    let outcome = |sequence, ssn| Determinant { sequence, source: A, ssn: Ssn(ssn) };
    assert_eq!(job.rank(B).handle_choice(outcome(choices[0], 7)), Ok(None));
    job.checkpoint(A);
    assert_eq!(job.ranks[1].committed(), Epoch(2));
    assert_eq!(job.rank(B).handle_choice(outcome(choices[1], 8)), Ok(None));
    job.begin_line();
    job.kill(A);
    job.settle();
    // No checkpoint is taken with a part of the log still to be repeated.
    job.begin_line();
    assert!(job.ranks[0].wants_checkpoint() && !job.ranks[1].wants_checkpoint());
    let forced = [0, 1].map(|_| job.rank(B).next_choice().forced);
    assert_eq!(forced, [Some(outcome(choices[0], 7)), None]);
    assert!(job.ranks[1].wants_checkpoint());
}

#[test]
fn messages_of_an_undone_execution_are_dropped_and_early_ones_of_the_next_held() {
    let mut job = Job::new();
    let (undone, _) = job.send(A, B);
    job.kill(A);
    assert_eq!(job.rank(B).handle_message(&undone), Ok(PLAIN), "it isn't known yet");
    job.settle();
    let dropped = job.rank(B).handle_message(&undone);
    assert!(matches!(dropped, Ok(Incoming::Discard(DiscardReason::DeadIncarnation { .. }))), "{dropped:?}");
    let (message, _) = job.send(A, B);
    assert_eq!(job.deliver(&message), PLAIN);
    let again = job.rank(B).handle_message(&message);
    assert!(matches!(again, Ok(Incoming::Discard(DiscardReason::Duplicate { .. }))), "{again:?}");
    // A replacement not yet aware of the line holds messages.
    let mut fresh = Coordinated::new(config(B, 2)).unwrap();
    assert_eq!(fresh.handle_message(&message), Ok(Incoming::Hold));
}

#[test]
fn a_message_that_no_open_line_allows_is_refused() {
    let mut job = Job::new();
    let (before, _) = job.send(A, B);
    job.begin_line();
    job.checkpoint(B);
    job.checkpoint(A);
    assert!(matches!(job.deliver(&before), Incoming::Deliver { keep: Some(_) }));
    job.settle();
    assert_eq!(job.ranks[1].committed(), Epoch(2));
    let (sent_in, received_in) = (Epoch(1), Epoch(2));
    let how = Misbehaviour::OutOfLine { sent_in, received_in };
    assert_eq!(job.rank(B).handle_message(&before), Err(ProtocolError::PeerMisbehaved { peer: A, how }));
}

#[test]
fn a_checkpoint_is_durable_once_and_its_log_sealed_once() {
    let mut job = Job::new();
    let refused = |epoch| Err(ProtocolError::NotCheckpointing { epoch: Epoch(epoch) });
    assert_eq!(job.rank(A).handle_checkpoint_durable(Epoch(1)), refused(1));
    job.begin_line();
    let snapshot = job.rank(A).handle_checkpoint().unwrap();
    assert_eq!(job.rank(A).handle_checkpoint_durable(Epoch(1)), refused(1));
    assert_eq!(job.rank(A).handle_checkpoint_durable(snapshot.epoch), Ok(()));
    assert_eq!(job.rank(A).handle_checkpoint_durable(snapshot.epoch), refused(2));
    job.checkpoints[0].insert(snapshot.epoch, snapshot.tables);
    job.checkpoint(B);
    assert_eq!(job.states(), [(Epoch(2), Epoch(2), 0, true); 2]);
    for epoch in [1, 2, 3] {
        job.rank(A).handle_log_sealed(Epoch(epoch)).unwrap();
        assert!(job.rank(A).poll_effect().is_none(), "the log of {epoch} isn't being sealed");
    }
}

/// The process died after it noted the commit, and before it dropped the older checkpoint.
#[test]
fn a_note_tells_the_committed_line_and_the_incarnation_grows_with_each_rollback() {
    let mut job = Job::new();
    let start = job.checkpoints[0][&Epoch(1)].clone();
    job.commit_line();
    job.checkpoints[0].insert(Epoch(1), start);
    let survivor = job.ranks[1].incarnation();
    job.kill(A);
    assert_eq!(job.ranks[0].committed(), Epoch(2));
    job.settle();
    let after = job.ranks[1].incarnation();
    assert!(after > survivor, "{survivor:?} {after:?}");
    job.kill(A);
    job.settle();
    assert!(job.ranks[1].incarnation() > after);
}

#[test]
fn records_from_before_the_line_are_released_once_after_a_restart() {
    let mut job = Job::new();
    let released = |job: &mut Job| {
        let effects: Vec<_> = std::iter::from_fn(|| job.rank(B).poll_effect()).collect();
        effects.iter().filter(|effect| matches!(effect, Effect::Acknowledged { .. })).count()
    };
    let hello = job.rank(A).hello(B).unwrap();
    job.rank(B).handle_hello(A, &hello).unwrap();
    assert_eq!(released(&mut job), 0, "no message precedes the start");
    let (message, _) = job.send(B, A);
    assert_eq!(job.deliver(&message), PLAIN);
    job.commit_line();
    let tables = job.checkpoints[1][&Epoch(2)].clone();
    job.rank(B).restore(&tables, Epoch(2)).unwrap();
    for expected in [1, 0] {
        let hello = job.rank(A).hello(B).unwrap();
        job.rank(B).handle_hello(A, &hello).unwrap();
        assert_eq!(released(&mut job), expected);
    }
}

#[test]
fn a_record_of_another_rank_is_not_transmitted() {
    let mut job = Job::new();
    let (mut header, _) = job.send(A, B);
    let (sent, epoch) = (header, job.ranks[0].epoch());
    job.rank(A).handle_transmit(&mut header).unwrap();
    assert_eq!((header.as_bytes(), epoch), (sent.as_bytes(), Epoch(1)), "unchanged");
    assert!(job.rank(B).handle_transmit(&mut header).is_err());
    let refused = job.rank(A).handle_recovered_choice(&[1, 2]);
    assert!(refused.is_err(), "outcomes are in the log: {refused:?}");
}

#[test]
fn a_connection_in_a_job_without_an_open_line_tells_no_counts_and_releases_nothing() {
    let mut job = Job::new();
    let mut fresh = Coordinated::new(config(A, 0)).unwrap();
    let hello = job.rank(B).hello(A).unwrap();
    for rank in [&mut fresh, job.rank(A)] {
        rank.handle_hello(B, &hello).unwrap();
        let effects: Vec<_> = std::iter::from_fn(|| rank.poll_effect()).collect();
        assert!(effects.iter().all(|effect| matches!(effect, Effect::Replay { .. })), "{effects:?}");
    }
}

#[test]
fn tables_of_another_version_rank_or_job_are_refused() {
    let tables = Coordinated::new(config(A, 0)).unwrap().first_checkpoint().unwrap().tables;
    let restore = |rank: Rank, ranks: u32, tables: &[u8]| {
        Coordinated::new(Config { ranks, ..config(rank, 1) }).unwrap().restore(tables, Epoch::FIRST)
    };
    assert_eq!(restore(A, 2, &tables), Ok(()));
    assert_eq!(restore(B, 2, &tables), Err(RestoreError::OtherRank { found: A, expected: B }));
    assert_eq!(restore(A, 3, &tables), Err(RestoreError::OtherJob { found: 2, expected: 3 }));
    let len = tables.len();
    let other = [&[9][..], &tables[1..]].concat();
    assert_eq!(restore(A, 2, &other), Err(RestoreError::Version { found: 9, expected: 1 }));
    assert_eq!(restore(A, 2, &tables[..len - 1]), Err(RestoreError::Malformed { len: len - 1 }));
}
