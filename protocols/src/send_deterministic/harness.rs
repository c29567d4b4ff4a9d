//! Two ranks, for unit tests.

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::{Envelope, Incarnation, Rank};

use super::notice::{self, Command, Covered, Report};
use super::{Config, SendDeterministic};
use crate::api::{Effect, Party, Protocol, command_header};

pub(super) const A: Rank = Rank(0);
pub(super) const B: Rank = Rank(1);

pub(super) fn rank(rank: Rank, incarnation: u32) -> SendDeterministic {
    SendDeterministic::new(Config { incarnation: Incarnation(incarnation), ..Config::new(rank, 2) }).unwrap()
}

/// Returns the two ranks after their first Hellos.
pub(super) fn pair() -> (SendDeterministic, SendDeterministic) {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    meet(&mut a, &mut b);
    effects(&mut a);
    effects(&mut b);
    (a, b)
}

/// Exchanges Hellos.
pub(super) fn meet(a: &mut SendDeterministic, b: &mut SendDeterministic) {
    let (from_a, from_b) = (a.hello(B).unwrap(), b.hello(A).unwrap());
    a.handle_hello(B, &from_b).unwrap();
    b.handle_hello(A, &from_a).unwrap();
}

pub(super) fn envelope(source: Rank, destination: Rank) -> Envelope {
    Envelope { source, destination, tag: 0, comm: 0, len: 8 }
}

/// Sends a message and puts it on the wire.
pub(super) fn send(rank: &mut SendDeterministic, source: Rank, destination: Rank) -> WireHeader {
    let mut header = rank.handle_send(&envelope(source, destination)).unwrap().header;
    rank.handle_transmit(&mut header).unwrap();
    header
}

pub(super) fn command(rank: &mut SendDeterministic, command: &Command) {
    let body = notice::encode(command);
    rank.handle_control(Party::Coordinator, &command_header(A, &body), &body).unwrap();
}

/// Takes a durable checkpoint; returns its tables.
pub(super) fn checkpoint(rank: &mut SendDeterministic) -> Vec<u8> {
    let snapshot = rank.handle_checkpoint().unwrap();
    rank.handle_checkpoint_durable(snapshot.epoch).unwrap();
    snapshot.tables
}

pub(super) fn effects(rank: &mut SendDeterministic) -> Vec<Effect> {
    std::iter::from_fn(|| rank.poll_effect()).collect()
}

/// Returns the last message in each effect `Acknowledged`.
pub(super) fn acknowledged(rank: &mut SendDeterministic) -> Vec<u64> {
    let ssn = |effect| if let Effect::Acknowledged { ack, .. } = effect { Some(ack.ssn.0) } else { None };
    effects(rank).into_iter().filter_map(ssn).collect()
}

/// Returns the reports to the recovery process.
pub(super) fn reports(rank: &mut SendDeterministic) -> Vec<Report> {
    let report = |effect| match effect {
        Effect::Transmit { to: Party::Coordinator, body, .. } => Report::decode(&body, 2),
        _ => None,
    };
    effects(rank).into_iter().filter_map(report).collect()
}

/// Returns the promises among effects, as (messages not asked for, messages not sent again).
pub(super) fn promises(effects: &[Effect]) -> Vec<(u64, u64)> {
    let promise = |effect: &Effect| match effect {
        Effect::Transmit { to: Party::Rank(_), body, .. } => notice::decode::<Covered>(body),
        _ => None,
    };
    effects.iter().filter_map(promise).map(|covered| (covered.upto, covered.stable)).collect()
}
