//! Scenarios of Guermouche 2011, Figures 1 and 2, and rules without which whole jobs survive.

#![expect(clippy::unwrap_used, reason = "a scenario that can't be played fails its test")]

use counterfoil_ack_piggyback::{AckPolicy, Flags, Kind};
use counterfoil_log_core::{Envelope, Epoch, Incarnation, Rank, Ssn};
use counterfoil_protocols::api::{Effect, Incoming, Inspect, Misbehaviour, Protocol, ProtocolError, TableSizes};
use counterfoil_protocols::send_deterministic::{Clusters, Config, SendDeterministic};

use super::program::{Op, Program};
use super::world::World;

/// Figure 1 as far as the text describes it: m7 goes from rank 4 to 3, from the past to the future; m8 and m9 from 0
/// and 2 to 1, and then m10 from 1 to 3, all within epoch 2.
fn figure_1() -> World {
    let receive = |tag| Op::Receive { tag };
    let send = |to, tag| Op::Send { to, tag };
    let program: Program = vec![
        vec![send(1, 8)],
        vec![receive(8), receive(9), send(3, 10)],
        vec![send(1, 9)],
        vec![receive(7), receive(10)],
        vec![send(3, 7)],
    ];
    let mut world = World::new(program).unwrap();
    for rank in [0, 1, 2, 3] {
        world.save_checkpoint(rank).unwrap();
    }
    for rank in [4, 3, 0, 2, 1, 1, 1, 3] {
        world.advance(rank).unwrap();
    }
    world
}

#[test]
fn figure_1_the_senders_of_a_failed_rank_go_back_and_the_receiver_of_an_orphan_stays() {
    let mut world = figure_1();
    world.kill(1).unwrap();
    world.finish().unwrap();
    assert_eq!(world.rolled_back(), [true, true, true, false, false]);
}

#[test]
fn figure_1_the_sender_of_a_logged_message_stays() {
    let mut world = figure_1();
    world.kill(3).unwrap();
    world.finish().unwrap();
    assert_eq!(world.rolled_back(), [true, true, true, true, false]);
}

/// A reduced Figure 2: rank 1 receives m0 from 2, sends m1 to 0, and receives the answer m2 from 0. m0 and m2 are
/// logged, m1 is not.
///
/// When rank 1 fails both can be replayed, and m2 arrives first.
pub(crate) fn figure_2() -> World {
    let program: Program = vec![
        vec![Op::Receive { tag: 1 }, Op::Send { to: 1, tag: 0 }],
        vec![Op::Receive { tag: 0 }, Op::Send { to: 0, tag: 1 }, Op::Receive { tag: 0 }],
        vec![Op::Send { to: 1, tag: 0 }],
    ];
    let mut world = World::new(program).unwrap();
    world.save_checkpoint(1).unwrap();
    for rank in [2, 1, 1, 0, 0, 1] {
        world.advance(rank).unwrap();
    }
    world.kill(1).unwrap();
    world
}

#[test]
fn figure_2_a_logged_message_waits_for_the_orphan_that_it_depends_on() {
    let mut world = figure_2();
    world.finish().unwrap();
    assert_eq!(world.rolled_back(), [false, true, false]);
}

fn rank(rank: u32) -> SendDeterministic {
    let mut protocol = SendDeterministic::new(Config::new(Rank(rank), 2)).unwrap();
    let peer = SendDeterministic::new(Config::new(Rank(1 - rank), 2)).unwrap();
    protocol.handle_hello(Rank(1 - rank), &peer.hello(Rank(rank)).unwrap()).unwrap();
    protocol
}

fn envelope() -> Envelope {
    Envelope { source: Rank(0), destination: Rank(1), tag: 0, comm: 0, len: 8 }
}

/// Sends a message from rank 0 to 1, where it is delivered.
fn pass_message(sender: &mut SendDeterministic, receiver: &mut SendDeterministic) {
    let mut header = sender.handle_send(&envelope()).unwrap().header;
    sender.handle_transmit(&mut header).unwrap();
    assert_eq!(receiver.handle_message(&header).unwrap(), Incoming::Deliver { keep: None });
}

/// Returns the number of explicit acknowledgements since the last call.
fn count_acks(rank: &mut SendDeterministic) -> usize {
    let is_ack = |effect: &Effect| matches!(effect, Effect::Transmit { header, .. } if header.kind() == Kind::Ack);
    std::iter::from_fn(|| rank.poll_effect()).filter(is_ack).count()
}

/// Returns the number of explicit acknowledgements for three messages from the past to the future.
pub(crate) fn explicit_acks() -> usize {
    let (mut sender, mut receiver) = (rank(0), rank(1));
    let _ = receiver.handle_checkpoint().unwrap();
    for _ in 0..3 {
        pass_message(&mut sender, &mut receiver);
    }
    count_acks(&mut receiver)
}

#[test]
fn only_the_first_logged_message_of_an_epoch_is_acknowledged_at_once() {
    assert_eq!(explicit_acks(), 1);
}

/// Section V.A: a sender without any received message, and so without acknowledgement, asks for one.
#[test]
fn the_tables_have_a_row_for_messages_sent_or_received_alike() {
    let (mut sender, mut receiver) = (rank(0), rank(1));
    for _ in 0..3 {
        pass_message(&mut sender, &mut receiver);
    }
    let none = TableSizes::default();
    assert_eq!(sender.table_sizes(Rank(1)), Some(TableSizes { spe: 1, unacknowledged: 3, ..none }));
    assert_eq!(receiver.table_sizes(Rank(0)), Some(TableSizes { rpp: 1, receive_epochs: 1, ..none }));
    assert_eq!(sender.table_sizes(Rank(0)), None, "no table is about the rank itself");
}

#[test]
fn too_many_messages_without_an_acknowledgement_make_the_sender_ask_for_one() {
    let policy = AckPolicy { unacked_records_max: 3, ..AckPolicy::default() };
    let mut sender = SendDeterministic::new(Config { policy, ..Config::new(Rank(0), 2) }).unwrap();
    let mut receiver = rank(1);
    for number in 1..=5 {
        pass_message(&mut sender, &mut receiver);
        assert_eq!(count_acks(&mut receiver), usize::from(number == 4), "message {number}");
    }
}

/// A receiver can't be fed if it has lost messages its sender may no longer have: an error in place of a wrong answer.
#[test]
fn a_peer_that_lacks_collected_messages_is_refused() {
    let (mut sender, mut receiver) = (rank(0), rank(1));
    pass_message(&mut sender, &mut receiver);
    let before = rank(1).hello(Rank(0)).unwrap();
    let mut after = receiver.hello(Rank(0)).unwrap();
    after.covered = (Epoch(2), Ssn(1));
    sender.handle_hello(Rank(1), &after).unwrap();
    let refused = sender.handle_hello(Rank(1), &before).unwrap_err();
    assert_eq!(refused, ProtocolError::Unrecoverable { peer: Rank(1), needs: Ssn(1), collected: Ssn(1) });
}

/// Numbers impossible for a correct peer have no effect.
#[test]
fn a_hello_that_claims_messages_that_were_never_sent_is_refused() {
    let (mut sender, mut receiver) = (rank(0), rank(1));
    pass_message(&mut sender, &mut receiver);
    let hello = receiver.hello(Rank(0)).unwrap();
    let mut fresh = rank(0);
    let how = Misbehaviour::ReceivedMoreThanSent { claimed: Ssn(1), sent: Ssn::ZERO };
    assert_eq!(fresh.handle_hello(Rank(1), &hello), Err(ProtocolError::PeerMisbehaved { peer: Rank(1), how }));
    let mut covers = hello.clone();
    covers.covered = (Epoch(2), Ssn(2));
    let how = Misbehaviour::CoversMoreThanReceived { covered: Ssn(2), received: Ssn(1) };
    assert_eq!(sender.handle_hello(Rank(1), &covers), Err(ProtocolError::PeerMisbehaved { peer: Rank(1), how }));
    let mut damaged = hello.clone();
    // The last receipt run ends with message 1: its first number, after the list length.
    damaged.opaque[1] = 2;
    let how = Misbehaviour::MalformedNotice { tag: 2, len: hello.opaque.len() };
    assert_eq!(sender.handle_hello(Rank(1), &damaged), Err(ProtocolError::PeerMisbehaved { peer: Rank(1), how }));
    sender.handle_hello(Rank(1), &hello).unwrap();
    // A restored rank sends forgotten messages again.
    let mut restored =
        SendDeterministic::new(Config { incarnation: Incarnation(1), ..Config::new(Rank(0), 2) }).unwrap();
    let first = restored.start();
    restored.restore(&first.tables, Epoch::FIRST).unwrap();
    restored.handle_hello(Rank(1), &hello).unwrap();
}

/// A rank can't be rolled back to a checkpoint replaced by another one before it was durable.
#[test]
fn an_abandoned_checkpoint_is_not_in_the_table() {
    let mut sender = rank(0);
    let send = |sender: &mut SendDeterministic| {
        let _ = sender.handle_send(&envelope()).unwrap();
    };
    send(&mut sender);
    let _ = sender.handle_checkpoint().unwrap();
    send(&mut sender);
    let _ = sender.handle_checkpoint().unwrap();
    send(&mut sender);
    assert_eq!(sender.handle_checkpoint_durable(Epoch(2)), Err(ProtocolError::NotCheckpointing { epoch: Epoch(2) }));
    sender.handle_checkpoint_durable(Epoch(3)).unwrap();
    let epochs = |sender: &SendDeterministic| -> Vec<(u32, u64)> {
        sender.table().channels[0].epochs.iter().map(|entry| (entry.epoch, entry.first)).collect()
    };
    assert_eq!(epochs(&sender), [(1, 1), (3, 3)]);
    // Its successor knows.
    let tables = sender.handle_checkpoint().unwrap().tables;
    let mut again = SendDeterministic::new(Config { incarnation: Incarnation(1), ..Config::new(Rank(0), 2) }).unwrap();
    again.restore(&tables, Epoch::FIRST).unwrap();
    assert_eq!(epochs(&again), [(1, 1), (3, 3)]);
}

/// Logs a message and rolls its receiver back to an epoch in which it wouldn't be logged; returns the mark on its
/// replay, and the receiver's phase afterwards.
pub(crate) fn replay_of_a_logged_message() -> (bool, u32) {
    let (mut sender, mut receiver) = (rank(0), rank(1));
    let _ = receiver.handle_checkpoint().unwrap();
    let header = sender.handle_send(&envelope()).unwrap().header;
    let mut first = header;
    sender.handle_transmit(&mut first).unwrap();
    assert!(!first.flags().contains(Flags::LOGGED));
    let _ = receiver.handle_message(&first).unwrap();
    while let Some(effect) = receiver.poll_effect() {
        if let Effect::Transmit { to, header, body } = effect {
            assert_eq!(to, Rank(0).into());
            sender.handle_control(Rank(1).into(), &header, &body).unwrap();
        }
    }
    let mut back = rank(1);
    sender.handle_hello(Rank(1), &back.hello(Rank(0)).unwrap()).unwrap();
    let mut again = header;
    sender.handle_transmit(&mut again).unwrap();
    assert_eq!(back.handle_message(&again).unwrap(), Incoming::Deliver { keep: None });
    (again.flags().contains(Flags::LOGGED), back.phase().0)
}

#[test]
fn the_replay_of_a_logged_message_is_marked_and_raises_the_phase() {
    assert_eq!(replay_of_a_logged_message(), (true, 2));
}

/// Returns rank 0's checkpoints after a rollback from epoch 2 to 1.
pub(crate) fn checkpoints_after_rollback() -> Vec<u32> {
    let program: Program = vec![vec![Op::Send { to: 1, tag: 0 }], vec![Op::Receive { tag: 0 }]];
    let mut world = World::new(program).unwrap();
    world.advance(0).unwrap();
    world.advance(1).unwrap();
    world.save_checkpoint(0).unwrap();
    world.kill(1).unwrap();
    world.quiesce().unwrap();
    assert_eq!(world.rolled_back(), [true, true]);
    world.disks[0].checkpoints.keys().map(|epoch| epoch.0).collect()
}

#[test]
fn checkpoints_beyond_the_line_are_discarded() {
    assert_eq!(checkpoints_after_rollback(), [1]);
}

#[test]
fn a_cluster_stays_below_the_next_one() {
    let clusters = Clusters::new(vec![0, 1], 2).unwrap();
    let (first_epoch, ceiling) = clusters.epochs_of(Rank(0));
    let config = Config { first_epoch, ceiling, policy: AckPolicy::default(), ..Config::new(Rank(0), 2) };
    let mut low = SendDeterministic::new(config).unwrap();
    assert_eq!(low.incarnation(), Incarnation(0));
    assert_eq!(low.handle_checkpoint().unwrap().epoch, Epoch(2));
    assert!(!low.wants_checkpoint() && low.handle_checkpoint().is_err());
}
