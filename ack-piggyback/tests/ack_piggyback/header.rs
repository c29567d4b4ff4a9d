//! The wire header: round trips, and untrusted input.

use counterfoil_ack_piggyback::{Ack, ChecksumError, Flags, HeaderError, Kind, Origin, Stamp, WireHeader};
use counterfoil_log_core::{Envelope, Epoch, Incarnation, Phase, Rank, Ssn};
use proptest::prelude::*;

fn ranks() -> impl Strategy<Value = Rank> {
    (0..=Rank::MAX.0).prop_map(Rank)
}

fn origins() -> impl Strategy<Value = Origin> {
    (any::<u32>(), 1..=Epoch::MAX.0, any::<u32>()).prop_map(|(incarnation, epoch, phase)| Origin {
        incarnation: Incarnation(incarnation),
        epoch: Epoch(epoch),
        phase: Phase(phase),
    })
}

fn acks() -> impl Strategy<Value = Option<Ack>> {
    proptest::option::of(
        (1..=Ssn::MAX.0, 1..=Epoch::MAX.0).prop_map(|(ssn, epoch)| Ack { ssn: Ssn(ssn), epoch: Epoch(epoch) }),
    )
}

fn envelopes() -> impl Strategy<Value = Envelope> {
    (ranks(), ranks(), any::<i32>(), any::<u32>(), any::<u64>())
        .prop_map(|(source, destination, tag, comm, len)| Envelope { source, destination, tag, comm, len })
}

/// Flags set and cleared by the header itself only.
const OWN: Flags = Flags::HAS_ACK.union(Flags::CHECKED);

/// Flags a sender may choose.
fn flags() -> impl Strategy<Value = Flags> {
    (0u8..64).prop_filter_map("known flags", Flags::from_bits).prop_map(|flags| flags.without(OWN))
}

fn messages() -> impl Strategy<Value = WireHeader> {
    (envelopes(), 1..=Ssn::MAX.0, flags(), origins(), acks()).prop_map(|(envelope, ssn, flags, origin, ack)| {
        WireHeader::message(&envelope, Stamp { ssn: Ssn(ssn), flags }, origin, ack)
    })
}

/// Source, destination, and the source's state.
fn ends() -> impl Strategy<Value = (Rank, Rank, Origin)> {
    (ranks(), ranks(), origins())
}

fn headers() -> impl Strategy<Value = WireHeader> {
    prop_oneof![
        4 => messages(),
        1 => (ends(), acks()).prop_filter_map("an ack", |((from, to, origin), ack)| {
            Some(WireHeader::ack_only(from, to, origin, ack?))
        }),
        1 => (ends(), 1..=Ssn::MAX.0, acks())
            .prop_map(|((from, to, origin), ssn, ack)| WireHeader::ack_request(from, to, origin, Ssn(ssn), ack)),
        1 => (ends(), any::<i32>(), any::<u64>(), acks())
            .prop_map(|((from, to, origin), tag, len, ack)| WireHeader::control(from, to, origin, tag, len, ack)),
    ]
}

proptest! {
    #[test]
    fn every_constructed_header_round_trips(header in headers(), rest in any::<Vec<u8>>()) {
        let mut frame = header.as_bytes().to_vec();
        frame.extend_from_slice(&rest);
        let (parsed, after) = WireHeader::split(&frame).unwrap();
        prop_assert_eq!(parsed, &header);
        prop_assert_eq!(after, &rest);
    }

    #[test]
    fn getters_return_the_fields_of_a_message(
        envelope in envelopes(), ssn in 1..=Ssn::MAX.0, flags in flags(), origin in origins(), ack in acks()
    ) {
        let header = WireHeader::message(&envelope, Stamp { ssn: Ssn(ssn), flags }, origin, ack);
        prop_assert_eq!(header.kind(), Kind::Message);
        prop_assert_eq!(header.envelope(), envelope);
        prop_assert_eq!(header.ssn(), Ssn(ssn));
        prop_assert_eq!(header.origin(), origin);
        prop_assert_eq!(header.ack(), ack);
        prop_assert_eq!(header.flags().without(Flags::HAS_ACK), flags);
        prop_assert_eq!(header.checksum(), 0);
    }

    #[test]
    fn a_refreshed_header_differs_only_in_the_variable_fields(
        header in messages(), incarnation in any::<u32>(), ack in acks(), flags in flags(), seal in any::<bool>()
    ) {
        let mut header = header;
        if seal {
            header.seal(b"");
        }
        let fresh = header.refreshed(Incarnation(incarnation), ack, flags);
        prop_assert_eq!(fresh.incarnation(), Incarnation(incarnation));
        prop_assert_eq!(fresh.ack(), ack);
        let of_the_message = Flags::LARGE | Flags::CHECKED;
        let others = of_the_message | Flags::HAS_ACK;
        prop_assert_eq!(fresh.flags().without(others), flags.without(others));
        prop_assert_eq!(fresh.flags().intersection(of_the_message), header.flags().intersection(of_the_message));
        prop_assert_eq!(fresh.checksum(), header.checksum());
        prop_assert_eq!(fresh.refreshed(header.incarnation(), header.ack(), header.flags()), header);
    }

    #[test]
    fn a_sealed_message_verifies_until_it_is_modified(
        header in messages(), payload in proptest::collection::vec(any::<u8>(), 1..200), at in any::<usize>(),
        flip in 1u8.., incarnation in any::<u32>(), ack in acks(), flags in flags()
    ) {
        let envelope = Envelope { len: payload.len() as u64, ..header.envelope() };
        let stamp = Stamp { ssn: header.ssn(), flags: header.flags() };
        let mut header = WireHeader::message(&envelope, stamp, header.origin(), header.ack());
        prop_assert_eq!(header.verify(b"anything"), Ok(()), "it was not sealed");
        header.seal(&payload);
        prop_assert_eq!(header.verify(&payload), Ok(()));
        // A retransmission doesn't modify the message.
        let again = header.refreshed(Incarnation(incarnation), ack, flags);
        prop_assert_eq!(again.verify(&payload), Ok(()));
        prop_assert_eq!(WireHeader::parse(again.as_bytes()), Ok(&again));
        let mut other = payload.clone();
        other[at % payload.len()] ^= flip;
        let is_noticed = matches!(header.verify(&other), Err(ChecksumError::Differs { .. }));
        prop_assert!(is_noticed);
        let (len, found) = (payload.len() as u64, payload.len() as u64 - 1);
        let short = ChecksumError::Length {
            source_rank: header.source(), destination: header.destination(), ssn: header.ssn(), len, found,
        };
        prop_assert_eq!(header.verify(&payload[1..]), Err(short));
    }

    #[test]
    fn untrusted_bytes_never_panic(bytes in any::<[u8; 80]>(), len in 0usize..80) {
        let _ = WireHeader::parse(&bytes[..len]);
    }
}

fn example() -> WireHeader {
    let envelope = Envelope { source: Rank(3), destination: Rank(4), tag: -5, comm: 6, len: 7 };
    let origin = Origin { incarnation: Incarnation(8), epoch: Epoch(9), phase: Phase(10) };
    let stamp = Stamp { ssn: Ssn(11), flags: Flags::LARGE };
    WireHeader::message(&envelope, stamp, origin, Some(Ack { ssn: Ssn(12), epoch: Epoch(13) }))
}

fn sealed_example() -> WireHeader {
    let mut header = example();
    header.seal(b"payload");
    header
}

#[test]
fn the_bytes_are_laid_out_as_documented() {
    let mut expected = vec![0xCF, 1, 1, 0b1010, 0, 0, 0, 0];
    for word in [3, 4, 8, 9, 10, -5i32 as u32, 6, 13] {
        expected.extend_from_slice(&word.to_le_bytes());
    }
    for word in [7u64, 11, 12] {
        expected.extend_from_slice(&word.to_le_bytes());
    }
    assert_eq!(example().as_bytes(), expected);

    // Bytes covered by the checksum.
    let mut covered = expected.clone();
    covered[3] = 0b10;
    covered[16..20].fill(0);
    covered[36..40].fill(0);
    covered[56..].fill(0);
    covered.extend_from_slice(b"payload");
    let checksum = crc32c::crc32c(&covered);
    expected[3] = 0b10_1010;
    expected[4..8].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(sealed_example().as_bytes(), expected);
    assert_eq!(sealed_example().checksum(), checksum);
}

#[test]
fn a_header_is_printed_by_its_fields() {
    let printed = format!("{:?}", example());
    assert!(printed.starts_with("WireHeader { kind: Message, flags: Flags(LARGE | HAS_ACK), envelope: "), "{printed}");
}

#[test]
fn a_truncated_header_is_refused() {
    let header = example();
    for len in 0..WireHeader::LEN {
        let cut = WireHeader::parse(&header.as_bytes()[..len]);
        assert_eq!(cut, Err(HeaderError::TooShort { len, needed: WireHeader::LEN }));
    }
}

/// The first four bytes determine the meaning of the rest: any flipped bit there is detected, except in a flag without
/// contradiction.
///
/// After them every value within its type's limits gives a valid, different header.
#[test]
fn any_flipped_bit_is_refused_with_its_place_or_gives_another_valid_header() {
    let header = example();
    for byte in 0..WireHeader::LEN {
        for bit in 0..8 {
            let mut bytes = header.as_bytes().to_vec();
            bytes[byte] ^= 1 << bit;
            match WireHeader::parse(&bytes) {
                Ok(parsed) => {
                    assert!(byte >= 8 || byte == 3, "byte {byte}, bit {bit} went unnoticed: {parsed:?}");
                    assert_ne!(parsed, &header);
                    assert_eq!(parsed.as_bytes(), bytes);
                }
                Err(error) => {
                    // Kind and flags restrict other fields: a contradiction is reported at the other field.
                    let contradicts = (2..4).contains(&byte) && error.offset() > byte;
                    let field = error.offset()..error.offset() + 8;
                    assert!(contradicts || field.contains(&byte), "byte {byte}, bit {bit}: {error}");
                }
            }
        }
    }
}

/// In a sealed message only changes to the fields varying with each transmission are undetected.
#[test]
fn any_flipped_bit_of_a_sealed_message_is_detected_except_in_the_variable_fields() {
    let header = sealed_example();
    for byte in 0..WireHeader::LEN {
        for bit in 0..8 {
            let mut bytes = header.as_bytes().to_vec();
            bytes[byte] ^= 1 << bit;
            let is_unnoticed = WireHeader::parse(&bytes).is_ok_and(|header| header.verify(b"payload").is_ok());
            let may_change = match byte {
                // REPLAYED, LOGGED, ACK_REQUESTED and AM_LOGGING.
                3 => 0b101_0101 & (1 << bit) != 0,
                16..20 | 36..40 | 56..64 => true,
                _ => false,
            };
            assert!(may_change || !is_unnoticed, "byte {byte}, bit {bit}");
        }
    }
}

#[test]
fn a_checksum_and_its_flag_agree() {
    let mut bytes = sealed_example().as_bytes().to_vec();
    bytes[3] &= !Flags::CHECKED.bits();
    let found = sealed_example().checksum().into();
    assert_eq!(
        WireHeader::parse(&bytes),
        Err(HeaderError::OutOfRange { offset: 4, field: "a checksum", found, least: 0, most: 0 })
    );
    // A constructor doesn't set CHECKED.
    let claimed = Stamp { ssn: Ssn(1), flags: Flags::CHECKED };
    let header = WireHeader::message(&example().envelope(), claimed, Origin::default(), None);
    assert_eq!(header.flags(), Flags::NONE);
    assert_eq!(header.refreshed(Incarnation(0), None, Flags::CHECKED).flags(), Flags::NONE);
}

#[test]
fn errors_name_the_byte_and_the_expected_value() {
    let altered = |at: usize, with: &[u8]| {
        let mut bytes = example().as_bytes().to_vec();
        bytes[at..at + with.len()].copy_from_slice(with);
        WireHeader::parse(&bytes).unwrap_err().to_string()
    };
    assert_eq!(altered(0, b"X"), "byte 0: expected the magic 0xcf, found 0x58");
    assert_eq!(altered(1, &[2]), "byte 1: expected version 1, found 2");
    assert_eq!(altered(2, &[9]), "byte 2: expected a kind from 1 to 4, found 9");
    assert_eq!(altered(3, &[0x8a]), "byte 3: expected flags within 0x7f, found 0x8a");
    assert_eq!(altered(4, &[7]), "byte 4: expected a checksum from 0 to 0, found 7");
    assert_eq!(altered(8, &[255; 4]), "byte 8: expected a source rank from 0 to 4294967294, found 4294967295");
    assert_eq!(altered(20, &[0; 4]), "byte 20: expected an epoch from 1 to 4294967294, found 0");
    assert!(altered(48, &[0; 8]).starts_with("byte 48: expected an SSN from 1 to "));
    assert!(altered(56, &[255; 8]).starts_with("byte 56: expected an acked SSN from 1 to "));
    let (expected, found) = (sealed_example().checksum(), crc32c::crc32c(b"x"));
    let differs = ChecksumError::Differs { source_rank: Rank(3), destination: Rank(4), ssn: Ssn(11), expected, found };
    assert_eq!(
        differs.to_string(),
        format!(
            "SSN 11 from rank 3 to rank 4 was sealed with the checksum {expected:#010x}, and its bytes have {found:#010x} now"
        )
    );
    let longer = sealed_example().verify(b"payload and more").unwrap_err();
    assert_eq!(longer.to_string(), "SSN 11 from rank 3 to rank 4 has 16 bytes of payload, and its header says 7");
}

#[test]
fn ack_fields_and_their_flag_agree() {
    let with = |at: usize, byte: u8, ack: Option<Ack>| {
        let mut bytes = example().refreshed(Incarnation(8), ack, Flags::NONE).as_bytes().to_vec();
        bytes[at] = byte;
        WireHeader::parse(&bytes).map(WireHeader::ack).map_err(|error| error.offset())
    };
    let ack = Ack { ssn: Ssn(12), epoch: Epoch(13) };
    assert_eq!(with(36, 13, Some(ack)), Ok(Some(ack)));
    assert_eq!(with(36, 0, Some(ack)), Err(36));
    assert_eq!(with(56, 0, Some(ack)), Err(56));
    assert_eq!(with(36, 0, None), Ok(None));
    assert_eq!(with(36, 13, None), Err(36));
    assert_eq!(with(56, 12, None), Err(56));
}

#[test]
fn each_kind_has_only_its_own_fields() {
    let (from, to, origin) = (Rank(0), Rank(1), Origin::default());
    let ack = Ack { ssn: Ssn(1), epoch: Epoch(1) };
    let mut bytes = WireHeader::ack_only(from, to, origin, ack).as_bytes().to_vec();
    bytes[3] = 0;
    assert_eq!(WireHeader::parse(&bytes), Err(HeaderError::NoAck));
    bytes[3] = (Flags::HAS_ACK | Flags::LARGE).bits();
    assert_eq!(WireHeader::parse(&bytes), Err(HeaderError::Flags { found: 10, allowed: 8 }));

    let request = WireHeader::ack_request(from, to, origin, Ssn(5), None);
    assert_eq!((request.kind(), request.ssn(), request.ack()), (Kind::AckRequest, Ssn(5), None));
    assert_eq!(request.refreshed(Incarnation(0), None, Flags::LOGGED).flags(), Flags::NONE);
    let mut sealed = request;
    sealed.seal(b"");
    assert_eq!(sealed, request, "only messages are sealed");
}
