//! Fuzz body for the wire header: parses untrusted bytes.

use counterfoil_ack_piggyback::{Flags, HeaderError, Kind, Stamp, WireHeader};
use counterfoil_log_core::Incarnation;

/// Checks that each parsed header is one possible for a constructor, and errors name a byte in the input.
pub fn wire_header(data: &[u8]) {
    match WireHeader::split(data) {
        Ok((header, rest)) => {
            assert_eq!(header.as_bytes(), &data[..WireHeader::LEN]);
            assert_eq!(rest, &data[WireHeader::LEN..]);
            check_round_trip(header);
            check_seal(header, rest);
        }
        Err(HeaderError::TooShort { len, needed }) => {
            assert_eq!((len, needed), (data.len(), WireHeader::LEN));
            assert!(len < needed);
        }
        Err(error) => assert!(error.offset() < data.len().min(WireHeader::LEN), "{error}"),
    }
}

fn check_round_trip(header: &WireHeader) {
    let (source, destination, origin, ack) = (header.source(), header.destination(), header.origin(), header.ack());
    assert_eq!(ack.is_some(), header.flags().contains(Flags::HAS_ACK));
    let written = match (header.kind(), ack) {
        (Kind::Message, _) => {
            let stamp = Stamp { ssn: header.ssn(), flags: header.flags() };
            WireHeader::message(&header.envelope(), stamp, origin, ack)
        }
        (Kind::Ack, Some(ack)) => WireHeader::ack_only(source, destination, origin, ack),
        (Kind::Ack, None) => panic!("an explicit ack without an ack was accepted"),
        (Kind::AckRequest, _) => WireHeader::ack_request(source, destination, origin, header.ssn(), ack),
        (Kind::Control, _) => WireHeader::control(source, destination, origin, header.tag(), header.payload_len(), ack),
    };
    // A constructor sets all fields except those unused by the kind, and the checksum.
    if header.kind() == Kind::Message && !header.flags().contains(Flags::CHECKED) {
        assert_eq!(&written, header);
    }
    assert_eq!(WireHeader::parse(written.as_bytes()), Ok(&written));

    let refreshed = header.refreshed(Incarnation(7), ack, Flags::REPLAYED);
    assert_eq!(WireHeader::parse(refreshed.as_bytes()), Ok(&refreshed));
    assert_eq!((refreshed.ssn(), refreshed.envelope(), refreshed.ack()), (header.ssn(), header.envelope(), ack));
    assert_eq!(refreshed.checksum(), header.checksum());
}

/// Checks that a header verifies only with the payload that it was sealed with.
fn check_seal(header: &WireHeader, rest: &[u8]) {
    let payload = usize::try_from(header.payload_len()).ok().and_then(|len| rest.get(..len));
    let Some(payload) = payload else {
        assert_eq!(header.verify(rest).is_err(), header.flags().contains(Flags::CHECKED));
        return;
    };
    let mut sealed = *header;
    sealed.seal(payload);
    assert_eq!(WireHeader::parse(sealed.as_bytes()), Ok(&sealed));
    assert_eq!(sealed.verify(payload), Ok(()));
    assert_eq!(sealed.refreshed(Incarnation(7), header.ack(), Flags::LOGGED).verify(payload), Ok(()));
    let passes = !header.flags().contains(Flags::CHECKED) || sealed == *header;
    assert_eq!(header.verify(payload).is_ok(), passes);
}
