//! What the library for MPI puts before each payload: `docs/piggyback.md`.

/// The tag of what a rank gave to a collective operation: `docs/collectives.md`. No message has one below zero.
const CONTRIBUTION: i32 = -2;

/// The sixteen bytes that a record of an MPI program begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordTag {
    /// The communicator's number, as the job's ranks agreed on it.
    pub(crate) comm: u32,
    pub(crate) tag: i32,
    /// Which message of its stream (or which operation on its communicator) it is, from 1.
    pub(crate) number: u64,
}

impl RecordTag {
    /// From a record's prefix; `None` for one of another length, or with what no rank writes.
    pub(crate) fn parse(prefix: &[u8]) -> Option<RecordTag> {
        let bytes: &[u8; 16] = prefix.try_into().ok()?;
        let stream = u64::from_le_bytes(*bytes.first_chunk()?);
        let number = u64::from_le_bytes(*bytes.last_chunk()?);
        let (comm, tag) = (stream as u32, (stream >> 32) as i32);
        (number > 0 && (tag >= 0 || tag == CONTRIBUTION)).then_some(RecordTag { comm, tag, number })
    }

    /// Whether it is what a rank gave to a collective operation.
    pub(crate) fn is_contribution(self) -> bool {
        self.tag == CONTRIBUTION
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bytes_are_communicator_tag_and_number() {
        let message = *b"\x05\0\0\0\x07\0\0\0\x09\0\0\0\0\0\0\0";
        assert_eq!(RecordTag::parse(&message), Some(RecordTag { comm: 5, tag: 7, number: 9 }));
        let contribution = *b"\x05\0\0\0\xfe\xff\xff\xff\x09\0\0\0\0\0\0\0";
        assert!(RecordTag::parse(&contribution).unwrap().is_contribution());
        let (unnumbered, untagged) = ([0; 16], *b"\0\0\0\0\xff\xff\xff\xff\x01\0\0\0\0\0\0\0");
        for other in [&message[..15], &[1; 17], &unnumbered, &untagged, &[]] {
            assert_eq!(RecordTag::parse(other), None, "{other:?}");
        }
    }
}
