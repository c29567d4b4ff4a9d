//! Inputs for the wire header: valid and invalid headers.

use counterfoil_ack_piggyback::{Ack, Flags, Origin, Stamp, WireHeader};
use counterfoil_log_core::{Envelope, Epoch, Incarnation, Phase, Rank, Ssn};

pub(crate) fn headers() -> Vec<(&'static str, Vec<u8>)> {
    let envelope = Envelope { source: Rank(3), destination: Rank(4), tag: -5, comm: 6, len: 7 };
    let origin = Origin { incarnation: Incarnation(8), epoch: Epoch(9), phase: Phase(10) };
    let ack = Some(Ack { ssn: Ssn(12), epoch: Epoch(13) });
    let (from, to) = (envelope.source, envelope.destination);
    let stamp = Stamp { ssn: Ssn(11), flags: Flags::LARGE | Flags::LOGGED };
    let message = WireHeader::message(&envelope, stamp, origin, ack).as_bytes().to_vec();
    let limits = {
        let envelope =
            Envelope { source: Rank::MAX, destination: Rank::MAX, tag: i32::MIN, comm: u32::MAX, len: u64::MAX };
        let origin = Origin { incarnation: Incarnation(u32::MAX), epoch: Epoch::MAX, phase: Phase(u32::MAX) };
        let ack = Some(Ack { ssn: Ssn::MAX, epoch: Epoch::MAX });
        WireHeader::message(&envelope, Stamp { ssn: Ssn::MAX, flags: Flags::NONE }, origin, ack).as_bytes().to_vec()
    };
    let sealed = |payload: &[u8]| {
        let mut header = WireHeader::message(&envelope, stamp, origin, ack);
        header.seal(payload);
        header.as_bytes().to_vec()
    };
    let with = |mut bytes: Vec<u8>, at: usize, to: u8| {
        bytes[at] = to;
        bytes
    };
    let changed = |at: usize, to: u8| with(message.clone(), at, to);
    let ack_only = WireHeader::ack_only(from, to, origin, Ack { ssn: Ssn(1), epoch: Epoch(1) }).as_bytes().to_vec();
    let no_ack = {
        let mut bytes = ack_only.clone();
        bytes[3] = 0;
        bytes
    };
    vec![
        ("empty", Vec::new()),
        ("message", message.clone()),
        ("message-with-payload", [message.as_slice(), b"payload"].concat()),
        ("message-at-every-limit", limits),
        ("sealed", [sealed(b"payload"), b"payload".to_vec()].concat()),
        ("sealed-with-trailing-bytes", [sealed(b"payload"), b"payload and more".to_vec()].concat()),
        ("sealed-with-another-payload", [sealed(b"payload"), b"another".to_vec()].concat()),
        ("sealed-without-payload", sealed(b"payload")),
        ("sealed-for-another-rank", with([sealed(b"payload"), b"payload".to_vec()].concat(), 12, 5)),
        ("checksum-without-the-flag", with(sealed(b"payload"), 3, stamp.flags.union(Flags::HAS_ACK).bits())),
        ("flag-without-a-checksum", changed(3, stamp.flags.union(Flags::HAS_ACK | Flags::CHECKED).bits())),
        ("ack", ack_only),
        ("ack-without-an-ack", no_ack),
        ("ack-request", WireHeader::ack_request(from, to, origin, Ssn(5), None).as_bytes().to_vec()),
        ("control", WireHeader::control(from, to, origin, 77, 5, ack).as_bytes().to_vec()),
        ("truncated-in-the-first-word", message[..7].to_vec()),
        ("truncated-before-the-last-byte", message[..63].to_vec()),
        ("wrong-magic", changed(0, b'X')),
        ("wrong-version", changed(1, 2)),
        ("unknown-kind", changed(2, 0)),
        ("unknown-flag", changed(3, 0x80)),
        ("ack-fields-without-the-flag", changed(3, 0)),
    ]
}
