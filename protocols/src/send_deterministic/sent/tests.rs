use super::*;

fn sent(epochs: &[u32]) -> Sent {
    let mut sent = Sent::default();
    for (ssn, &epoch) in (1..).zip(epochs) {
        sent.record(Ssn(ssn), Epoch(epoch), Phase(epoch), false);
    }
    sent
}

fn entry(epoch: u32, first: u64, received: Option<u32>) -> SentInEpoch {
    SentInEpoch { epoch, first, received, stale: None }
}

/// Every epoch up to `newest` has a checkpoint.
fn upto(newest: u32) -> impl Fn(u32) -> u32 {
    move |epoch| epoch.min(newest)
}

#[test]
fn a_message_from_the_past_to_the_future_is_logged_and_leaves_the_table() {
    let mut sent = sent(&[1, 1, 2, 2]);
    let acknowledged = sent.acknowledge((Ssn(1), Ssn(2)), Epoch(2), None, Epoch(1));
    assert_eq!(
        acknowledged,
        [AcknowledgedRun { ack: Ack { ssn: Ssn(2), epoch: Epoch(2) }, phase: Phase(1), logged: true }]
    );
    let acknowledged = sent.acknowledge((Ssn(3), Ssn(4)), Epoch(2), None, Epoch(1));
    assert!(!acknowledged[0].logged);
    assert_eq!(sent.table(upto(2)), [entry(1, 1, None), entry(2, 3, Some(2))]);
}

#[test]
fn a_message_without_acknowledgement_counts_as_received_in_its_own_epoch() {
    let sent = sent(&[3, 4]);
    assert_eq!(sent.table(upto(4)), [entry(3, 1, Some(3)), entry(4, 2, Some(4))]);
}

#[test]
fn an_epoch_whose_checkpoint_is_not_durable_counts_as_the_one_before() {
    assert_eq!(sent(&[3, 4]).table(upto(3)), [entry(3, 1, Some(4))]);
}

#[test]
fn the_receivers_verdict_overrules_the_epochs() {
    let mut sent = sent(&[1]);
    assert!(!sent.acknowledge((Ssn(1), Ssn(1)), Epoch(2), Some(false), Epoch(1))[0].logged);
    assert_eq!(sent.table(upto(1)), [entry(1, 1, Some(2))]);
}

#[test]
fn an_undone_receipt_still_binds_and_a_logged_message_stays_logged() {
    let mut sent = sent(&[1, 2]);
    sent.acknowledge((Ssn(1), Ssn(1)), Epoch(2), None, Epoch(1));
    sent.acknowledge((Ssn(2), Ssn(2)), Epoch(3), Some(false), Epoch(1));
    sent.invalidate_receipts();
    assert_eq!(sent.table(upto(2)), [entry(1, 1, None), entry(2, 2, Some(3))]);
    assert!(sent.is_logged(Ssn(1)) && !sent.is_logged(Ssn(2)));
}

#[test]
fn acknowledged_messages_are_released_unless_they_are_logged() {
    let mut sent = sent(&[1, 1, 1, 2, 2]);
    sent.acknowledge((Ssn(1), Ssn(2)), Epoch(1), None, Epoch(1));
    sent.acknowledge((Ssn(3), Ssn(4)), Epoch(2), None, Epoch(2));
    sent.invalidate_receipts();
    // The third is logged, the fifth not acknowledged.
    let released = [0, 1, 2, 3, 4, 5].map(|after| sent.released_after(Ssn(after)).0);
    assert_eq!(released, [2, 2, 2, 4, 4, 5]);
}

#[test]
fn an_undone_receipt_counts_as_one_in_the_latest_epoch_that_is_not_logged() {
    let mut sent = sent(&[3]);
    sent.acknowledge((Ssn(1), Ssn(1)), Epoch(2), None, Epoch(3));
    assert_eq!(sent.table(upto(3)), [entry(3, 1, Some(2))]);
    // It may be received again as late as in its own epoch.
    sent.invalidate_receipts();
    assert_eq!(sent.table(upto(3)), [entry(3, 1, Some(3))]);
}

#[test]
fn runs_are_split_joined_and_collected() {
    let mut sent = sent(&[1, 1, 1, 1]);
    sent.acknowledge((Ssn(1), Ssn(2)), Epoch(1), None, Epoch(1));
    assert_eq!(sent.runs.len(), 2);
    sent.acknowledge((Ssn(3), Ssn(4)), Epoch(1), None, Epoch(1));
    assert_eq!(sent.runs.len(), 1);
    sent.collect(Ssn(3), Epoch(2));
    assert!(sent.is_sound(1, Ssn(4)) && !sent.is_sound(1, Ssn(5)) && !sent.is_sound(0, Ssn(4)));
    assert_eq!(sent.table(upto(1)), [entry(1, 4, Some(1))]);
}

#[test]
fn an_epoch_at_the_floor_keeps_its_first_message_and_no_dependency() {
    let mut sent = sent(&[1, 2, 2]);
    sent.collect(Ssn(3), Epoch(2));
    assert_eq!(sent.table(upto(2)), [entry(2, 2, None)]);
    assert_eq!(sent.acknowledge((Ssn(1), Ssn(3)), Epoch(9), Some(false), Epoch(1)), []);
    assert_eq!(sent.table(upto(2)), [entry(2, 2, None)]);
}

fn run(ssns: (u64, u64), epoch: u32, phase: u32) -> Run {
    Run { first: ssns.0, last: ssns.1, epoch, phase, logged: false, receipt: Receipt::Unknown, stale: None }
}

#[test]
fn messages_sent_alike_are_one_run() {
    assert_eq!(sent(&[1, 1, 1, 2]).runs, [run((1, 3), 1, 1), run((4, 4), 2, 2)]);
}

/// A checkpoint that begins an epoch after that of the messages doesn't know receipts learned in it, or later.
#[test]
fn what_older_checkpoints_know_of_a_receipt_is_remembered() {
    let stale_after = |received: u32, logged: Option<bool>, now: u32| {
        let mut sent = sent(&[2]);
        sent.acknowledge((Ssn(1), Ssn(1)), Epoch(received), logged, Epoch(now));
        sent.table(upto(2))[0].stale
    };
    assert_eq!(stale_after(1, None, 3), Some(StaleReceipt { upto: 3, received: 2 }), "received earlier");
    assert_eq!(stale_after(4, None, 5), Some(StaleReceipt { upto: 5, received: 2 }), "logged");
    assert_eq!(stale_after(1, None, 2), None, "checkpoints of that epoch don't have the message");
    assert_eq!(stale_after(2, None, 3), None, "as it was assumed");
    assert_eq!(stale_after(4, Some(false), 5), None, "older checkpoints assume less");
}

#[test]
fn an_acknowledgement_is_split_where_the_phase_or_the_verdict_changes() {
    let mut sent = Sent::default();
    for (ssn, epoch, phase) in [(1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 3, 2), (5, 4, 2)] {
        sent.record(Ssn(ssn), Epoch(epoch), Phase(phase), false);
    }
    let acknowledged = sent.acknowledge((Ssn(1), Ssn(5)), Epoch(3), None, Epoch(4));
    let acknowledged: Vec<_> = acknowledged.iter().map(|run| (run.ack.ssn.0, run.phase.0, run.logged)).collect();
    assert_eq!(acknowledged, [(2, 1, true), (3, 1, false), (5, 2, false)]);
    // Two phases with the same verdict.
    let mut sent = self::sent(&[1, 2]);
    assert_eq!(sent.acknowledge((Ssn(1), Ssn(2)), Epoch(3), None, Epoch(3)).len(), 2);
}

#[test]
fn a_receipt_decides_about_a_rollback_while_a_message_is_not_logged() {
    let mut sent = sent(&[1, 1]);
    assert!(sent.has_unlogged() && !Sent::default().has_unlogged());
    sent.acknowledge((Ssn(1), Ssn(1)), Epoch(2), None, Epoch(1));
    assert!(sent.has_unlogged());
    sent.acknowledge((Ssn(2), Ssn(2)), Epoch(2), None, Epoch(1));
    assert!(!sent.has_unlogged());
}

#[test]
fn the_first_message_since_an_epoch_is_found() {
    let sent = sent(&[1, 1, 3]);
    let first = [1, 2, 3, 4].map(|epoch| sent.first_since(Epoch(epoch)).map(|ssn| ssn.0));
    assert_eq!(first, [Some(1), Some(3), Some(3), None]);
}

#[test]
fn acknowledged_and_collected_messages_are_no_longer_unknown() {
    let mut sent = sent(&[1, 1, 1, 2]);
    assert_eq!(sent.unknown(), 4);
    sent.acknowledge((Ssn(1), Ssn(1)), Epoch(1), None, Epoch(1));
    assert_eq!(sent.unknown(), 3);
    // The receipt of a collected, logged message is forgotten.
    sent.collect(Ssn(2), Epoch(1));
    assert_eq!(sent.unknown(), 2);
}

#[test]
fn runs_that_are_out_of_order_are_refused() {
    let is_sound = |runs: &[Run]| Sent { runs: runs.to_vec(), collected: 0 }.is_sound(2, Ssn(4));
    assert!(is_sound(&[run((1, 1), 1, 1), run((2, 3), 1, 2), run((4, 4), 2, 2)]));
    assert!(!is_sound(&[run((1, 1), 1, 1), run((3, 4), 1, 1)]), "a gap");
    assert!(!is_sound(&[run((1, 1), 2, 1), run((2, 4), 1, 1)]), "the epochs fall");
    assert!(!is_sound(&[run((1, 1), 1, 2), run((2, 4), 1, 1)]), "the phases fall");
    assert!(!is_sound(&[run((0, 4), 1, 1)]), "no message has the number 0");
    assert!(!is_sound(&[run((1, 4), 1, 1), run((5, 4), 1, 1)]), "a run without messages");
}
