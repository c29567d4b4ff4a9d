//! Non-deterministic outcomes.

use super::*;

fn choice(sequence: u64, source: Rank, ssn: u64) -> Determinant {
    Determinant { sequence, source, ssn: Ssn(ssn) }
}

#[test]
fn a_choice_is_recorded_once_and_forced_in_call_order() {
    let mut a = rank(A, 0);
    let calls = [a.next_choice(), a.next_choice(), a.next_choice()];
    assert!(calls.iter().all(|call| call.forced.is_none()));
    // Decided in another order than called; the third is never decided.
    let second = a.handle_choice(choice(1, B, 7)).unwrap().unwrap();
    let first = a.handle_choice(choice(0, Rank(2), 4)).unwrap().unwrap();

    let mut a = rank(A, 1);
    for record in [second, first, second] {
        a.handle_recovered_choice(&record.bytes).unwrap();
    }
    assert_eq!(a.next_choice().forced, Some(choice(0, Rank(2), 4)));
    assert_eq!(a.handle_choice(choice(0, Rank(2), 4)), Ok(None), "it is in the log");
    assert_eq!(a.next_choice().forced, Some(choice(1, B, 7)));
    let diverged = ChoiceError::Diverged { forced: choice(1, B, 7), found: choice(1, B, 8) };
    assert_eq!(a.handle_choice(choice(1, B, 8)), Err(diverged));
    assert_eq!(a.next_choice().forced, None);
}

#[test]
fn an_empty_probe_is_a_choice_like_any_other() {
    let mut a = rank(A, 0);
    let _ = a.next_choice();
    let record = a.handle_choice(choice(0, A, 0)).unwrap().unwrap();
    let mut a = rank(A, 1);
    a.handle_recovered_choice(&record.bytes).unwrap();
    assert_eq!(a.next_choice().forced.map(|forced| forced.ssn), Some(Ssn::ZERO));
}

#[test]
fn a_checkpoint_covers_the_choices_before_it() {
    let mut a = rank(A, 0);
    let _ = a.next_choice();
    let old = a.handle_choice(choice(0, B, 1)).unwrap().unwrap();
    let (tables, done) = durable_checkpoint(&mut a);
    assert!(matches!(done.as_slice(), [Effect::DiscardChoices { before: 1, .. }]));

    let mut a = restored(A, 1, &tables);
    a.handle_recovered_choice(&old.bytes).unwrap();
    let next = a.next_choice();
    assert_eq!((next.sequence, next.forced), (1, None));
}

#[test]
fn a_checkpoint_waits_for_an_open_choice_before_a_decided_one() {
    let mut a = rank(A, 0);
    let (_, _) = (a.next_choice(), a.next_choice());
    assert!(a.handle_choice(choice(1, B, 2)).unwrap().is_some());
    assert_eq!(a.handle_checkpoint(), Err(ProtocolError::ChoicesOpen { open: 1 }));
    assert!(a.handle_choice(choice(0, B, 1)).unwrap().is_some());
    assert!(a.handle_checkpoint().is_ok());
}

#[test]
fn choices_that_are_open_at_a_checkpoint_are_made_again() {
    let mut a = rank(A, 0);
    let _ = a.next_choice();
    assert!(a.handle_choice(choice(0, B, 1)).unwrap().is_some());
    let (_, _) = (a.next_choice(), a.next_choice());
    let (tables, done) = durable_checkpoint(&mut a);
    assert!(matches!(done.as_slice(), [Effect::DiscardChoices { before: 1, .. }]));
    let record = a.handle_choice(choice(2, B, 2)).unwrap().unwrap();

    let mut a = restored(A, 1, &tables);
    a.handle_recovered_choice(&record.bytes).unwrap();
    let again: Vec<_> = (0..2).map(|_| a.next_choice()).map(|next| (next.sequence, next.forced)).collect();
    assert_eq!(again, [(1, None), (2, Some(choice(2, B, 2)))]);
}

#[test]
fn a_checkpoint_waits_until_recorded_choices_are_repeated() {
    let mut a = rank(A, 1);
    assert!(a.wants_checkpoint());
    a.handle_recovered_choice(&ChoiceRecord::new(choice(0, B, 1)).bytes).unwrap();
    assert!(!a.wants_checkpoint());
    assert!(a.next_choice().forced.is_some());
    assert!(a.wants_checkpoint());
}

#[test]
fn invalid_choices_are_refused() {
    let mut a = rank(A, 1);
    let record = ChoiceRecord::new(choice(0, B, 1)).bytes;
    for cut in 0..record.len() {
        assert_eq!(a.handle_recovered_choice(&record[..cut]), Err(ChoiceError::Malformed { len: cut }));
    }
    a.handle_recovered_choice(&record).unwrap();
    let second = choice(0, B, 2);
    let contradiction = ChoiceError::Contradiction { first: choice(0, B, 1), second };
    assert_eq!(a.handle_recovered_choice(&ChoiceRecord::new(second).bytes), Err(contradiction));
    let stranger = ChoiceRecord::new(choice(1, Rank(3), 1)).bytes;
    let unknown = ChoiceError::UnknownRank { rank: Rank(3), ranks: 3 };
    assert_eq!(a.handle_recovered_choice(&stranger), Err(unknown));
    assert_eq!(a.handle_choice(choice(0, B, 1)), Err(ChoiceError::NotOpen { sequence: 0 }));
    assert_eq!(a.next_choice().forced, Some(choice(0, B, 1)));
    assert_eq!(a.handle_recovered_choice(&record), Err(ChoiceError::TooLate { sequence: 0 }));
}
