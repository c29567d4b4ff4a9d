//! What the records of an MPI program begin with: `docs/piggyback.md`. Acknowledgements are lists of the same.

/// The tag of what a rank gave to a collective operation: `docs/collectives.md`. No message has one below zero.
pub const COLLECTIVE: i32 = -2;

/// The sixteen bytes before each payload: the prefix of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordTag {
    /// The communicator's number, as the job's ranks agreed on it.
    pub comm: u32,
    /// The tag.
    pub tag: i32,
    /// Which message of its stream (or which operation on its communicator) it is, from 1.
    pub number: u64,
}

impl RecordTag {
    /// Its length in bytes.
    pub const LEN: usize = 16;

    /// As it stands in a record.
    #[inline]
    pub fn encode(self) -> [u8; Self::LEN] {
        // Put together in registers: it is copied at once, by a load that is wider than four stores.
        let stream = u64::from(self.tag as u32) << 32 | u64::from(self.comm);
        (u128::from(self.number) << 64 | u128::from(stream)).to_le_bytes()
    }

    /// From what stands in a record or in an acknowledgement; `None` if that is shorter than one.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Option<RecordTag> {
        let (comm, rest) = bytes.split_first_chunk::<4>()?;
        let (tag, rest) = rest.split_first_chunk::<4>()?;
        let (number, _) = rest.split_first_chunk::<8>()?;
        let (comm, tag) = (u32::from_le_bytes(*comm), i32::from_le_bytes(*tag));
        Some(RecordTag { comm, tag, number: u64::from_le_bytes(*number) })
    }

    /// From the prefix of a record that anybody may have written; `None` for one of another length, or with what no rank writes.
    pub fn of_record(prefix: &[u8]) -> Option<RecordTag> {
        let tag = RecordTag::decode(prefix).filter(|_| prefix.len() == RecordTag::LEN)?;
        (tag.number > 0 && (tag.tag >= 0 || tag.is_contribution())).then_some(tag)
    }

    /// Whether it is what a rank gave to a collective operation.
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
    fn what_is_encoded_is_decoded() {
        for comm in [0, 1, 1 << 31, u32::MAX] {
            for tag in [i32::MIN, COLLECTIVE, -1, 0, 1, i32::MAX] {
                for number in [0, 1, u64::from(u32::MAX) + 1, u64::MAX] {
                    let one = RecordTag { comm, tag, number };
                    assert_eq!(RecordTag::decode(&one.encode()), Some(one));
                    let is_written = number > 0 && (tag >= 0 || tag == COLLECTIVE);
                    assert_eq!(RecordTag::of_record(&one.encode()), is_written.then_some(one));
                }
            }
        }
    }

    #[test]
    fn of_other_lengths_there_is_none_in_a_record() {
        let bytes = [1; 17];
        assert_eq!(RecordTag::decode(&bytes), RecordTag::decode(&bytes[..16]));
        assert!(RecordTag::decode(&bytes[..15]).is_none());
        assert!(RecordTag::of_record(&bytes[..16]).is_some());
        assert!([0, 15, 17].iter().all(|len| RecordTag::of_record(&bytes[..*len]).is_none()));
    }
}
