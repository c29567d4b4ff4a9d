//! Recovery inputs: changes to a dead process's files, and log histories.

use counterfoil_test_support::random::split_mix;

/// Returns changes to a dead process's files, four bytes each: kind (bit 0: in the local log), place (two bytes, within
/// the used pages; the header's is the first), value.
pub(crate) fn files() -> Vec<(&'static str, Vec<u8>)> {
    const SET: u8 = 0;
    const FLIP: u8 = 2 << 1;
    const FILL: u8 = 4 << 1;
    const COPY: u8 = 5 << 1;
    const LENGTH: u8 = 7 << 1;
    const LOCAL: u8 = 1;
    // Offsets of the first chunk, at the beginning of the second page, and of its first record.
    let (chunk, record) = ([0x10, 0x00], [0x10, 0x70]);
    vec![
        ("unchanged", Vec::new()),
        ("set-to-same-value", vec![SET, 0, 0, b'C']),
        ("wrong-magic", vec![SET, 0, 0, b'X']),
        ("wrong-version", vec![SET, 0, 12, 9]),
        ("wrong-rank", vec![SET, 0, 8, 1]),
        ("header-check", vec![FLIP, 0, 64, 1]),
        ("header-slack", vec![SET, 0, 100, 1]),
        ("chunk-state", vec![FLIP, chunk[0], chunk[1] + 4, 1]),
        ("chunk-set-free", vec![FILL, chunk[0], chunk[1], 0]),
        ("chunk-check", vec![FLIP, chunk[0], chunk[1] + 56, 0x80]),
        ("chunk-link", vec![FLIP, chunk[0], chunk[1] + 8, 1]),
        ("commit-word-length", vec![FLIP, record[0], record[1], 1]),
        ("commit-word-zeroed", vec![FILL, record[0], record[1], 0]),
        ("commit-word-of-another-record", vec![COPY, 0x20, 0x70, 0x10]),
        ("ssn", vec![FLIP, record[0], record[1] + 8, 2]),
        ("inside-a-body", vec![FLIP, 0x20, 0x90, 0xFF]),
        ("ssn-within-gap", vec![FLIP, 0x30, 0xC8, 1]),
        ("truncated", vec![LENGTH, 0x20, 0x00, 0]),
        ("extended", vec![LENGTH, 0, 0, 255]),
        ("local-magic", vec![SET | LOCAL, 0, 0, b'X']),
        ("local-commit-word", vec![FLIP | LOCAL, record[0], record[1], 4]),
        ("local-kind", vec![FLIP | LOCAL, record[0], record[1] + 16, 3]),
        ("local-checksum", vec![FLIP | LOCAL, record[0], record[1] + 16 + 4, 1]),
        ("local-key", vec![FLIP | LOCAL, record[0], record[1] + 16 + 8, 1]),
        ("local-inside-an-entry", vec![FLIP | LOCAL, record[0], record[1] + 16 + 16, 1]),
        ("local-truncated", vec![LENGTH | LOCAL, 0x10, 0x00, 1]),
        ("header-of-the-other-file", vec![FILL, 0, 24, 0, FILL | LOCAL, 0, 24, 0]),
        ("two-bytes-in-one-body", vec![FLIP, 0x20, 0x90, 1, FLIP, 0x20, 0x91, 1]),
    ]
}

/// Log histories: each byte is a choice.
///
/// A pseudo-random number made from it decides about a step, so these are long histories with different kinds of bytes.
pub(crate) fn histories() -> Vec<(&'static str, Vec<u8>)> {
    let numbers = |seed: u64, len| {
        let mut numbers = split_mix(seed);
        (0..len).map(|_| (numbers() >> 56) as u8).collect::<Vec<u8>>()
    };
    vec![
        ("empty", Vec::new()),
        ("first-choices-only", vec![1; 15]),
        ("constant", vec![7; 320]),
        ("rising", (0..=255).collect()),
        ("long-1", numbers(1, 400)),
        ("long-2", numbers(2, 400)),
        ("long-3", numbers(3, 400)),
        ("ends-in-the-middle", numbers(4, 123)),
    ]
}

/// Returns changes to a dead process's files with new checks, eight bytes each: a forged number (kind, chunk number,
/// value) and a change as in [`files`].
pub(crate) fn forged_files() -> Vec<(&'static str, Vec<u8>)> {
    /// Sets the second byte in the file's magic to its present value.
    const NOTHING: [u8; 4] = [0, 0, 0, b'C'];
    const WORD: [u8; 4] = [0, 4, 8, 12];
    let forged = |kind: u8, chunk: u8, value: u8| [&[kind, 0, chunk, value][..], &NOTHING].concat();
    let [lane, sequence, first, replaces] = WORD;
    let (largest, limit) = (0x80, 0x82);
    vec![
        ("unchanged", forged(lane, 0, 7 << 3)),
        ("largest-sequence", forged(sequence, 0, largest)),
        ("largest-first-ssn", forged(first, 1, largest)),
        ("first-ssn-at-the-limit", forged(first, 2, limit)),
        ("replaces-everything", forged(replaces, 3, 0x86)),
        ("local-sequence-at-the-limit", forged(sequence | 1, 0, limit)),
        ("longer-record", forged(2, 1, 3)),
        ("record-becomes-a-pad", forged(2 | 4, 1, 2)),
        ("longer-prefix", forged(2 | 8, 2, 1)),
        ("two-numbers", [forged(first, 1, 0x40), forged(sequence, 1, 0x40)].concat()),
    ]
}

/// Returns changes to a store's files: 1 for new checksums or 0, then four bytes each: kind (file, operation), place,
/// value.
pub(crate) fn stores() -> Vec<(&'static str, Vec<u8>)> {
    // Files in alphabetical order: two checkpoints, manifest, reserve, segments.
    const CHECKPOINT: u8 = 0;
    const MANIFEST: u8 = 2;
    const SEGMENT: u8 = 4;
    const FLIP: u8 = 1 << 3;
    const COPY: u8 = 3 << 3;
    const NUMBER: u8 = 5 << 3;
    const LENGTH: u8 = 6 << 3;
    const FILE: u8 = 7 << 3;
    vec![
        ("unchanged", vec![0]),
        ("unchanged-with-checksums", vec![1]),
        ("flipped-in-the-manifest", vec![0, MANIFEST | FLIP, 0, 40, 1]),
        ("flipped-in-a-checkpoint", vec![0, CHECKPOINT | FLIP, 0, 40, 1]),
        ("flipped-in-a-segment", vec![0, SEGMENT | FLIP, 0, 40, 1]),
        ("cut-segment", vec![0, SEGMENT | LENGTH, 0x20, 0, 0]),
        ("another-file", vec![0, CHECKPOINT | FILE, 0, 0, 1]),
        ("forged-block", vec![1, SEGMENT | NUMBER, 0x10, 80, 0]),
        ("forged-lengths", vec![1, SEGMENT | NUMBER, 0x10, 144, 13]),
        ("forged-checkpoint", vec![1, CHECKPOINT | NUMBER, 0x10, 64, 2]),
        ("forged-manifest", vec![1, MANIFEST | NUMBER, 0, 128, 3]),
        ("copied-block", vec![1, SEGMENT | COPY, 0x10, 16, 2]),
        // Each of these found a fault.
        (
            "place-of-a-block-within-a-page",
            vec![0x1b, 0x0d, 1, 0x36, 0xb3, 0xcb, 0xaa, 0x4f, 0x8e, 0xa6, 0x65, 0, 0xbb],
        ),
        ("checkpoint-without-its-segment", vec![0x91, 0x91, 0x11, 0x91, 0x32]),
        ("local-log-out-of-order", vec![0x27, 0x5c, 0x26, 0xab, 0xaa, 0x69, 0xb1, 0xad, 0x4c]),
        ("two-generations-of-a-segment", vec![0x3b, 0xe1, 0x71, 0x9f, 0x5d]),
        ("last-file-number", vec![0x33, 0xae, 0xa6, 0x72, 0xfb, 0xac, 0xfa, 0xa3, 0x71, 0x33, 0x7a, 0xe9, 0x6f]),
        (
            "last-change-of-the-manifest",
            vec![0x21, 0x57, 0xdb, 0xe5, 0x15, 0xa1, 0x1a, 0xcd, 0xc4, 0x6a, 0x7c, 0x40, 0x32],
        ),
        ("length-of-a-checkpoint", vec![0x73, 0x6a, 0x2e, 0xe4, 0x20]),
    ]
}
