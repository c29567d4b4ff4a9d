//! Guarantees of the send and the receive window, one statement at a time.

use counterfoil_ack_piggyback::{
    Ack, AckError, AckPolicy, Acked, Arrival, Flags, RecvError, RecvWindow, SendWindow, SendWindowState, StampError,
    Verdict,
};
use counterfoil_log_core::{Epoch, Incarnation, Ssn};

fn policy() -> AckPolicy {
    AckPolicy { unacked_records_max: 4, unacked_bytes_max: 4096, ..AckPolicy::default() }
}

fn arrival(ssn: u64) -> Arrival {
    Arrival { ssn: Ssn(ssn), incarnation: Incarnation(0), epoch: Epoch(1), flags: Flags::NONE }
}

fn ack(ssn: u64, epoch: u32) -> Ack {
    Ack { ssn: Ssn(ssn), epoch: Epoch(epoch) }
}

fn run(first: u64, last: u64, epoch: u32) -> Acked {
    Acked::Run { first: Ssn(first), last: Ssn(last), epoch: Epoch(epoch) }
}

fn receive(window: &mut RecvWindow, ssns: impl IntoIterator<Item = u64>) {
    for ssn in ssns {
        assert_eq!(window.handle_message(arrival(ssn)), Ok(Verdict::Fresh), "SSN {ssn}");
    }
}

fn sent(records: u64) -> SendWindow {
    let mut window = SendWindow::new(policy());
    for _ in 0..records {
        window.stamp(8).unwrap();
    }
    window
}

fn all_explicit_acks(window: &mut RecvWindow) -> Vec<Ack> {
    std::iter::from_fn(|| window.poll_ack()).collect()
}

#[test]
fn messages_are_numbered_from_one_without_gaps() {
    let mut window = SendWindow::new(policy());
    assert_eq!((window.next_ssn(), window.sent()), (Ssn::FIRST, Ssn::ZERO));
    for ssn in 1..=3 {
        assert_eq!(window.stamp(0).unwrap().ssn, Ssn(ssn));
    }
    assert_eq!((window.next_ssn(), window.unacked_records()), (Ssn(4), 3));
}

#[test]
fn the_last_ssn_of_a_channel_is_assigned_and_no_more() {
    let state = SendWindowState { sent: Ssn::MAX.0 - 1, acked: 0, unacked_bytes: 0, epoch: 1 };
    let mut window = SendWindow::restore(policy(), &state).unwrap();
    assert_eq!(window.stamp(1).unwrap().ssn, Ssn::MAX);
    assert_eq!(window.stamp(1), Err(StampError::SsnLimit));
    assert_eq!(window.sent(), Ssn::MAX);
}

#[test]
fn a_message_is_large_above_the_limit() {
    let mut window = SendWindow::new(policy());
    assert_eq!(window.stamp(1024).unwrap().flags, Flags::NONE);
    assert_eq!(window.stamp(1025).unwrap().flags, Flags::LARGE);
}

#[test]
fn acks_are_cumulative_and_old_ones_are_stale() {
    let mut window = sent(5);
    assert_eq!(window.handle_ack(ack(3, 1)), Ok(run(1, 3, 1)));
    assert_eq!(window.handle_ack(ack(2, 1)), Ok(Acked::Stale));
    assert_eq!(window.handle_ack(ack(3, 1)), Ok(Acked::Stale));
    assert_eq!(window.handle_ack(ack(5, 1)), Ok(run(4, 5, 1)));
    assert_eq!((window.acked(), window.unacked_records(), window.unacked_bytes()), (Ssn(5), 0, 0));
}

#[test]
fn an_ack_beyond_the_last_ssn_is_refused_and_changes_nothing() {
    let mut window = sent(2);
    assert_eq!(window.handle_ack(ack(3, 9)), Err(AckError::BeyondSent { acked: Ssn(3), sent: Ssn(2) }));
    assert_eq!((window.acked(), window.already_logged()), (Ssn::ZERO, false));
}

#[test]
fn too_many_unacknowledged_records_cause_one_request_until_answered() {
    let mut window = sent(4);
    assert!(!window.poll_ack_request());
    window.stamp(8).unwrap();
    assert!(window.poll_ack_request());
    assert!(!window.poll_ack_request());
    window.stamp(8).unwrap();
    assert!(!window.poll_ack_request(), "asked already");
    let _ = window.handle_ack(ack(1, 1)).unwrap();
    assert!(window.poll_ack_request(), "answered, and five are still too many");
    let _ = window.handle_ack(ack(6, 1)).unwrap();
    assert!(!window.poll_ack_request());
}

#[test]
fn too_many_unacknowledged_bytes_cause_a_request_too() {
    let mut window = SendWindow::new(policy());
    window.stamp(4096).unwrap();
    assert!(!window.poll_ack_request());
    window.stamp(1).unwrap();
    assert_eq!(window.unacked_bytes(), 4097);
    assert!(window.poll_ack_request());
}

#[test]
fn a_request_that_the_dead_receiver_never_answered_is_repeated() {
    let mut window = sent(5);
    assert!(window.poll_ack_request());
    window.receiver_rolled_back(Ssn::ZERO);
    assert!(window.poll_ack_request());
}

#[test]
fn the_already_logged_mark_is_cleared_when_the_receiver_rolls_back() {
    let mut window = sent(3);
    let _ = window.handle_ack(ack(3, 2)).unwrap();
    assert!(window.already_logged());
    window.receiver_rolled_back(Ssn(1));
    assert!(!window.already_logged());
    assert_eq!(window.acked(), Ssn(1));
    assert_eq!(window.handle_ack(ack(3, 1)), Ok(run(2, 3, 1)), "acknowledged anew, with another epoch");
    assert!(!window.already_logged());
}

#[test]
fn the_already_logged_mark_stays_in_an_epoch_that_the_receiver_is_known_to_be_past() {
    let mut window = sent(1);
    let _ = window.handle_ack(ack(1, 3)).unwrap();
    window.begin_epoch(Epoch(2)).unwrap();
    assert!(window.stamp(1).unwrap().flags.contains(Flags::LOGGED));
    window.begin_epoch(Epoch(3)).unwrap();
    assert!(!window.stamp(1).unwrap().flags.contains(Flags::LOGGED));
}

#[test]
fn epochs_only_increase() {
    let mut send = SendWindow::new(policy());
    let mut recv = RecvWindow::new(policy());
    for epoch in [2, 2, 5] {
        send.begin_epoch(Epoch(epoch)).unwrap();
        recv.begin_epoch(Epoch(epoch)).unwrap();
    }
    assert_eq!(send.begin_epoch(Epoch(4)), recv.begin_epoch(Epoch(4)));
    assert!(recv.begin_epoch(Epoch(u32::MAX)).is_err());
    assert_eq!((send.epoch(), recv.epoch()), (Epoch(5), Epoch(5)));
}

#[test]
fn the_last_epoch_can_begin() {
    let mut window = SendWindow::new(policy());
    assert_eq!(window.begin_epoch(Epoch::MAX), Ok(()));
    assert!(window.begin_epoch(Epoch(Epoch::MAX.0 + 1)).is_err());
}

#[test]
fn an_ack_is_piggybacked_once() {
    let mut window = RecvWindow::new(policy());
    assert_eq!(window.piggyback(), None);
    receive(&mut window, 1..=3);
    assert_eq!(window.piggyback(), Some(ack(3, 1)));
    assert_eq!(window.piggyback(), None);
}

#[test]
fn acks_are_split_where_the_receive_epoch_changes_oldest_first() {
    let mut window = RecvWindow::new(policy());
    receive(&mut window, 1..=5);
    window.begin_epoch(Epoch(2)).unwrap();
    window.begin_epoch(Epoch(3)).unwrap();
    receive(&mut window, 6..=9);
    window.begin_epoch(Epoch(4)).unwrap();
    receive(&mut window, [10]);
    assert_eq!(window.piggyback(), Some(ack(5, 1)));
    window.handle_ack_request(Ssn(10));
    assert_eq!(all_explicit_acks(&mut window), [ack(9, 3), ack(10, 4)]);
}

#[test]
fn a_large_message_is_acknowledged_at_once_with_all_earlier_parts() {
    let mut window = RecvWindow::new(policy());
    receive(&mut window, 1..=2);
    window.begin_epoch(Epoch(2)).unwrap();
    let large = Arrival { flags: Flags::LARGE, epoch: Epoch(2), ..arrival(3) };
    assert_eq!(window.handle_message(large), Ok(Verdict::Fresh));
    assert_eq!(all_explicit_acks(&mut window), [ack(2, 1), ack(3, 2)]);
}

#[test]
fn an_explicit_ack_piggybacked_meanwhile_is_not_sent() {
    let mut window = RecvWindow::new(policy());
    assert_eq!(window.handle_message(Arrival { flags: Flags::LARGE, ..arrival(1) }), Ok(Verdict::Fresh));
    assert_eq!(window.piggyback(), Some(ack(1, 1)));
    assert_eq!(window.poll_ack(), None);
}

#[test]
fn a_request_is_answered_even_if_nothing_is_new() {
    let mut window = RecvWindow::new(policy());
    receive(&mut window, 1..=3);
    assert_eq!(window.piggyback(), Some(ack(3, 1)));
    window.handle_ack_request(Ssn(3));
    assert_eq!(all_explicit_acks(&mut window), [ack(3, 1)]);
    let asking = Arrival { flags: Flags::ACK_REQUESTED, ..arrival(4) };
    assert_eq!(window.handle_message(asking), Ok(Verdict::Fresh));
    assert_eq!(all_explicit_acks(&mut window), [ack(4, 1)]);
}

#[test]
fn a_request_before_anything_was_received_is_answered_later() {
    let mut window = RecvWindow::new(policy());
    window.handle_ack_request(Ssn(2));
    assert_eq!(window.poll_ack(), None);
    receive(&mut window, 1..=2);
    assert_eq!(all_explicit_acks(&mut window), [ack(2, 1)]);
}

#[test]
fn a_duplicate_is_acknowledged_again_with_its_original_receive_epoch() {
    let mut window = RecvWindow::new(policy());
    receive(&mut window, 1..=2);
    window.begin_epoch(Epoch(2)).unwrap();
    receive(&mut window, 3..=4);
    assert_eq!((window.piggyback(), window.piggyback()), (Some(ack(2, 1)), Some(ack(4, 2))));
    assert_eq!(window.handle_message(arrival(2)), Ok(Verdict::Duplicate { receive_epoch: Epoch(1) }));
    assert_eq!((window.piggyback(), window.piggyback()), (Some(ack(2, 1)), Some(ack(4, 2))));
    assert_eq!(window.poll_ack(), None, "no ack was requested");
}

#[test]
fn a_replacement_of_the_sender_gets_no_ack_beyond_what_it_sent() {
    let mut window = RecvWindow::new(policy());
    receive(&mut window, 1..=5);
    window.begin_epoch(Epoch(2)).unwrap();
    receive(&mut window, 6..=9);
    window.handle_ack_request(Ssn(9));
    assert_eq!(all_explicit_acks(&mut window), [ack(5, 1), ack(9, 2)]);

    // The replacement's checkpoint was taken after SSN 3.
    window.set_incarnation(Incarnation(1), Ssn(3)).unwrap();
    assert_eq!((window.piggyback(), window.piggyback()), (Some(ack(3, 1)), None));
    for (ssn, epoch) in [(4, 1), (5, 1), (6, 2)] {
        let again = Arrival { incarnation: Incarnation(1), ..arrival(ssn) };
        assert_eq!(window.handle_message(again), Ok(Verdict::Duplicate { receive_epoch: Epoch(epoch) }));
        assert_eq!((window.piggyback(), window.piggyback()), (Some(ack(ssn, epoch)), None));
    }
}

#[test]
fn a_new_message_after_unanswered_duplicates_is_acknowledged_too() {
    let mut window = RecvWindow::new(policy());
    window.begin_epoch(Epoch(2)).unwrap();
    for ssn in 1..=2 {
        let marked = Arrival { flags: Flags::LOGGED, ..arrival(ssn) };
        assert_eq!(window.handle_message(marked), Ok(Verdict::Fresh));
    }
    assert_eq!(window.poll_ack(), None, "the sender knows already");

    // Its replacement doesn't. Duplicates are answered once, and the first new message once more.
    window.set_incarnation(Incarnation(1), Ssn::ZERO).unwrap();
    let of_replacement = |ssn| Arrival { incarnation: Incarnation(1), ..arrival(ssn) };
    let again = Ok(Verdict::Duplicate { receive_epoch: Epoch(2) });
    assert_eq!(window.handle_message(of_replacement(1)), again);
    assert_eq!(all_explicit_acks(&mut window), [ack(1, 2)]);
    assert_eq!((window.handle_message(of_replacement(2)), window.poll_ack()), (again, None));
    assert_eq!(window.handle_message(of_replacement(3)), Ok(Verdict::Fresh));
    assert_eq!(all_explicit_acks(&mut window), [ack(3, 2)]);
    assert_eq!((window.handle_message(of_replacement(4)), window.poll_ack()), (Ok(Verdict::Fresh), None));
}

#[test]
fn a_replacement_of_the_sender_gets_the_explicit_ack_again() {
    let mut window = RecvWindow::new(policy());
    window.begin_epoch(Epoch(2)).unwrap();
    receive(&mut window, [1]);
    assert_eq!(all_explicit_acks(&mut window), [ack(1, 2)]);
    window.set_incarnation(Incarnation(1), Ssn::ZERO).unwrap();
    let again = Arrival { incarnation: Incarnation(1), ..arrival(1) };
    assert_eq!(window.handle_message(again), Ok(Verdict::Duplicate { receive_epoch: Epoch(2) }));
    assert_eq!(all_explicit_acks(&mut window), [ack(1, 2)]);
}

#[test]
fn messages_of_a_dead_incarnation_are_discarded() {
    let mut window = RecvWindow::new(policy());
    receive(&mut window, [1]);
    window.set_incarnation(Incarnation(2), Ssn::ZERO).unwrap();
    for dead in 0..2 {
        assert_eq!(
            window.handle_message(Arrival { incarnation: Incarnation(dead), ..arrival(2) }),
            Ok(Verdict::DeadIncarnation)
        );
        assert!(!window.is_current(Incarnation(dead)));
    }
    assert!(window.is_current(Incarnation(2)));
    assert_eq!(window.incarnation(), Incarnation(2));
    assert_eq!(window.hsr().upto(), Ssn(1));
    assert!(window.set_incarnation(Incarnation(1), Ssn::ZERO).is_err());
}

#[test]
fn an_unannounced_incarnation_is_an_error() {
    let mut window = RecvWindow::new(policy());
    let early = Arrival { incarnation: Incarnation(1), ..arrival(1) };
    let unknown = RecvError::UnknownIncarnation { seen: Incarnation(1), known: Incarnation(0) };
    assert_eq!(window.handle_message(early), Err(unknown));
    window.set_incarnation(Incarnation(1), Ssn::ZERO).unwrap();
    assert_eq!(window.handle_message(early), Ok(Verdict::Fresh));
}

#[test]
fn ssns_out_of_range_are_refused() {
    let mut window = RecvWindow::new(policy());
    for ssn in [0, Ssn::MAX.0 + 1, u64::MAX] {
        assert_eq!(window.handle_message(arrival(ssn)), Err(RecvError::SsnOutOfRange { ssn: Ssn(ssn) }));
    }
    assert_eq!(window.handle_message(arrival(Ssn::MAX.0)), Ok(Verdict::Fresh));
    assert_eq!(window.handle_message(arrival(Ssn::MAX.0)), Ok(Verdict::Duplicate { receive_epoch: Epoch(1) }));
}

#[test]
fn messages_received_out_of_order_keep_their_own_receive_epochs() {
    let mut window = RecvWindow::new(policy());
    receive(&mut window, [1, 2, 4]);
    assert_eq!(window.piggyback(), Some(ack(2, 1)), "3 is missing");
    window.begin_epoch(Epoch(2)).unwrap();
    receive(&mut window, [3, 5]);
    assert_eq!(window.handle_message(arrival(4)), Ok(Verdict::Duplicate { receive_epoch: Epoch(1) }));
    let acks: Vec<Ack> = std::iter::from_fn(|| window.piggyback()).collect();
    assert_eq!(acks, [ack(3, 2), ack(4, 1), ack(5, 2)]);
}

#[test]
fn one_exception_too_many_is_refused_and_changes_nothing() {
    let mut window = RecvWindow::new(AckPolicy { exceptions_max: 2, ..policy() });
    receive(&mut window, [2, 4]);
    let refused = window.handle_message(arrival(6));
    assert!(matches!(refused, Err(RecvError::TooManyExceptions(_))), "{refused:?}");
    assert!(!window.hsr().contains(Ssn(6)));
    receive(&mut window, [5, 3, 1, 6]);
    assert_eq!((window.hsr().upto(), window.hsr().exceptions().len()), (Ssn(6), 0));
}

#[test]
fn merged_epochs_count_as_the_newest_of_them() {
    let mut window = RecvWindow::new(policy());
    for epoch in 1..=5 {
        window.begin_epoch(Epoch(epoch)).unwrap();
        receive(&mut window, [u64::from(epoch)]);
    }
    window.forget_epochs_before(Epoch(4));
    assert_eq!(window.receive_epochs().runs().len(), 3);
    let acks: Vec<Ack> = std::iter::from_fn(|| window.piggyback()).collect();
    assert_eq!(acks, [ack(3, 3), ack(4, 4), ack(5, 5)]);
}

#[test]
fn a_restored_receiver_acknowledges_everything_again() {
    let mut window = RecvWindow::new(policy());
    receive(&mut window, 1..=2);
    window.begin_epoch(Epoch(2)).unwrap();
    receive(&mut window, [3]);
    assert_eq!((window.piggyback(), window.piggyback()), (Some(ack(2, 1)), Some(ack(3, 2))));
    let mut restored = RecvWindow::restore(policy(), &window.snapshot()).unwrap();
    assert_eq!((restored.piggyback(), restored.piggyback()), (Some(ack(2, 1)), Some(ack(3, 2))));
    assert_eq!((restored.hsr(), restored.epoch()), (window.hsr(), Epoch(2)));
}

#[test]
fn acks_resume_after_the_ssn_that_the_sender_reports() {
    let mut window = RecvWindow::new(policy());
    receive(&mut window, 1..=2);
    window.begin_epoch(Epoch(2)).unwrap();
    receive(&mut window, 3..=5);
    let mut restored = RecvWindow::restore(policy(), &window.snapshot()).unwrap();
    restored.reack_after(Ssn(3));
    assert_eq!((restored.piggyback(), restored.piggyback()), (Some(ack(5, 2)), None));
    restored.reack_after(Ssn(99));
    assert_eq!((restored.acked(), restored.piggyback()), (Ssn(5), None));
}

#[test]
fn plain_sender_based_logging_needs_no_epochs() {
    let (mut send, mut recv) = (SendWindow::new(policy()), RecvWindow::new(policy()));
    let mut explicit = 0;
    for _ in 0..100 {
        let stamp = send.stamp(8).unwrap();
        assert_eq!(recv.handle_message(Arrival { flags: stamp.flags, ..arrival(stamp.ssn.0) }), Ok(Verdict::Fresh));
        assert_eq!(recv.poll_ack(), None);
        if send.poll_ack_request() {
            recv.handle_ack_request(send.sent());
            for ack in all_explicit_acks(&mut recv) {
                assert!(matches!(send.handle_ack(ack), Ok(Acked::Run { .. })));
                explicit += 1;
            }
        }
        assert!(send.unacked_records() <= 5);
    }
    assert_eq!(explicit, 20);
}
