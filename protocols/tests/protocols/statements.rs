//! Statements about the sender-based rule, each shown on two or three state machines without a network.

// A failure here fails the test.

mod acknowledgements;
mod checkpoints;
mod choices;
mod replay;

use counterfoil_ack_piggyback::{Ack, AckPolicy, Flags, Kind, WireHeader};
use counterfoil_log_core::{Determinant, Envelope, Epoch, Incarnation, Rank, Ssn};
use counterfoil_protocols::api::{
    ChoiceError, ChoiceRecord, CollectiveCall, CollectiveClass, CollectivePlan, DiscardReason, Effect, EntryKey,
    EntryKind, Hello, HelloError, Incoming, Misbehaviour, Party, Protocol, ProtocolError, RestoreError,
};
use counterfoil_protocols::sender_based::{Config, SenderBased};

const A: Rank = Rank(0);
const B: Rank = Rank(1);

fn rank(rank: Rank, incarnation: u32) -> SenderBased {
    with_policy(rank, incarnation, AckPolicy::default())
}

fn with_policy(rank: Rank, incarnation: u32, policy: AckPolicy) -> SenderBased {
    SenderBased::new(Config { rank, ranks: 3, incarnation: Incarnation(incarnation), policy }).unwrap()
}

fn restored(id: Rank, incarnation: u32, tables: &[u8]) -> SenderBased {
    let mut fresh = rank(id, incarnation);
    fresh.restore(tables, Epoch::FIRST).unwrap();
    effects(&mut fresh);
    fresh
}

/// Sends a message and puts it on the wire.
fn send(from: &mut SenderBased, to: Rank) -> WireHeader {
    let source = from.config().rank;
    let envelope = Envelope { source, destination: to, tag: 0, comm: 0, len: 8 };
    let header = from.handle_send(&envelope).unwrap().header;
    transmit(from, &header)
}

/// Puts a record on the wire, for the first time or again.
fn transmit(from: &mut SenderBased, header: &WireHeader) -> WireHeader {
    let mut header = *header;
    from.handle_transmit(&mut header).unwrap();
    header
}

fn send_many(from: &mut SenderBased, to: Rank, count: usize) -> Vec<WireHeader> {
    (0..count).map(|_| send(from, to)).collect()
}

fn receive_all(at: &mut SenderBased, headers: &[WireHeader]) {
    for header in headers {
        assert_eq!(at.handle_message(header).unwrap(), Incoming::Deliver { keep: None });
    }
}

fn effects(of: &mut SenderBased) -> Vec<Effect> {
    std::iter::from_fn(|| of.poll_effect()).collect()
}

/// Exchanges encoded Hellos; returns the effects of each side.
fn meet(a: &mut SenderBased, b: &mut SenderBased) -> (Vec<Effect>, Vec<Effect>) {
    let (rank_a, rank_b) = (a.config().rank, b.config().rank);
    let from_a = Hello::decode(&a.hello(rank_b).unwrap().encode().unwrap()).unwrap();
    let from_b = Hello::decode(&b.hello(rank_a).unwrap().encode().unwrap()).unwrap();
    a.handle_hello(rank_b, &from_b).unwrap();
    b.handle_hello(rank_a, &from_a).unwrap();
    (effects(a), effects(b))
}

/// Returns the SSN after which `effects` replay to `to`.
fn replays_after(effects: &[Effect], to: Rank) -> Option<Ssn> {
    effects.iter().find_map(|effect| match effect {
        Effect::Replay { peer, after, .. } if *peer == to => Some(*after),
        _ => None,
    })
}

fn acknowledged(effects: &[Effect]) -> Vec<Ssn> {
    let ssn = |effect: &Effect| match effect {
        Effect::Acknowledged { ack, .. } => Some(ack.ssn),
        _ => None,
    };
    effects.iter().filter_map(ssn).collect()
}

fn covered(effects: &[Effect]) -> Vec<(Rank, Ssn)> {
    let upto = |effect: &Effect| match effect {
        Effect::Covered { peer, upto, .. } => Some((*peer, *upto)),
        _ => None,
    };
    effects.iter().filter_map(upto).collect()
}

fn control_frames(effects: &[Effect]) -> Vec<(Rank, WireHeader, Vec<u8>)> {
    let frame = |effect: &Effect| match effect {
        Effect::Transmit { to: Party::Rank(to), header, body } => Some((*to, *header, body.clone())),
        _ => None,
    };
    effects.iter().filter_map(frame).collect()
}

fn notices(effects: &[Effect]) -> Vec<(Rank, WireHeader, Vec<u8>)> {
    let mut frames = control_frames(effects);
    frames.retain(|(_, header, _)| header.kind() == Kind::Control);
    frames
}

fn durable_checkpoint(of: &mut SenderBased) -> (Vec<u8>, Vec<Effect>) {
    let snapshot = of.handle_checkpoint().unwrap();
    of.handle_checkpoint_durable(snapshot.epoch).unwrap();
    (snapshot.tables, effects(of))
}
