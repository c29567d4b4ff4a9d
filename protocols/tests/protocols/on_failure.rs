//! Ranks of Checkpoint-on-Failure; its coordinator has separate tests, and the simulator runs all together.

use counterfoil_ack_piggyback::{Origin, WireHeader};
use counterfoil_log_core::{Envelope, Incarnation, Rank};
use counterfoil_protocols::api::{Effect, Incoming, Misbehaviour, Party, Protocol, ProtocolError, command_header};
use counterfoil_protocols::on_failure::{OnFailure, States};

const NONE: [(Party, Vec<u8>); 0] = [];

fn rank(rank: u32, generation: u32) -> OnFailure {
    OnFailure::new(Rank(rank), 3, Incarnation(generation), States::Saved).unwrap()
}

/// Makes two ranks known to each other.
fn connect(one: &mut OnFailure, other: &mut OnFailure, (at_one, at_other): (u32, u32)) {
    one.handle_hello(Rank(at_other), &other.hello(Rank(at_one)).unwrap()).unwrap();
    other.handle_hello(Rank(at_one), &one.hello(Rank(at_other)).unwrap()).unwrap();
    [one, other].into_iter().for_each(|rank| drop(effects(rank)));
}

fn effects(of: &mut OnFailure) -> Vec<Effect> {
    std::iter::from_fn(|| of.poll_effect()).collect()
}

/// Returns what a rank transmits, and whether it exits with its state saved.
fn told(of: &mut OnFailure) -> (Vec<(Party, Vec<u8>)>, Option<bool>) {
    let (mut told, mut exits) = (Vec::new(), None);
    for effect in effects(of) {
        match effect {
            Effect::Transmit { to, body, .. } => {
                assert_eq!(exits, None, "the notice comes first");
                told.push((to, body));
            }
            Effect::SaveAndExit { saves } => exits = Some(saves),
            other => panic!("{other:?}"),
        }
    }
    (told, exits)
}

/// Returns the loss notice for a generation.
fn notice(generation: u32) -> Vec<u8> {
    let mut rank = rank(0, generation);
    rank.handle_peer_lost(Rank(1)).unwrap();
    told(&mut rank).0.swap_remove(0).1
}

#[test]
fn who_learns_of_a_loss_tells_all_others_before_it_saves_and_once() {
    let mut rank = rank(1, 0);
    rank.handle_rebuilt().unwrap();
    effects(&mut rank);
    rank.handle_peer_lost(Rank(2)).unwrap();
    let (said, exits) = told(&mut rank);
    let to: Vec<Party> = said.iter().map(|(to, _)| *to).collect();
    assert_eq!((to, exits), (vec![Party::Rank(Rank(0)), Party::Rank(Rank(2)), Party::Coordinator], Some(true)));
    assert!(!rank.is_running() && rank.is_recovering());
    rank.handle_peer_lost(Rank(0)).unwrap();
    let body = notice(0);
    rank.handle_control(Party::Coordinator, &command_header(Rank(1), &body), &body).unwrap();
    assert_eq!(told(&mut rank), (NONE.to_vec(), None));
}

#[test]
fn a_rank_whose_state_is_in_memory_saves_nothing() {
    let mut rank = OnFailure::new(Rank(1), 3, Incarnation(0), States::InMemory).unwrap();
    rank.handle_rebuilt().unwrap();
    effects(&mut rank);
    rank.handle_peer_lost(Rank(2)).unwrap();
    let (said, exits) = told(&mut rank);
    assert_eq!((said.len(), exits), (3, Some(false)));
    assert!(rank.properties().keeps_states_in_memory);
}

#[test]
fn a_notice_counts_from_a_peer_and_from_the_coordinator_in_its_generation() {
    for generation in [0, 3] {
        let body = notice(generation);
        let header = WireHeader::control(Rank(0), Rank(1), Origin::default(), 1, body.len() as u64, None);
        let from_peer = |of: &mut OnFailure| of.handle_control(Party::Rank(Rank(0)), &header, &body);
        let command = command_header(Rank(1), &body);
        let from_coordinator = |of: &mut OnFailure| of.handle_control(Party::Coordinator, &command, &body);
        for other in [generation, generation + 1] {
            let (mut one, mut two) = (rank(1, other), rank(1, other));
            from_peer(&mut one).unwrap();
            from_coordinator(&mut two).unwrap();
            for rank in [&mut one, &mut two] {
                let saves = (other == generation).then_some(false);
                assert_eq!(told(rank).1, saves, "a notice of generation {generation} in {other}");
            }
        }
    }
}

#[test]
fn a_state_is_saved_only_when_it_is_rebuilt() {
    let mut rebuilding = rank(1, 2);
    assert!(rebuilding.is_running() && rebuilding.is_recovering());
    rebuilding.handle_peer_lost(Rank(2)).unwrap();
    assert_eq!(told(&mut rebuilding).1, Some(false));
    let mut rebuilt = rank(1, 2);
    rebuilt.handle_rebuilt().unwrap();
    let (said, exits) = told(&mut rebuilt);
    assert!(matches!(said[..], [(Party::Coordinator, _)]) && exits.is_none(), "{said:?}");
    assert!(rebuilt.is_running() && !rebuilt.is_recovering());
    rebuilt.handle_rebuilt().unwrap();
    assert_eq!(told(&mut rebuilt).0, NONE);
    rebuilt.handle_peer_lost(Rank(2)).unwrap();
    assert_eq!(told(&mut rebuilt).1, Some(true));
}

#[test]
fn messages_are_delivered_until_a_loss_and_held_from_then_on() {
    let (mut sender, mut receiver) = (rank(0, 1), rank(1, 1));
    connect(&mut sender, &mut receiver, (0, 1));
    let mut send = || {
        let envelope = Envelope { source: Rank(0), destination: Rank(1), tag: 0, comm: 0, len: 8 };
        let sent = sender.handle_send(&envelope).unwrap();
        assert!(!sent.keep_record);
        let mut header = sent.header;
        sender.handle_transmit(&mut header).unwrap();
        header
    };
    let (first, second) = (send(), send());
    assert_eq!(receiver.handle_message(&first).unwrap(), Incoming::Deliver { keep: None });
    receiver.handle_peer_lost(Rank(2)).unwrap();
    assert_eq!(receiver.handle_message(&second).unwrap(), Incoming::Hold);
}

#[test]
fn a_notice_that_cannot_be_read_is_refused() {
    let mut rank = rank(1, 0);
    for body in [&[][..], &[7], &[1, 0]] {
        let header = WireHeader::control(Rank(2), Rank(1), Origin::default(), 1, body.len() as u64, None);
        // From a rank, the notice of a rebuilt state is refused.
        let refused = rank.handle_control(Party::Rank(Rank(2)), &header, body);
        let how = Misbehaviour::MalformedNotice { tag: 1, len: body.len() };
        assert_eq!(refused, Err(ProtocolError::PeerMisbehaved { peer: Rank(2), how }));
    }
    let misdirected = WireHeader::control(Rank(2), Rank(0), Origin::default(), 1, 2, None);
    assert!(rank.handle_control(Party::Rank(Rank(2)), &misdirected, &notice(0)).is_err());
    assert_eq!(told(&mut rank), (NONE.to_vec(), None));
}
