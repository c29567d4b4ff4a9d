//! Damaged memory: every delivered message equals the sent one, or the runtime returns a typed error.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::lone_rank::{Files, LoneRank, Peer, RANK, RANKS, flip_in};
use bytes::Bytes;
use counterfoil::{Rank, Ssn};
use counterfoil_ack_piggyback::{ChecksumError, Flags, WireHeader};
use counterfoil_runtime::transport::Event;
use counterfoil_runtime::{ANY_SOURCE, ANY_TAG, Communicator, Damage, DamageLocation, Error, RankSettings, Tier};

const TIER: Tier = Tier::ProcessCrashSafe;

/// Messages received by a rank, in order, and frames sent by it.
type Traffic = (Vec<(u32, Bytes)>, Vec<(u32, Vec<u8>)>);

/// Sends messages of many lengths to both peers and to itself.
///
/// The receives and the probes' results depend on timing.
fn run_program(endpoint: &mut LoneRank, rounds: u8) -> Traffic {
    let mut received = Vec::new();
    for round in 1..=rounds {
        for to in [1, 2, 1, RANK] {
            endpoint.send(to, i32::from(round), &vec![round; 13 * usize::from(round) + to as usize]).unwrap();
        }
        received.push((RANK, endpoint.recv(Some(RANK), ANY_TAG).unwrap().1));
        let found = endpoint.iprobe(ANY_SOURCE, ANY_TAG).unwrap();
        received.extend(found.map(|status| (status.source, Bytes::new())));
        let (status, payload) = endpoint.recv(ANY_SOURCE, ANY_TAG).unwrap();
        received.push((status.source, payload));
    }
    // The sender chooses these flags at each transmission; they only affect acknowledgements.
    let chosen = (Flags::LOGGED | Flags::ACK_REQUESTED).bits();
    let sent = endpoint.transport_mut().sent.iter().map(|(to, header, payload)| {
        let mut frame = [header.as_bytes(), payload].concat();
        frame[3] &= !chosen;
        (*to, frame)
    });
    (received, sent.collect())
}

/// Makes events: both peers connect and send three messages each, first all from `first`, then all from `other`.
fn peers(first: u32, other: u32) -> Vec<Event> {
    let mut peers = [first, other].map(|rank| Peer::new(rank, 0));
    let mut events = peers.iter().map(Peer::connected).collect::<Vec<_>>();
    for peer in &mut peers {
        events.extend([&b"one"[..], b"the second", b""].map(|payload| peer.sends(5, payload)));
    }
    events
}

/// Contents of a dead rank's file.
struct Image {
    path: PathBuf,
    len: u64,
    /// Nonzero pages with their offsets.
    pages: Vec<(usize, Vec<u8>)>,
}

impl Image {
    fn of(path: PathBuf) -> Image {
        let bytes = fs::read(&path).unwrap();
        let pages = bytes.chunks(4096).enumerate().map(|(number, page)| (number * 4096, page.to_vec()));
        let pages = pages.filter(|(_, page)| page.iter().any(|&byte| byte != 0)).collect();
        Image { path, len: bytes.len() as u64, pages }
    }

    /// Restores the file, with one byte changed.
    fn write(&self, change: Option<(usize, u8)>) {
        let file = OpenOptions::new().write(true).open(&self.path).unwrap();
        // Unwritten pages are zero.
        file.set_len(0).unwrap();
        file.set_len(self.len).unwrap();
        for (at, page) in &self.pages {
            file.write_all_at(page, *at as u64).unwrap();
        }
        if let Some((at, byte)) = change {
            file.write_all_at(&[byte], at as u64).unwrap();
        }
    }
}

#[test]
fn a_replacement_refuses_a_changed_byte_in_its_files_or_repeats_the_same_traffic() {
    let files = Files::new();
    let mut dead = files.start(0, TIER, peers(2, 1)).unwrap();
    let (received, _) = run_program(&mut dead, 3);
    drop(dead);
    let images = [files.log(), files.local()].map(Image::of);
    // The arrival order differs now: without its local log, the replacement would have other traffic.
    let replace = || files.start(1, TIER, peers(1, 2));
    let expected = run_program(&mut replace().unwrap(), 4);
    assert_eq!(expected.0[..received.len()], received);

    let (mut refused, mut harmless) = (0, 0);
    for (image, other) in [(&images[0], &images[1]), (&images[1], &images[0])] {
        let bytes = image.pages.iter().flat_map(|(start, page)| (*start..).zip(page));
        for (at, byte) in bytes {
            other.write(None);
            // The bit varies with the byte, also for the same field of the next record.
            image.write(Some((at, byte ^ 1 << ((at + at / 16) % 8))));
            let path = image.path.display();
            match replace() {
                Ok(mut endpoint) => {
                    harmless += 1;
                    assert!(run_program(&mut endpoint, 4) == expected, "byte {at} of {path} changes the traffic");
                }
                Err(Error::Damaged { from: RANK, location: DamageLocation::Predecessor, .. } | Error::Open(_)) => {
                    refused += 1
                }
                Err(other) => panic!("byte {at} of {path}: {other}"),
            }
        }
    }
    // At least commit word, SSN, payload and most of the header are protected in twelve messages; unused page bytes are
    // harmless.
    let payloads = (1..=3).map(|round| 4 * 13 * round + 4).sum::<usize>();
    assert!(refused > 12 * (16 + 40) + payloads && harmless > 1000, "{refused} refused, {harmless} harmless");
}

/// Returns the damage; panics unless `result` reports damage to message `ssn` from rank `from` in `location`.
#[track_caller]
fn damage<T>(result: Result<T, Error>, location: DamageLocation, from: u32, ssn: u64) -> Damage {
    match result.map(drop) {
        Err(Error::Damaged { from: found_from, ssn: found_ssn, location: found_location, source, .. }) => {
            assert_eq!((found_location, found_from, found_ssn), (location, from, ssn));
            source
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_that_changed_on_its_way_is_an_error_before_it_is_received() {
    let arrives = |change: fn(&mut WireHeader, &mut Bytes)| {
        let files = Files::new();
        let mut peer = Peer::new(1, 0);
        let mut events = vec![peer.connected(), peer.sends(5, b"the first")];
        let (mut header, mut body) = peer.message(5, b"the second");
        change(&mut header, &mut body);
        events.push(Event::Frame { peer: 1, header, body });
        let mut endpoint = files.start(0, TIER, events).unwrap();
        endpoint.recv(Some(1), ANY_TAG).and_then(|_| endpoint.recv(Some(1), ANY_TAG))
    };
    assert_eq!(arrives(|_, _| {}).unwrap().1, "the second");

    let error = arrives(|_, body| *body = Bytes::from_static(b"the secund"));
    let said = error.as_ref().unwrap_err().to_string();
    let begin = "message 2 from rank 1 to rank 0 is damaged as it arrived: in its sender's log, or on the way from there: \
                 SSN 2 from rank 1 to rank 0 was sealed with";
    assert!(said.starts_with(begin) && said.ends_with("start the job again, and look for failing memory"), "{said}");
    let is_checksum = |damage| matches!(damage, Damage::Checksum(ChecksumError::Differs { .. }));
    assert!(is_checksum(damage(error, DamageLocation::Arrival, 1, 2)));

    // With SSN 1 it would be a duplicate, and dropped silently.
    let result = arrives(|header, _| edit(header, |bytes| bytes[48] ^= 3));
    assert!(is_checksum(damage(result, DamageLocation::Arrival, 1, 1)));

    let result = arrives(|_, body| *body = Bytes::from_static(b"cut"));
    let length = damage(result, DamageLocation::Arrival, 1, 2);
    assert!(matches!(length, Damage::Checksum(ChecksumError::Length { len: 10, found: 3, .. })));

    // All messages are sealed: this one has lost its flag and its checksum.
    let result = arrives(|header, _| {
        edit(header, |bytes| {
            bytes[3] &= !Flags::CHECKED.bits();
            bytes[4..8].fill(0);
        })
    });
    assert!(matches!(damage(result, DamageLocation::Arrival, 1, 2), Damage::NotSealed { .. }));

    // A valid message on the wrong connection.
    let result = arrives(|header, body| {
        let mut other = Peer::new(2, 0);
        let _ = other.message(5, b"");
        (*header, *body) = other.message(5, b"from rank 2");
    });
    assert!(matches!(damage(result, DamageLocation::Arrival, 1, 2), Damage::Another { source_rank: Rank(2), .. }));
}

fn edit(header: &mut WireHeader, change: impl FnOnce(&mut [u8])) {
    let mut bytes = header.as_bytes().to_vec();
    change(&mut bytes);
    *header = *WireHeader::parse(&bytes).unwrap();
}

/// The log of a live rank may be damaged, too.
#[test]
fn a_record_that_changed_in_a_living_log_is_not_sent_again() {
    let files = Files::new();
    let mut endpoint = files.start(0, TIER, vec![Peer::new(1, 0).connected()]).unwrap();
    for payload in [&b"the first"[..], b"the second", b"the third"] {
        endpoint.send(1, 5, payload).unwrap();
    }
    endpoint.iteration(1).unwrap();
    assert_eq!(endpoint.transport_mut().sent.len(), 3);
    flip_in(&files.log(), b"the second");
    // No other rank has the messages needed by the replacement.
    endpoint.transport_mut().events.extend([Event::Disconnected { peer: 1 }, Peer::new(1, 1).connected()]);
    let differs = damage(endpoint.iteration(2), DamageLocation::Log, RANK, 2);
    assert!(matches!(differs, Damage::Checksum(ChecksumError::Differs { .. })));
    let sent = &endpoint.transport_mut().sent[3..];
    assert_eq!(sent.iter().map(|(.., payload)| &payload[..]).collect::<Vec<_>>(), [b"the first"]);
}

#[test]
fn a_record_that_changed_before_a_checkpoint_was_taken_is_not_put_back_into_the_log() {
    for flip in [false, true] {
        let files = Files::new();
        let mut endpoint = files.start(0, TIER, Vec::new()).unwrap();
        endpoint.send(1, 5, b"the first").unwrap();
        endpoint.send(2, 5, b"the other").unwrap();
        if flip {
            flip_in(&files.log(), b"the other");
        }
        endpoint.checkpoint(b"").unwrap();
        drop(endpoint);
        // In the volatile tier the lanes come from the checkpoint.
        let replacement = files.start(1, Tier::Volatile, Vec::new());
        if flip {
            let differs = damage(replacement, DamageLocation::Checkpoint, RANK, 1);
            assert!(matches!(differs, Damage::Checksum(ChecksumError::Differs { .. })));
        } else {
            replacement.unwrap();
        }
    }
}

#[test]
fn a_valid_message_in_the_wrong_lane_is_refused() {
    let files = Files::new();
    let mut endpoint = files.start(0, TIER, Vec::new()).unwrap();
    endpoint.send(1, 5, b"to rank 1").unwrap();
    endpoint.send(2, 5, b"to rank 2").unwrap();
    drop(endpoint);
    let image = fs::read(files.log()).unwrap();
    let body = |payload: &[u8]| {
        let at = image.windows(payload.len()).position(|window| window == payload).unwrap();
        at - WireHeader::LEN..at + payload.len()
    };
    let file = OpenOptions::new().write(true).open(files.log()).unwrap();
    file.write_all_at(&image[body(b"to rank 1")], body(b"to rank 2").start as u64).unwrap();
    let another = damage(files.start(1, TIER, Vec::new()), DamageLocation::Predecessor, RANK, 1);
    assert_eq!(another, Damage::Another { source_rank: Rank(RANK), destination: Rank(1), ssn: Ssn(1) });
}

/// The payloads are equal, so only the header shows the difference.
#[test]
fn a_re_execution_that_sends_the_same_bytes_with_another_tag_has_diverged() {
    let files = Files::new();
    let mut endpoint = files.start(0, TIER, Vec::new()).unwrap();
    for _ in 0..3 {
        endpoint.send(1, 5, b"bytes").unwrap();
    }
    drop(endpoint);
    let mut endpoint = files.start(1, TIER, Vec::new()).unwrap();
    endpoint.send(1, 5, b"bytes").unwrap();
    let error = endpoint.send(1, 6, b"bytes").unwrap_err();
    assert!(matches!(error, Error::DivergedEnvelope { to: 1, ssn: 2, .. }), "{error}");
    assert!(error.to_string().contains("has the tag 6 in context 0, and had the tag 5 in context 0"), "{error}");
}

#[test]
fn a_re_execution_that_sends_other_bytes_goes_on_where_that_is_tolerated() {
    let files = Files::new();
    let mut endpoint = files.start(0, TIER, Vec::new()).unwrap();
    for _ in 0..3 {
        endpoint.send(1, 5, b"bytes").unwrap();
    }
    drop(endpoint);
    let start = |tolerates_divergence| {
        let settings = RankSettings { tier: TIER, tolerates_divergence, ..RankSettings::new(RANKS) };
        files.start_with(1, settings, Vec::new()).unwrap()
    };
    let error = start(false).send(1, 5, b"other").unwrap_err();
    assert!(matches!(error, Error::Diverged(_)), "{error}");
    let mut endpoint = start(true);
    endpoint.send(1, 5, b"bytes").unwrap();
    assert_eq!(endpoint.take_divergence(), None);
    endpoint.send(1, 5, b"other").unwrap();
    let first = endpoint.take_divergence().unwrap();
    assert_eq!((first.ssn, first.at, first.bytes), (Ssn(2), 0, Some((b'b', b'o'))));
    assert_eq!((endpoint.tally().sends_repeated, endpoint.tally().sends_diverged), (2, 1));
    // A message with another length isn't the same one.
    let error = endpoint.send(1, 5, b"longer").unwrap_err();
    assert!(matches!(error, Error::Diverged(_)), "{error}");
    drop(endpoint);
    // The record is the message sent first.
    let mut endpoint = start(false);
    for _ in 0..3 {
        endpoint.send(1, 5, b"bytes").unwrap();
    }
}

#[test]
fn a_record_that_changed_during_a_re_execution_is_damage_and_no_divergence() {
    let files = Files::new();
    let mut endpoint = files.start(0, TIER, Vec::new()).unwrap();
    endpoint.send(1, 5, b"the first").unwrap();
    endpoint.send(1, 5, b"the second").unwrap();
    drop(endpoint);
    let mut endpoint = files.start(1, TIER, Vec::new()).unwrap();
    flip_in(&files.log(), b"the second");
    endpoint.send(1, 5, b"the first").unwrap();
    let differs = damage(endpoint.send(1, 5, b"the second"), DamageLocation::Log, RANK, 2);
    assert!(matches!(differs, Damage::Checksum(ChecksumError::Differs { .. })));
}
