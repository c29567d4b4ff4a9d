//! Mistakes in the pessimistic rule.
//!
//! The simulator shows that each is found.

use counterfoil_ack_piggyback::{AckPolicy, WireHeader};
use counterfoil_canaries::Canary;
use counterfoil_log_core::{Determinant, Envelope, Incarnation, Rank, Ssn};
use counterfoil_protocols::api::{ChoiceRecord, Effect, EntryKind, Incoming, Protocol};
use counterfoil_protocols::pessimistic::{Config, Pessimistic};

const A: Rank = Rank(0);
const B: Rank = Rank(1);
/// Receiver.
const R: Rank = Rank(2);

fn rank(rank: Rank, incarnation: u32) -> Pessimistic {
    let policy = AckPolicy::default();
    Pessimistic::new(Config { rank, ranks: 3, incarnation: Incarnation(incarnation), policy }).unwrap()
}

/// Returns headers for two messages from `A` to `R`.
fn messages() -> [WireHeader; 2] {
    let mut sender = rank(A, 0);
    let envelope = Envelope { source: A, destination: R, tag: 0, comm: 0, len: 8 };
    [(); 2].map(|()| {
        let mut header = sender.handle_send(&envelope).unwrap().header;
        sender.handle_transmit(&mut header).unwrap();
        header
    })
}

fn record(source: Rank) -> Vec<u8> {
    ChoiceRecord::new(Determinant { sequence: 0, source, ssn: Ssn(1) }).bytes.to_vec()
}

fn effects(of: &mut Pessimistic) -> Vec<Effect> {
    std::iter::from_fn(|| of.poll_effect()).collect()
}

#[test]
fn a_determinant_is_written_late() {
    let _planted = Canary::RecordedLate.plant();
    let mut late = rank(R, 0);
    for (message, written) in messages().iter().zip([false, true]) {
        assert_eq!(late.handle_message(message).unwrap(), Incoming::Deliver { keep: None });
        let first = |effect: &Effect| {
            matches!(effect, Effect::KeepEntry { entry, bytes }
                if (entry.kind, entry.number) == (EntryKind::Delivery, 0) && *bytes == record(A))
        };
        assert_eq!(effects(&mut late).iter().filter(|effect| first(effect)).count(), usize::from(written));
    }
}

#[test]
fn a_replacement_delivers_in_arrival_order() {
    let _planted = Canary::OrderNotForced.plant();
    let mut free = rank(R, 1);
    free.handle_recovered_delivery(&record(B)).unwrap();
    assert_eq!(free.handle_message(&messages()[0]).unwrap(), Incoming::Deliver { keep: None });
}

#[test]
fn deliveries_are_dropped_when_a_checkpoint_begins() {
    let _planted = Canary::DroppedEarly.plant();
    let mut early = rank(R, 0);
    assert!(matches!(early.handle_message(&messages()[0]).unwrap(), Incoming::Deliver { keep: Some(_) }));
    effects(&mut early);
    assert!(early.handle_checkpoint().is_ok());
    assert!(matches!(effects(&mut early)[..], [Effect::DiscardDeliveries { before: 1 }]));
}
