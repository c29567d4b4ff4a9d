//! Checkpoints, their coverage, and their tables.

use super::*;

#[test]
fn only_a_durable_checkpoint_covers() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    receive_all(&mut b, &send_many(&mut a, B, 2));
    let snapshot = b.handle_checkpoint().unwrap();
    assert!(effects(&mut b).is_empty());
    receive_all(&mut b, &send_many(&mut a, B, 1));
    b.handle_checkpoint_durable(snapshot.epoch).unwrap();
    let notices = notices(&effects(&mut b));
    assert_eq!(notices.len(), 1, "nothing for a peer that has sent nothing");
    a.handle_control(Party::Rank(B), &notices[0].1, &notices[0].2).unwrap();
    assert_eq!(covered(&effects(&mut a)), [(B, Ssn(2))], "not what was received after the snapshot");
    a.handle_control(Party::Rank(B), &notices[0].1, &notices[0].2).unwrap();
    assert!(effects(&mut a).is_empty(), "no news");
}

#[test]
fn a_checkpoint_that_covers_nothing_new_is_not_announced() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    receive_all(&mut b, &send_many(&mut a, B, 2));
    let announced = [durable_checkpoint(&mut b).1, durable_checkpoint(&mut b).1].map(|done| notices(&done).len());
    assert_eq!(announced, [1, 0]);
}

#[test]
fn a_lost_notice_is_made_good_by_the_next_hello() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    receive_all(&mut b, &send_many(&mut a, B, 2));
    let (tables, _lost) = durable_checkpoint(&mut b);
    let (from_a, _) = meet(&mut a, &mut restored(B, 1, &tables));
    assert_eq!(covered(&from_a), [(B, Ssn(2))]);
}

#[test]
fn coverage_beyond_what_was_sent_again_is_reported_as_it_is_sent_again() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    receive_all(&mut b, &send_many(&mut a, B, 3));
    durable_checkpoint(&mut b);

    let mut a = rank(A, 1);
    let (from_a, _) = meet(&mut a, &mut b);
    assert_eq!((covered(&from_a), replays_after(&from_a, B)), (vec![], Some(Ssn(3))));
    let envelope = Envelope { source: A, destination: B, ..Envelope::default() };
    let _ = a.handle_send(&envelope).unwrap();
    assert!(effects(&mut a).is_empty(), "the record isn't in the log yet");
    let _ = a.handle_send(&envelope).unwrap();
    assert_eq!(covered(&effects(&mut a)), [(B, Ssn(1))]);
}

#[test]
fn a_rank_covers_what_it_sent_to_itself() {
    let mut a = rank(A, 0);
    let messages = send_many(&mut a, A, 2);
    receive_all(&mut a, &messages);
    assert_eq!(acknowledged(&effects(&mut a)), [Ssn(1), Ssn(2)]);
    let (_, done) = durable_checkpoint(&mut a);
    assert_eq!(covered(&done), [(A, Ssn(2))]);
    assert!(control_frames(&done).is_empty());
}

#[test]
fn a_checkpoint_is_named_by_the_epoch_that_it_begins() {
    let mut a = rank(A, 0);
    let snapshot = a.handle_checkpoint().unwrap();
    assert_eq!((snapshot.epoch, a.epoch()), (Epoch(2), Epoch(2)));
    assert_eq!(restored(A, 1, &snapshot.tables).epoch(), Epoch(2));
    assert_eq!(a.handle_checkpoint_durable(Epoch(3)), Err(ProtocolError::NotCheckpointing { epoch: Epoch(3) }));
}

/// Returns tables with every field in use.
fn tables() -> Vec<u8> {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    let messages = send_many(&mut a, B, 4);
    receive_all(&mut b, &[messages[0], messages[3]]);
    receive_all(&mut a, &send_many(&mut b, A, 2));
    durable_checkpoint(&mut b);
    durable_checkpoint(&mut b).0
}

#[test]
fn tables_of_another_rank_job_or_version_are_refused() {
    let tables = tables();
    let other_rank = RestoreError::OtherRank { found: B, expected: A };
    assert_eq!(rank(A, 1).restore(&tables, Epoch::FIRST), Err(other_rank));
    let policy = AckPolicy::default();
    let mut larger = SenderBased::new(Config { rank: B, ranks: 4, incarnation: Incarnation(1), policy }).unwrap();
    assert_eq!(larger.restore(&tables, Epoch::FIRST), Err(RestoreError::OtherJob { found: 3, expected: 4 }));
    let mut other_version = tables.clone();
    other_version[0] = 9;
    assert_eq!(rank(B, 1).restore(&other_version, Epoch::FIRST), Err(RestoreError::Version { found: 9, expected: 1 }));
    let mut busy = rank(B, 1);
    let _ = send(&mut busy, A);
    assert_eq!(busy.restore(&tables, Epoch::FIRST), Err(RestoreError::NotFresh));
    let mut twice = restored(B, 1, &tables);
    assert_eq!(twice.restore(&tables, Epoch::FIRST), Err(RestoreError::NotFresh));
}

#[test]
fn tables_are_restored_only_into_a_rank_that_has_done_nothing() {
    let tables = tables();
    let refuses = |mut b: SenderBased| b.restore(&tables, Epoch::FIRST) == Err(RestoreError::NotFresh);
    assert!(!refuses(rank(B, 1)));

    let mut received = rank(B, 1);
    receive_all(&mut received, &send_many(&mut rank(A, 0), B, 1));
    assert!(refuses(received));

    // B has sent nothing again yet, and hears that A's checkpoint covers what its predecessor sent.
    let (mut a, mut covered) = (rank(A, 0), rank(B, 1));
    receive_all(&mut a, &send_many(&mut rank(B, 0), A, 1));
    durable_checkpoint(&mut a);
    meet(&mut a, &mut covered);
    assert!(refuses(covered));

    let mut in_a_later_epoch = rank(B, 1);
    durable_checkpoint(&mut in_a_later_epoch);
    assert!(refuses(in_a_later_epoch));

    let mut chosen = rank(B, 1);
    let _ = chosen.next_choice();
    assert!(refuses(chosen));

    let mut recovered = rank(B, 1);
    let choice = Determinant { sequence: 0, source: A, ssn: Ssn(1) };
    recovered.handle_recovered_choice(&ChoiceRecord::new(choice).bytes).unwrap();
    assert!(refuses(recovered));
}

#[test]
fn damaged_tables_are_refused_or_consistent_and_never_half_restored() {
    let tables = tables();
    for cut in 0..tables.len() {
        assert!(rank(B, 1).restore(&tables[..cut], Epoch::FIRST).is_err(), "cut at {cut}");
    }
    let longer = [tables.as_slice(), &[0]].concat();
    assert_eq!(rank(B, 1).restore(&longer, Epoch::FIRST), Err(RestoreError::Malformed { len: longer.len() }));
    for at in 0..tables.len() {
        for bit in 0..8 {
            let mut damaged = tables.clone();
            damaged[at] ^= 1 << bit;
            let mut b = rank(B, 1);
            match b.restore(&damaged, Epoch::FIRST) {
                // The owner of the tables checks checksums; here it is enough that no impossible state gets in.
                Ok(()) => assert!(b.handle_checkpoint().is_ok() || b.epoch() == Epoch::MAX),
                Err(_) => assert!(b.restore(&tables, Epoch::FIRST).is_ok(), "a refusal leaves it fresh"),
            }
        }
    }
}

#[test]
fn messages_have_the_incarnation_and_the_epoch_of_their_rank() {
    let (mut a, b) = (rank(A, 3), rank(B, 0));
    a.handle_hello(B, &b.hello(A).unwrap()).unwrap();
    let first = a.handle_send(&Envelope { source: A, destination: B, tag: 0, comm: 0, len: 8 }).unwrap().header;
    durable_checkpoint(&mut a);
    let second = a.handle_send(&Envelope { source: A, destination: B, tag: 0, comm: 0, len: 8 }).unwrap().header;
    let origins = [first, second].map(|header| (header.incarnation(), header.epoch()));
    assert_eq!(origins, [(Incarnation(3), Epoch(1)), (Incarnation(3), Epoch(2))]);
    assert_eq!((a.sent(B), a.sent(A)), (Ssn(2), Ssn::ZERO));
}

#[test]
fn choices_are_counted_through_checkpoints() {
    let mut a = rank(A, 0);
    for counted in 0..3 {
        assert_eq!(a.choices(), counted);
        let sequence = a.next_choice().sequence;
        a.handle_choice(Determinant { sequence, source: B, ssn: Ssn(1) }).unwrap();
    }
    // An undecided one is made again.
    let _ = a.next_choice();
    let (tables, _) = durable_checkpoint(&mut a);
    assert_eq!(restored(A, 1, &tables).choices(), 3);
}

#[test]
fn a_checkpoint_counts_no_call_after_an_undecided_one() {
    let mut a = rank(A, 0);
    let sequences = [(); 3].map(|()| a.next_choice().sequence);
    a.handle_choice(Determinant { sequence: sequences[2], source: B, ssn: Ssn(1) }).unwrap();
    assert_eq!(a.handle_checkpoint(), Err(ProtocolError::ChoicesOpen { open: 2 }));
    a.handle_choice(Determinant { sequence: sequences[0], source: B, ssn: Ssn(2) }).unwrap();
    assert_eq!(a.handle_checkpoint(), Err(ProtocolError::ChoicesOpen { open: 1 }));
    a.handle_choice(Determinant { sequence: sequences[1], source: B, ssn: Ssn(3) }).unwrap();
    assert_eq!(a.handle_checkpoint().unwrap().epoch, Epoch(2));
}

/// Rules with their own state have separate tests for this.
#[test]
fn a_rule_without_a_local_log_refuses_its_entries_and_sends_collectives_as_messages() {
    let mut a = rank(A, 0);
    let entry = EntryKey { kind: EntryKind::Note, number: 3 };
    assert_eq!(a.handle_recovered_entry(entry, &[]), Err(ProtocolError::UnexpectedEntry { entry }));
    assert_eq!(a.handle_entry(B, entry, &[]), Err(ProtocolError::UnexpectedEntry { entry }));
    assert_eq!(a.handle_log_sealed(Epoch(2)), Err(ProtocolError::NotSealing { epoch: Epoch(2) }));
    let call = CollectiveCall { class: CollectiveClass::AllToAll, comm: 0, number: 0, uniform: true };
    assert_eq!(a.handle_collective(&call), Ok(CollectivePlan::AsMessages));
    assert!(a.is_running() && !a.is_recovering() && a.first_checkpoint().is_none());
}
