//! Writes the committed corpora: `cargo run -p counterfoil-fuzz --example write_corpus`. Always the same files.
#![forbid(unsafe_code)]

use std::io;
use std::path::Path;

use counterfoil_ack_piggyback::{Ack, Flags, Origin, Stamp, WireHeader};
use counterfoil_log_core::{Envelope, Epoch, Incarnation, Phase, Rank, Ssn};

fn main() -> io::Result<()> {
    write("wire_header", &headers())?;
    write("ack_windows", &windows())?;
    write("collector", &collections())?;
    write("shared_log", &files())?;
    write("power_cuts", &histories())
}

fn write(body: &str, inputs: &[(&str, Vec<u8>)]) -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(body);
    std::fs::create_dir_all(&folder)?;
    for (name, input) in inputs {
        std::fs::write(folder.join(name), input)?;
    }
    Ok(())
}

fn headers() -> Vec<(&'static str, Vec<u8>)> {
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
        ("sealed-and-more-behind-it", [sealed(b"payload"), b"payload and more".to_vec()].concat()),
        ("sealed-with-another-payload", [sealed(b"payload"), b"another".to_vec()].concat()),
        ("sealed-without-its-payload", sealed(b"payload")),
        ("sealed-for-another-rank", with([sealed(b"payload"), b"payload".to_vec()].concat(), 12, 5)),
        ("checksum-without-the-flag", with(sealed(b"payload"), 3, stamp.flags.union(Flags::HAS_ACK).bits())),
        ("flag-without-a-checksum", changed(3, stamp.flags.union(Flags::HAS_ACK | Flags::CHECKED).bits())),
        ("ack", ack_only),
        ("ack-without-an-ack", no_ack),
        ("ack-request", WireHeader::ack_request(from, to, origin, Ssn(5), None).as_bytes().to_vec()),
        ("control", WireHeader::control(from, to, origin, 77, 5, ack).as_bytes().to_vec()),
        ("cut-in-the-first-word", message[..7].to_vec()),
        ("cut-before-the-last-byte", message[..63].to_vec()),
        ("another-magic", changed(0, b'X')),
        ("another-version", changed(1, 2)),
        ("unknown-kind", changed(2, 0)),
        ("unknown-flag", changed(3, 0x80)),
        ("ack-fields-without-the-flag", changed(3, 0)),
    ]
}

/// A step is two bytes: what happens (modulo 8; the rest chooses flags), and a number.
fn windows() -> Vec<(&'static str, Vec<u8>)> {
    const RECEIVER: u8 = 0;
    const SENDER: u8 = 1;
    // Of the receiver: take the next, take this SSN, piggyback, explicit ack, begin epoch, ack request, replaced.
    const NEXT: u8 = 0;
    const TAKE: u8 = 1;
    const PIGGYBACK: u8 = 3;
    const EXPLICIT: u8 = 4;
    const EPOCH: u8 = 5;
    const REQUEST: u8 = 6;
    const REPLACED: u8 = 7;
    // Flags of what is taken.
    const LARGE: u8 = 8;
    const ASKING: u8 = 24;
    // Of the sender.
    const STAMP: u8 = 0;
    const ACK: u8 = 3;
    const ROLLED_BACK: u8 = 6;
    const RESTORED: u8 = 7;
    // An ack of receive epoch 2.
    const ACK_2: u8 = ACK + 8;
    let steps = |end: u8, steps: &[(u8, u8)]| {
        let bytes = steps.iter().flat_map(|&(step, number)| [step, number]);
        [end].into_iter().chain(bytes).collect::<Vec<u8>>()
    };
    vec![
        ("empty", Vec::new()),
        (
            "cuts-at-epochs",
            steps(
                RECEIVER,
                &[
                    (NEXT, 0),
                    (NEXT, 0),
                    (EPOCH, 2),
                    (NEXT, 0),
                    (EPOCH, 3),
                    (NEXT, 0),
                    (PIGGYBACK, 0),
                    (REQUEST, 4),
                    (EXPLICIT, 0),
                    (EXPLICIT, 0),
                    (EXPLICIT, 0),
                ],
            ),
        ),
        (
            "overtaken-across-an-epoch",
            steps(
                RECEIVER,
                &[
                    (TAKE, 1),
                    (TAKE, 2),
                    (TAKE, 4),
                    (PIGGYBACK, 0),
                    (EPOCH, 2),
                    (TAKE, 3),
                    (TAKE, 5),
                    (PIGGYBACK, 0),
                    (PIGGYBACK, 0),
                    (PIGGYBACK, 0),
                    (TAKE, 4),
                ],
            ),
        ),
        (
            "too-many-exceptions",
            steps(RECEIVER, &[(TAKE, 2), (TAKE, 4), (TAKE, 6), (TAKE, 8), (TAKE, 5), (TAKE, 8), (TAKE, 3), (TAKE, 1)]),
        ),
        (
            "duplicates-again-and-again",
            steps(
                RECEIVER,
                &[
                    (NEXT, 0),
                    (NEXT + LARGE, 0),
                    (EXPLICIT, 0),
                    (TAKE, 1),
                    (EXPLICIT, 0),
                    (PIGGYBACK, 0),
                    (TAKE, 2),
                    (TAKE + LARGE, 2),
                    (EXPLICIT, 0),
                ],
            ),
        ),
        (
            "sender-replaced",
            steps(
                RECEIVER,
                &[
                    (NEXT, 0),
                    (NEXT, 0),
                    (EPOCH, 2),
                    (NEXT, 0),
                    (PIGGYBACK, 0),
                    (PIGGYBACK, 0),
                    (REPLACED, 32 + 2),
                    (PIGGYBACK, 0),
                    (PIGGYBACK, 0),
                    (TAKE, 3),
                    (PIGGYBACK, 0),
                    (TAKE, 250),
                    (REPLACED, 4 * 32),
                ],
            ),
        ),
        (
            "receiver-replaced",
            steps(
                RECEIVER,
                &[
                    (NEXT, 0),
                    (NEXT, 0),
                    (PIGGYBACK, 0),
                    (REPLACED, 7 * 32),
                    (PIGGYBACK, 0),
                    (NEXT + ASKING, 0),
                    (EXPLICIT, 0),
                ],
            ),
        ),
        ("forgotten-epochs", steps(RECEIVER, &[(NEXT, 0), (EPOCH, 2), (NEXT, 0), (EPOCH, 5), (NEXT, 0), (u8::MAX, 5)])),
        (
            "mark-set-and-cleared",
            steps(
                SENDER,
                &[
                    (STAMP, 9),
                    (STAMP, 9),
                    (ACK_2, 1),
                    (STAMP, 200),
                    (ROLLED_BACK, 0),
                    (STAMP, 9),
                    (ACK, 3),
                    (5, 2),
                    (STAMP, 1),
                ],
            ),
        ),
        (
            "asked-once",
            steps(
                SENDER,
                &[
                    (STAMP, 9),
                    (STAMP, 9),
                    (STAMP, 9),
                    (STAMP, 9),
                    (STAMP, 9),
                    (STAMP, 9),
                    (STAMP, 9),
                    (STAMP, 9),
                    (ACK, 1),
                    (ACK, 8),
                    (ACK, 9),
                ],
            ),
        ),
        (
            "sender-restored",
            steps(SENDER, &[(STAMP, 250), (STAMP, 250), (ACK_2, 1), (RESTORED, 0), (STAMP, 250), (ACK, 3)]),
        ),
        ("more-than-are-marked", {
            let mut input = vec![SENDER];
            input.extend((0..150u8).flat_map(|len| [STAMP, len]));
            input.extend((1..=15u8).flat_map(|tenth| [ACK, tenth * 10]));
            input
        }),
    ]
}

/// A step is two bytes: what happens (modulo 8) in which lane (divided by 8, modulo 3), and a number. To settle a chunk
/// takes a third: percent used.
fn collections() -> Vec<(&'static str, Vec<u8>)> {
    const SETTLE: u8 = 0;
    const FLOOR: u8 = 4;
    const EPOCHS: u8 = 5;
    const FORGET: u8 = 6;
    const COLLECT: u8 = 7;
    // Numbers that choose the size of a chunk.
    const SMALL: u8 = 0;
    const BIG: u8 = 4;
    // Added to a size: sixteen more make one more record; five more are one more epoch.
    let dense_between_sparse: Vec<u8> =
        (0..20u8).flat_map(|i| [SETTLE, if i % 2 == 0 { SMALL } else { BIG }, 50 - i % 2 * 49]).collect();
    vec![
        ("empty", Vec::new()),
        ("released-at-once", vec![SETTLE, BIG, 0, COLLECT, 0]),
        ("sparse-chunks-merge", [[SETTLE, BIG, 1]; 30].concat()),
        ("small-chunks-merge", [[SETTLE, SMALL, 1]; 30].concat()),
        ("dense-between-sparse", dense_between_sparse),
        (
            "half-used-between-sparse",
            (0..20u8).flat_map(|i| if i % 2 == 0 { [SETTLE, BIG, 50] } else { [SETTLE, SMALL, 1] }).collect(),
        ),
        (
            "floor-in-the-middle",
            [&[SETTLE, BIG + 240, 100][..], &[FLOOR, 3, COLLECT, 0, FLOOR, 4, COLLECT, 0, FLOOR, 30, COLLECT, 0]]
                .concat(),
        ),
        (
            "epochs-free-all-lanes",
            vec![
                SETTLE,
                5,
                100,
                SETTLE,
                10,
                100,
                SETTLE + 8,
                5,
                100,
                SETTLE + 16,
                15,
                100,
                EPOCHS,
                128 + 2,
                COLLECT,
                0,
                EPOCHS,
                3,
                COLLECT,
                0,
                EPOCHS,
                128 + 7,
                COLLECT,
                0,
            ],
        ),
        (
            "rolled-back-and-settled-anew",
            vec![
                SETTLE,
                5 + 35,
                100,
                SETTLE,
                10 + 35,
                60,
                FORGET,
                1,
                SETTLE,
                30,
                100,
                EPOCHS,
                130,
                COLLECT,
                0,
                FORGET,
                0,
                COLLECT,
                0,
            ],
        ),
    ]
}

/// Changes of a dead process's files, four bytes each: what (bit 0: the local log; then the kind), where (two bytes, into
/// the pages that are used: first the header's), with what.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    const SET: u8 = 0;
    const FLIP: u8 = 2 << 1;
    const FILL: u8 = 4 << 1;
    const COPY: u8 = 5 << 1;
    const LENGTH: u8 = 7 << 1;
    const LOCAL: u8 = 1;
    // Offsets of the first chunk, which begins the second page, and of its first record.
    let (chunk, record) = ([0x10, 0x00], [0x10, 0x70]);
    vec![
        ("nothing-changed", Vec::new()),
        ("set-to-what-it-is", vec![SET, 0, 0, b'C']),
        ("another-magic", vec![SET, 0, 0, b'X']),
        ("another-version", vec![SET, 0, 12, 9]),
        ("another-rank", vec![SET, 0, 8, 1]),
        ("header-check", vec![FLIP, 0, 64, 1]),
        ("slack-of-the-header", vec![SET, 0, 100, 1]),
        ("chunk-state", vec![FLIP, chunk[0], chunk[1] + 4, 1]),
        ("chunk-set-free", vec![FILL, chunk[0], chunk[1], 0]),
        ("chunk-check", vec![FLIP, chunk[0], chunk[1] + 56, 0x80]),
        ("chunk-link", vec![FLIP, chunk[0], chunk[1] + 8, 1]),
        ("commit-word-length", vec![FLIP, record[0], record[1], 1]),
        ("commit-word-gone", vec![FILL, record[0], record[1], 0]),
        ("commit-word-of-another", vec![COPY, 0x20, 0x70, 0x10]),
        ("ssn", vec![FLIP, record[0], record[1] + 8, 2]),
        ("inside-a-body", vec![FLIP, 0x20, 0x90, 0xFF]),
        ("an-ssn-within-its-gap", vec![FLIP, 0x30, 0xC8, 1]),
        ("cut-short", vec![LENGTH, 0x20, 0x00, 0]),
        ("longer", vec![LENGTH, 0, 0, 255]),
        ("local-magic", vec![SET | LOCAL, 0, 0, b'X']),
        ("local-commit-word", vec![FLIP | LOCAL, record[0], record[1], 4]),
        ("local-kind", vec![FLIP | LOCAL, record[0], record[1] + 16, 3]),
        ("local-checksum", vec![FLIP | LOCAL, record[0], record[1] + 16 + 4, 1]),
        ("local-key", vec![FLIP | LOCAL, record[0], record[1] + 16 + 8, 1]),
        ("local-inside-an-entry", vec![FLIP | LOCAL, record[0], record[1] + 16 + 16, 1]),
        ("local-cut-short", vec![LENGTH | LOCAL, 0x10, 0x00, 1]),
        ("header-of-the-other-file", vec![FILL, 0, 24, 0, FILL | LOCAL, 0, 24, 0]),
        ("two-in-one-body", vec![FLIP, 0x20, 0x90, 1, FLIP, 0x20, 0x91, 1]),
    ]
}

/// Histories of a log: each byte is a choice. Which steps they make follows from the numbers that `counterfoil::model` makes
/// of them, so these are long ones, of different kinds of bytes.
fn histories() -> Vec<(&'static str, Vec<u8>)> {
    let numbers = |seed: u64, len| {
        let mut numbers = counterfoil::model::numbers(seed);
        (0..len).map(|_| (numbers() >> 56) as u8).collect::<Vec<u8>>()
    };
    vec![
        ("empty", Vec::new()),
        ("first-choices-only", vec![1; 15]),
        ("always-the-same", vec![7; 320]),
        ("rising", (0..=255).collect()),
        ("long-1", numbers(1, 400)),
        ("long-2", numbers(2, 400)),
        ("long-3", numbers(3, 400)),
        ("ends-in-the-middle", numbers(4, 123)),
    ]
}
