//! Record layout: one commit word, the SSN, the body.
//!
//! ```text
//! offset  0        8       16                16 + prefix      16 + body   rounded up to 16
//!         | commit | SSN   | prefix (opaque) | payload        | slack     | commit word of the next record ...
//! ```
//!
//! The commit word gives kind and length. It is the only word in a record ever written while a reader may load it:
//!
//! * `0`: nothing yet. Every claim writes this into the place *after* its own record before it is published, so that a
//!   reader (or a recovery) walking the records always ends on a zero, whatever an earlier use of the chunk left there.
//! * a record, a pad (a dropped claim) or the end of the chunk.
//!
//! Twelve bits in the word are a check over the others: a reader of a damaged shared-memory file must not follow a
//! wrong length. The check guards the framing only; the layer above checks payloads end to end.

/// Bytes of commit word and SSN before a record's body.
pub(crate) const RECORD_HEADER: usize = 16;
/// Offset of the SSN in a record.
pub(crate) const SSN_AT: usize = 8;
/// Alignment of a record, and of a payload after an equally aligned prefix: copying some KiB to an odd multiple of
/// eight takes twice as long as to a multiple of sixteen.
pub(crate) const RECORD_ALIGN: usize = 16;
/// Longest body (prefix and payload) in a commit word: 64 GiB less one byte.
pub const BODY_BYTES_MAX: usize = (1 << BODY_BITS) - 1;
/// Longest prefix in a commit word: 4,095 bytes.
pub const PREFIX_BYTES_MAX: usize = (1 << PREFIX_BITS) - 1;

const BODY_BITS: u32 = 36;
const PREFIX_BITS: u32 = 12;
const KIND_BITS: u32 = 4;
const CHECK_SHIFT: u32 = BODY_BITS + PREFIX_BITS + KIND_BITS;
const KIND_SHIFT: u32 = BODY_BITS + PREFIX_BITS;
const CHECK_MASK: u64 = !((1 << CHECK_SHIFT) - 1);

// The fields fill the word exactly.
const _: () = assert!(CHECK_SHIFT + 12 == 64);

/// A parsed commit word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// No record committed here yet.
    Empty,
    /// A record: `body` bytes, including `prefix` bytes of prefix.
    Record { body: usize, prefix: usize },
    /// A dropped claim: readers skip `body` bytes.
    Pad { body: usize },
    /// End of the chunk: readers follow its link.
    End,
    /// A word never written by a writer.
    Damaged,
}

// Any two differ in two bits, and none is the complement of another.
const RECORD: u64 = 0b0011;
const PAD: u64 = 0b0101;
const END: u64 = 0b0110;

/// Returns a word's check bits: the top bits of a product, dependent on every bit below.
///
/// Costs one multiplication, off an append's critical path.
#[inline]
const fn check(fields: u64) -> u64 {
    fields.wrapping_mul(0x9E37_79B9_7F4A_7C15) & CHECK_MASK
}

#[inline]
const fn pack(kind: u64, prefix: usize, body: usize) -> u64 {
    let fields = kind << KIND_SHIFT | (prefix as u64) << BODY_BITS | body as u64;
    check(fields) | fields
}

/// Returns a record's commit word.
#[inline]
pub(crate) const fn record_word(prefix: usize, body: usize) -> u64 {
    pack(RECORD, prefix, body)
}

/// Returns a dropped claim's commit word.
#[inline]
pub(crate) const fn pad_word(body: usize) -> u64 {
    pack(PAD, 0, body)
}

/// Commit word after a chunk's last record.
pub(crate) const END_WORD: u64 = pack(END, 0, 0);

impl Word {
    /// Parses a commit word.
    #[inline]
    pub(crate) const fn parse(word: u64) -> Word {
        if word == 0 {
            return Word::Empty;
        }
        let fields = word & !CHECK_MASK;
        if check(fields) != word & CHECK_MASK {
            return Word::Damaged;
        }
        let body = (fields & ((1 << BODY_BITS) - 1)) as usize;
        let prefix = ((fields >> BODY_BITS) & ((1 << PREFIX_BITS) - 1)) as usize;
        match fields >> KIND_SHIFT {
            RECORD if prefix <= body => Word::Record { body, prefix },
            PAD if prefix == 0 => Word::Pad { body },
            END if prefix == 0 && body == 0 => Word::End,
            _ => Word::Damaged,
        }
    }
}

/// Returns body and prefix length from a commit word known to be a record's.
#[inline]
pub(crate) const fn record_lengths(word: u64) -> (usize, usize) {
    ((word & ((1 << BODY_BITS) - 1)) as usize, ((word >> BODY_BITS) & ((1 << PREFIX_BITS) - 1)) as usize)
}

/// Returns the bytes taken in a chunk by a record with this body.
#[inline]
pub(crate) const fn footprint(body: usize) -> usize {
    (RECORD_HEADER + body + RECORD_ALIGN - 1) & !(RECORD_ALIGN - 1)
}

#[cfg(not(counterfoil_loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

        #[test]
        fn a_word_says_what_was_packed(body in 0usize..=BODY_BYTES_MAX, prefix in 0usize..=PREFIX_BYTES_MAX) {
            prop_assert_eq!(Word::parse(pad_word(body)), Word::Pad { body });
            if prefix <= body {
                prop_assert_eq!(Word::parse(record_word(prefix, body)), Word::Record { body, prefix });
            }
        }

        #[test]
        fn a_flipped_bit_or_byte_is_noticed(body in 0usize..=BODY_BYTES_MAX, prefix in 0usize..=PREFIX_BYTES_MAX) {
            prop_assume!(prefix <= body);
            for word in [record_word(prefix, body), pad_word(body), END_WORD] {
                for bit in 0..64 {
                    prop_assert_eq!(Word::parse(word ^ 1 << bit), Word::Damaged);
                }
            }
        }
    }

    #[test]
    fn footprints_keep_records_aligned() {
        for body in 0..100 {
            assert_eq!(footprint(body) % RECORD_ALIGN, 0);
            assert!(footprint(body) >= RECORD_HEADER + body);
            assert!(footprint(body) < RECORD_HEADER + body + RECORD_ALIGN);
        }
    }
}
