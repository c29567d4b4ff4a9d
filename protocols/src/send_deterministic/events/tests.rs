use super::super::harness::{A, B, acknowledged, checkpoint, envelope, pair, rank, send};
use super::*;

#[test]
fn a_rank_begins_in_its_first_checkpoint_and_counts_epochs() {
    let (mut a, _) = pair();
    let first = a.first_checkpoint().unwrap();
    assert_eq!((a.epoch(), first.epoch), (Epoch(1), Epoch(1)));
    let mut again = rank(A, 1);
    again.restore(&first.tables, Epoch::FIRST).unwrap();
    checkpoint(&mut a);
    assert_eq!(a.epoch(), Epoch(2));
}

#[test]
fn the_acknowledgement_of_a_deferred_message_is_taken_at_once() {
    let (mut a, mut b) = pair();
    let _ = b.handle_message(&send(&mut a, A, B)).unwrap();
    let answer = send(&mut b, B, A);
    a.handle_deferred(&answer).unwrap();
    assert_eq!(acknowledged(&mut a), [1]);
    let misdirected = send(&mut a, A, B);
    assert!(a.handle_deferred(&misdirected).is_err());
}

#[test]
fn choices_are_numbered_and_free() {
    let mut a = rank(A, 0);
    let determinant = |sequence| Determinant { sequence, source: B, ssn: Ssn::FIRST };
    assert_eq!(a.handle_choice(determinant(0)), Err(ChoiceError::NotOpen { sequence: 0 }));
    for sequence in 0..3 {
        assert_eq!(a.next_choice(), NextChoice { sequence, forced: None });
        assert_eq!(a.handle_choice(determinant(sequence)), Ok(None));
        assert_eq!(a.handle_choice(determinant(sequence + 1)), Err(ChoiceError::NotOpen { sequence: sequence + 1 }));
    }
    assert!(a.handle_recovered_choice(&[1]).is_err());
}

#[test]
fn a_rank_that_has_done_something_is_not_restored() {
    let tables = rank(A, 0).start().tables;
    let mut sent = rank(A, 1);
    let _ = sent.handle_send(&envelope(A, B)).unwrap();
    let mut counted = rank(A, 1);
    checkpoint(&mut counted);
    for mut used in [sent, counted] {
        assert_eq!(used.restore(&tables, Epoch::FIRST), Err(RestoreError::NotFresh));
    }
}

/// The recovery process must hear of a known rank, even if nothing was sent to it; and of nothing sent.
#[test]
fn a_lost_rank_counts_as_met() {
    let mut a = rank(A, 0);
    a.handle_peer_lost(B).unwrap();
    assert_eq!((a.table().peers, a.table().channels), (vec![1], Vec::new()));
    let stranger = Rank(2);
    assert_eq!(a.handle_peer_lost(stranger), Err(ProtocolError::UnknownRank { rank: stranger, ranks: 2 }));
}
