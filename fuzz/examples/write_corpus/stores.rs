//! Inputs for recoveries: changes of a dead process's files, and histories of a log.

use counterfoil_test_support::random::split_mix;

/// Returns changes of a dead process's files, four bytes each: kind (bit 0: of the local log), place (two bytes, within
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

/// Histories of a log: each byte is a choice. A pseudo-random number made of it decides about a step, so these are
/// long ones, of different kinds of bytes.
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
