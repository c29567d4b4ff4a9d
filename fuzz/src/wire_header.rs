//! Bytes from outside, read as a wire header.

use counterfoil_ack_piggyback::{Flags, HeaderError, Kind, Stamp, WireHeader};
use counterfoil_log_core::Incarnation;

/// Whatever parses is what a constructor would have written, and whatever doesn't is refused at a byte that is there.
pub fn wire_header(data: &[u8]) {
    match WireHeader::split(data) {
        Ok((header, rest)) => {
            assert_eq!(header.as_bytes(), &data[..WireHeader::LEN]);
            assert_eq!(rest, &data[WireHeader::LEN..]);
            round_trips(header);
            seals(header, rest);
        }
        Err(HeaderError::TooShort { len, needed }) => {
            assert_eq!((len, needed), (data.len(), WireHeader::LEN));
            assert!(len < needed);
        }
        Err(error) => assert!(error.offset() < data.len().min(WireHeader::LEN), "{error}"),
    }
}

fn round_trips(header: &WireHeader) {
    let (source, destination, origin, ack) = (header.source(), header.destination(), header.origin(), header.ack());
    assert_eq!(ack.is_some(), header.flags().contains(Flags::HAS_ACK));
    let written = match (header.kind(), ack) {
        (Kind::Message, _) => {
            let stamp = Stamp { ssn: header.ssn(), flags: header.flags() };
            WireHeader::message(&header.envelope(), stamp, origin, ack)
        }
        (Kind::Ack, Some(ack)) => WireHeader::ack_only(source, destination, origin, ack),
        (Kind::Ack, None) => panic!("an ack that acknowledges nothing was let through"),
        (Kind::AckRequest, _) => WireHeader::ack_request(source, destination, origin, header.ssn(), ack),
        (Kind::Control, _) => WireHeader::control(source, destination, origin, header.tag(), header.payload_len(), ack),
    };
    // Fields that a kind doesn't use, and a checksum, are the only ones that a constructor can't set.
    if header.kind() == Kind::Message && !header.flags().contains(Flags::CHECKED) {
        assert_eq!(&written, header);
    }
    assert_eq!(WireHeader::parse(written.as_bytes()), Ok(&written));

    let again = header.refreshed(Incarnation(7), ack, Flags::REPLAYED);
    assert_eq!(WireHeader::parse(again.as_bytes()), Ok(&again));
    assert_eq!((again.ssn(), again.envelope(), again.ack()), (header.ssn(), header.envelope(), ack));
    assert_eq!(again.checksum(), header.checksum());
}

/// A header passes with exactly the payload that it could have been sealed with.
fn seals(header: &WireHeader, rest: &[u8]) {
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
