//! Scenarios of Guermouche 2011, Figures 1 and 2, and rules that whole jobs survive without.

#![expect(clippy::unwrap_used, reason = "a scenario that can't be played fails its test")]

use counterfoil_ack_piggyback::{AckPolicy, Flags, Kind};
use counterfoil_log_core::{Envelope, Epoch, Incarnation, Rank};
use counterfoil_protocols::api::{Effect, Incoming, Protocol};
use counterfoil_protocols::send_deterministic::{Canary, Clusters, Config, SendDeterministic};

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
    let mut world = World::new(program, None).unwrap();
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
/// logged, m1 is not. When rank 1 fails both can be replayed, and m2 arrives first.
fn figure_2(canary: Option<Canary>) -> World {
    let program: Program = vec![
        vec![Op::Receive { tag: 1 }, Op::Send { to: 1, tag: 0 }],
        vec![Op::Receive { tag: 0 }, Op::Send { to: 0, tag: 1 }, Op::Receive { tag: 0 }],
        vec![Op::Send { to: 1, tag: 0 }],
    ];
    let mut world = World::new(program, canary).unwrap();
    world.save_checkpoint(1).unwrap();
    for rank in [2, 1, 1, 0, 0, 1] {
        world.advance(rank).unwrap();
    }
    world.kill(1).unwrap();
    world
}

#[test]
fn figure_2_a_logged_message_waits_for_the_orphan_that_it_depends_on() {
    let mut world = figure_2(None);
    world.finish().unwrap();
    assert_eq!(world.rolled_back(), [false, true, false]);
    assert!(figure_2(Some(Canary::DeliverWhileBlocked)).finish().is_err());
}

fn rank(rank: u32, canary: Option<Canary>) -> SendDeterministic {
    let mut protocol = SendDeterministic::new(Config { canary, ..Config::new(Rank(rank), 2) }).unwrap();
    let peer = SendDeterministic::new(Config::new(Rank(1 - rank), 2)).unwrap();
    protocol.handle_hello(Rank(1 - rank), &peer.hello(Rank(rank)).unwrap()).unwrap();
    protocol
}

fn envelope() -> Envelope {
    Envelope { source: Rank(0), destination: Rank(1), tag: 0, comm: 0, len: 8 }
}

/// Returns the number of explicit acknowledgements for three messages from the past to the future.
fn explicit_acks(canary: Option<Canary>) -> usize {
    let (mut sender, mut receiver) = (rank(0, None), rank(1, canary));
    let _ = receiver.handle_checkpoint().unwrap();
    for _ in 0..3 {
        let mut header = sender.handle_send(&envelope()).unwrap().header;
        sender.handle_transmit(&mut header).unwrap();
        assert_eq!(receiver.handle_message(&header).unwrap(), Incoming::Deliver { keep: None });
    }
    let is_ack = |effect: &Effect| matches!(effect, Effect::Transmit { header, .. } if header.kind() == Kind::Ack);
    std::iter::from_fn(|| receiver.poll_effect()).filter(is_ack).count()
}

#[test]
fn only_the_first_logged_message_of_an_epoch_is_acknowledged_at_once() {
    assert_eq!(explicit_acks(None), 1);
    assert_eq!(explicit_acks(Some(Canary::FirstLoggedAckMissing)), 0);
}

/// Logs a message and rolls its receiver back to an epoch in which it wouldn't be logged; returns the mark of its
/// replay, and the receiver's phase afterwards.
fn replay_of_a_logged_message(canary: Option<Canary>) -> (bool, u32) {
    let (mut sender, mut receiver) = (rank(0, canary), rank(1, None));
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
    let mut back = rank(1, None);
    sender.handle_hello(Rank(1), &back.hello(Rank(0)).unwrap()).unwrap();
    let mut again = header;
    sender.handle_transmit(&mut again).unwrap();
    assert_eq!(back.handle_message(&again).unwrap(), Incoming::Deliver { keep: None });
    (again.flags().contains(Flags::LOGGED), back.phase().0)
}

#[test]
fn the_replay_of_a_logged_message_is_marked_and_raises_the_phase() {
    assert_eq!(replay_of_a_logged_message(None), (true, 2));
    assert_eq!(replay_of_a_logged_message(Some(Canary::ReplayUnmarked)), (false, 1));
}

/// Returns the checkpoints that rank 0 has after it rolled back from epoch 2 to 1.
fn checkpoints_after_rollback(canary: Option<Canary>) -> Vec<u32> {
    let program: Program = vec![vec![Op::Send { to: 1, tag: 0 }], vec![Op::Receive { tag: 0 }]];
    let mut world = World::new(program, canary).unwrap();
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
    assert_eq!(checkpoints_after_rollback(None), [1]);
    assert_eq!(checkpoints_after_rollback(Some(Canary::BeyondLineKept)), [1, 2]);
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
