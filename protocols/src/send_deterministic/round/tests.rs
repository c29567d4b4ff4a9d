use super::super::harness::{A, B, checkpoint, command, effects, meet, pair, promises, rank, reports, send};
use super::super::notice::Sender;
use super::super::phases::PhaseOrder;
use super::super::{Config, SendDeterministic};
use super::*;
use crate::api::{DiscardReason, Incoming, Inspect, Protocol, RestoreError};

fn finished(round: u64) -> Command {
    Command::Finished { round, next_phase: 1, phases: PhaseOrder::default() }
}

fn line(round: u64, incarnation: u32, restore: Option<(u32, u32)>) -> Command {
    let senders = vec![Sender { rank: B.0, base: 0 }];
    Command::Line(Line { round, for_incarnation: incarnation, restore, senders, ..Line::default() })
}

fn floor(round: u64, epoch: u32) -> Command {
    Command::Floor { round, epoch, ceiling: u32::MAX }
}

/// Returns one of two ranks, in a round waiting for the recovery line.
fn blocked(round: u64) -> SendDeterministic {
    let (mut a, _) = pair();
    command(&mut a, &Command::Block { round });
    effects(&mut a);
    a
}

fn collections(rank: &mut SendDeterministic) -> usize {
    reports(rank).iter().filter(|report| matches!(report, Report::Collection { .. })).count()
}

#[test]
fn a_rank_reports_its_table_once_in_a_round() {
    let (mut a, _) = pair();
    assert_eq!((a.reported_round(), a.is_running(), a.is_recovering()), (None, true, false));
    command(&mut a, &Command::Block { round: 3 });
    assert_eq!((a.reported_round(), a.is_running(), a.is_recovering()), (Some(3), false, true));
    assert!(matches!(reports(&mut a)[..], [Report::Table { round: 3, .. }]));
    command(&mut a, &Command::Block { round: 3 });
    assert_eq!(reports(&mut a), []);
}

/// A checkpoint lacks the receipts of its messages: they may have been learned later.
#[test]
fn a_restored_rank_reports_its_table_after_the_hellos_of_the_receivers() {
    let (mut a, mut b) = pair();
    let _ = b.handle_message(&send(&mut a, A, B)).unwrap();
    let tables = checkpoint(&mut a);
    let mut a = rank(A, 1);
    a.restore(&tables, Epoch::FIRST).unwrap();
    command(&mut a, &Command::Block { round: 1 });
    assert!(matches!(reports(&mut a)[..], [Report::Rollback { .. }]));
    assert_eq!(a.reported_round(), None);
    meet(&mut a, &mut b);
    assert!(matches!(reports(&mut a)[..], [Report::Table { .. }]));
}

#[test]
fn a_line_that_is_not_awaited_is_ignored() {
    for (round, incarnation) in [(1, 0), (3, 0), (2, 1), (1, 1)] {
        let mut a = blocked(2);
        command(&mut a, &line(round, incarnation, Some((1, 7))));
        assert_eq!(effects(&mut a).len(), 0, "round {round}, incarnation {incarnation}");
    }
    let mut a = blocked(2);
    command(&mut a, &line(2, 0, None));
    assert!(matches!(reports(&mut a)[..], [Report::Orphans { round: 2, .. }]));
    command(&mut a, &line(2, 0, None));
    assert_eq!(effects(&mut a).len(), 0, "the second line of a round");
}

#[test]
fn a_release_counts_after_the_line_and_in_its_round_only() {
    let ready = |round| Command::Ready { round, open: u32::MAX, next_phase: 1 };
    for release in [ready, finished] {
        let mut a = blocked(2);
        command(&mut a, &release(2));
        assert!(!a.is_running() && effects(&mut a).is_empty(), "without a line");
        command(&mut a, &line(2, 0, None));
        effects(&mut a);
        for round in [1, 3] {
            command(&mut a, &release(round));
            assert!(!a.is_running() && effects(&mut a).is_empty(), "round {round}");
        }
        command(&mut a, &release(2));
        assert!(a.is_running());
    }
}

#[test]
fn a_rank_rolls_back_to_the_epoch_of_the_line_and_once() {
    let (mut a, _) = pair();
    let first = a.start().tables;
    let second = checkpoint(&mut a);
    command(&mut a, &Command::Block { round: 1 });
    command(&mut a, &line(1, 0, Some((1, 1))));
    assert_eq!(a.restore(&second, Epoch::FIRST), Err(RestoreError::NotFresh));
    // Its first checkpoint was taken before it was in epoch 2.
    assert_ne!(first, second);
    let (mut a, _) = pair();
    let first = a.start().tables;
    checkpoint(&mut a);
    command(&mut a, &Command::Block { round: 1 });
    effects(&mut a);
    command(&mut a, &line(1, 0, Some((1, 1))));
    // First the checkpoints: a rank dying between the two must not restart beyond the line.
    assert!(matches!(
        effects(&mut a)[..],
        [Effect::KeepCheckpoints { first: Epoch::FIRST, last: Epoch(1) }, Effect::RollBack { epoch: Epoch(1) }]
    ));
    a.restore(&first, Epoch::FIRST).unwrap();
    assert_eq!((a.epoch(), a.incarnation()), (Epoch(1), Incarnation(1)));
    assert_eq!(a.restore(&first, Epoch::FIRST), Err(RestoreError::NotFresh), "twice");
}

#[test]
fn a_collection_of_another_round_or_in_a_recovery_is_ignored() {
    let collect = |round| Command::Collect { number: 1, round };
    let keeps =
        |a: &mut SendDeterministic| effects(a).iter().any(|effect| matches!(effect, Effect::KeepCheckpoints { .. }));
    let mut a = blocked(2);
    for round in [1, 2] {
        command(&mut a, &collect(round));
        assert_eq!(collections(&mut a), 0, "in a recovery, round {round}");
        command(&mut a, &floor(round, 1));
        assert!(!keeps(&mut a), "in a recovery, round {round}");
    }
    command(&mut a, &line(2, 0, None));
    command(&mut a, &finished(2));
    effects(&mut a);
    for round in [1, 2, 3] {
        command(&mut a, &collect(round));
        assert_eq!(collections(&mut a), usize::from(round == 2), "round {round}");
        command(&mut a, &floor(round, 1));
        assert_eq!(keeps(&mut a), round == 2, "round {round}");
    }
}

/// A received one message in epoch 1 and one in epoch 2, B sent them in its epochs 1 and 2.
#[test]
fn a_floor_promises_what_is_not_asked_for_and_not_sent_again() {
    let (mut a, mut b) = pair();
    for _ in 0..2 {
        assert_eq!(a.handle_message(&send(&mut b, B, A)).unwrap(), Incoming::Deliver { keep: None });
        checkpoint(&mut a);
        checkpoint(&mut b);
    }
    for (name, rank, promise) in [("receiver", &mut a, (1, 0)), ("sender", &mut b, (0, 1))] {
        effects(rank);
        command(rank, &floor(0, 2));
        let after = effects(rank);
        let kept = after.iter().find_map(|effect| match *effect {
            Effect::KeepCheckpoints { first, last } => Some((first, last)),
            _ => None,
        });
        assert_eq!((kept, promises(&after)), (Some((Epoch(2), Epoch::MAX)), vec![promise]), "{name}");
        command(rank, &floor(0, 2));
        assert_eq!(promises(&effects(rank)), [], "{name}: the same floor again");
        // A lower one, from an overtaken collection.
        command(rank, &floor(0, 1));
        assert_eq!(promises(&effects(rank)), [], "{name}");
    }
    // Both promises remove table rows, and are repeated with the Hellos.
    let rows = |rank: &SendDeterministic| {
        [A, B].into_iter().filter_map(|peer| rank.table_sizes(peer)).map(|sizes| sizes.spe + sizes.rpp).sum::<u64>()
    };
    let before = (rows(&a), rows(&b));
    meet(&mut a, &mut b);
    let (from_a, from_b) = (effects(&mut a), effects(&mut b));
    assert_eq!((promises(&from_a), promises(&from_b)), (vec![(1, 0)], vec![(0, 1)]));
    deliver(&from_a, A, &mut b);
    deliver(&from_b, B, &mut a);
    assert_eq!((before, (rows(&a), rows(&b))), ((2, 2), (1, 1)));
}

/// Passes the notices among effects on.
fn deliver(effects: &[Effect], from: Rank, to: &mut SendDeterministic) {
    for effect in effects {
        if let Effect::Transmit { to: Party::Rank(_), header, body } = effect {
            to.handle_control(from.into(), header, body).unwrap();
        }
    }
}

#[test]
fn a_floor_is_no_abandoned_checkpoint() {
    let mut a = SendDeterministic::new(Config::new(A, 2)).unwrap();
    // Among epochs 2 to 5, the checkpoints for 3 and 5 are durable.
    for _ in 0..2 {
        let _ = a.handle_checkpoint().unwrap();
        checkpoint(&mut a);
    }
    for (lowest, floor_is) in [(1, 1), (2, 3), (4, 5), (2, 5)] {
        command(&mut a, &floor(0, lowest));
        let first = effects(&mut a).into_iter().find_map(|effect| match effect {
            Effect::KeepCheckpoints { first, .. } => Some(first.0),
            _ => None,
        });
        assert_eq!(first, Some(floor_is), "no recovery goes below {lowest}");
    }
}

/// Returns a rank in a cluster beginning below the epochs of the next.
fn below_a_cluster(ceiling: u32) -> SendDeterministic {
    SendDeterministic::new(Config { ceiling: Epoch(ceiling), ..Config::new(A, 2) }).unwrap()
}

#[test]
fn a_floor_raises_the_epoch_below_which_a_rank_stays_and_a_recovery_resets_it() {
    let mut a = below_a_cluster(2);
    assert!(!a.wants_checkpoint(), "epoch 2 may be the next cluster's");
    command(&mut a, &Command::Floor { round: 0, epoch: 1, ceiling: 4 });
    for epoch in [2, 3] {
        assert!(a.wants_checkpoint(), "epoch {epoch}");
        checkpoint(&mut a);
    }
    assert!(!a.wants_checkpoint(), "epoch 4");
    let mut a = below_a_cluster(2);
    command(&mut a, &Command::Floor { round: 0, epoch: 1, ceiling: 4 });
    command(&mut a, &Command::Block { round: 1 });
    command(&mut a, &line(1, 0, None));
    command(&mut a, &finished(1));
    assert!(!a.is_recovering() && !a.wants_checkpoint(), "the next cluster may have rolled back");
}

/// Returns a message from an incarnation of B unknown to A.
fn of_incarnation(incarnation: u32) -> WireHeader {
    let mut b = rank(B, 0);
    b.incarnation = Incarnation(incarnation);
    send(&mut b, B, A)
}

#[test]
fn messages_of_a_dead_process_are_dropped_although_its_replacement_was_never_met() {
    let living = |round| {
        let (senders, living) = (Vec::new(), vec![(B.0, 7)]);
        Command::Line(Line { round, senders, living, ..Line::default() })
    };
    for met_before_the_line in [false, true] {
        let mut a = rank(A, 0);
        command(&mut a, &Command::Block { round: 1 });
        if met_before_the_line {
            assert_eq!(a.handle_message(&of_incarnation(0)).unwrap(), Incoming::Hold, "there is no line");
        }
        command(&mut a, &living(1));
        assert_eq!(a.handle_message(&of_incarnation(0)).unwrap(), Incoming::Hold, "not all have obeyed the line");
        command(&mut a, &finished(1));
        let dead = DiscardReason::DeadIncarnation { sent_by: Incarnation(0), now: Incarnation(7) };
        assert_eq!(a.handle_message(&of_incarnation(0)).unwrap(), Incoming::Discard(dead));
        assert_eq!(a.handle_message(&of_incarnation(7)).unwrap(), Incoming::Deliver { keep: None });
    }
    // The same for a process first heard of after the recovery, also while another one begins.
    let mut a = rank(A, 0);
    for finish in [&Command::Block { round: 1 }, &living(1), &finished(1), &Command::Block { round: 2 }] {
        command(&mut a, finish);
    }
    let dead = DiscardReason::DeadIncarnation { sent_by: Incarnation(6), now: Incarnation(7) };
    assert_eq!(a.handle_message(&of_incarnation(6)).unwrap(), Incoming::Discard(dead));
    // A line not obeyed by all is void.
    let mut a = rank(A, 0);
    for void in [&Command::Block { round: 1 }, &living(1), &Command::Block { round: 2 }] {
        command(&mut a, void);
    }
    assert_eq!(a.handle_message(&of_incarnation(0)).unwrap(), Incoming::Hold);
}
