//! CRC-32C (Castagnoli), the checksum for messages, blocks on disk and checkpoints.
//!
//! One place for all crates: writers and readers must agree.

use crc_fast::{CrcAlgorithm, Digest};

/// Returns the CRC-32C of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// Returns the CRC-32C of earlier bytes with checksum `crc`, followed by `bytes`.
///
/// Compiled once: inlined, crc-fast's variants for each processor would be 67 KB of code in each calling unit.
#[inline(never)]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    // The register holds the complemented checksum so far.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Divides by the polynomial bit by bit.
    fn by_definition(bytes: &[u8]) -> u32 {
        let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 };
        !bytes.iter().fold(!0, |crc: u32, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
    }

    /// Values from RFC 3720, appendix B.4.
    #[test]
    fn known_values() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
        assert_eq!(crc32c(&std::array::from_fn::<u8, 32, _>(|i| i as u8)), 0x46DD_794E);
        assert_eq!(crc32c(&[]), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn any_bytes_in_two_parts(bytes in proptest::collection::vec(any::<u8>(), 0..5000), at in any::<prop::sample::Index>()) {
            let (head, tail) = bytes.split_at(at.index(bytes.len() + 1));
            prop_assert_eq!(crc32c(&bytes), by_definition(&bytes));
            prop_assert_eq!(crc32c_append(crc32c(head), tail), by_definition(&bytes));
        }
    }
}
