//! Prefix of an MPI program's records (`docs/book/src/explanation/counting.md`).
//!
//! Acknowledgements are lists with the same structure.

/// Tag for a rank's contribution to a collective operation (`docs/book/src/explanation/collectives.md`).
///
/// Messages have no negative tags.
pub const COLLECTIVE: i32 = -2;

/// The 16 bytes before each payload: the prefix of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordTag {
    /// Communicator number agreed on by the job's ranks.
    pub comm: u32,
    /// Message tag, or [`COLLECTIVE`].
    pub tag: i32,
    /// Message number in its stream, or operation number on its communicator, from 1.
    pub number: u64,
}

impl RecordTag {
    /// Length in bytes.
    pub const LEN: usize = 16;

    /// Encodes the tag as in a record.
    #[inline]
    pub fn encode(self) -> [u8; Self::LEN] {
        // Assembled in registers, so the caller's wide load needn't wait for four narrow stores.
        let stream = u64::from(self.tag as u32) << 32 | u64::from(self.comm);
        (u128::from(self.number) << 64 | u128::from(stream)).to_le_bytes()
    }

    /// Decodes a tag from a record or an acknowledgement; `None` for fewer than [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Option<RecordTag> {
        let (comm, rest) = bytes.split_first_chunk::<4>()?;
        let (tag, rest) = rest.split_first_chunk::<4>()?;
        let (number, _) = rest.split_first_chunk::<8>()?;
        let (comm, tag) = (u32::from_le_bytes(*comm), i32::from_le_bytes(*tag));
        Some(RecordTag { comm, tag, number: u64::from_le_bytes(*number) })
    }

    /// Decodes and validates an untrusted record's prefix; `None` for another length, or values that no rank writes.
    pub fn from_prefix(prefix: &[u8]) -> Option<RecordTag> {
        let tag = RecordTag::decode(prefix).filter(|_| prefix.len() == RecordTag::LEN)?;
        (tag.number > 0 && (tag.tag >= 0 || tag.is_contribution())).then_some(tag)
    }

    /// Returns `true` for a contribution to a collective operation.
    pub fn is_contribution(self) -> bool {
        self.tag == COLLECTIVE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bytes_are_communicator_tag_and_number() {
        let message = RecordTag { comm: 5, tag: 7, number: 9 };
        assert_eq!(message.encode(), *b"\x05\0\0\0\x07\0\0\0\x09\0\0\0\0\0\0\0");
        let contribution = RecordTag { tag: COLLECTIVE, ..message };
        assert_eq!(contribution.encode(), *b"\x05\0\0\0\xfe\xff\xff\xff\x09\0\0\0\0\0\0\0");
        assert!(contribution.is_contribution() && !message.is_contribution());
    }

    #[test]
    fn a_tag_is_decoded_as_it_was_encoded() {
        for comm in [0, 1, 1 << 31, u32::MAX] {
            for tag in [i32::MIN, COLLECTIVE, -1, 0, 1, i32::MAX] {
                for number in [0, 1, u64::from(u32::MAX) + 1, u64::MAX] {
                    let one = RecordTag { comm, tag, number };
                    assert_eq!(RecordTag::decode(&one.encode()), Some(one));
                    let is_written = number > 0 && (tag >= 0 || tag == COLLECTIVE);
                    assert_eq!(RecordTag::from_prefix(&one.encode()), is_written.then_some(one));
                }
            }
        }
    }

    #[test]
    fn a_prefix_of_another_length_is_refused() {
        let bytes = [1; 17];
        assert_eq!(RecordTag::decode(&bytes), RecordTag::decode(&bytes[..16]));
        assert!(RecordTag::decode(&bytes[..15]).is_none());
        assert!(RecordTag::from_prefix(&bytes[..16]).is_some());
        assert!([0, 15, 17].iter().all(|len| RecordTag::from_prefix(&bytes[..*len]).is_none()));
    }
}
