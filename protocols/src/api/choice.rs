//! Choices: non-deterministic outcomes, recorded and forced.

use counterfoil_log_core::{Determinant, Rank, Ssn};

use super::ChoiceError;

/// Encoded size of a choice: sequence, source, SSN, little-endian.
pub const CHOICE_RECORD_BYTES: usize = 20;

/// Answer from [`Protocol::next_choice`](super::Protocol::next_choice).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct NextChoice {
    /// Call number, from 0 since program start.
    pub sequence: u64,
    /// Outcome recorded by an earlier incarnation: wait for exactly this message, or for none if its SSN is
    /// [`Ssn::ZERO`].
    pub forced: Option<Determinant>,
}

/// Encoded choice to append to the local log, under [`super::EntryKind::Choice`] and its number, before it takes
/// effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a choice that isn't recorded can't be repeated"]
pub struct ChoiceRecord {
    /// Call number.
    pub sequence: u64,
    /// Encoded choice.
    pub bytes: [u8; CHOICE_RECORD_BYTES],
}

impl ChoiceRecord {
    /// Encodes a choice.
    pub fn new(choice: Determinant) -> ChoiceRecord {
        let mut bytes = [0; CHOICE_RECORD_BYTES];
        bytes[..8].copy_from_slice(&choice.sequence.to_le_bytes());
        bytes[8..12].copy_from_slice(&choice.source.0.to_le_bytes());
        bytes[12..].copy_from_slice(&choice.ssn.0.to_le_bytes());
        ChoiceRecord { sequence: choice.sequence, bytes }
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// [`ChoiceError::Malformed`] if the length is wrong or the SSN is above [`Ssn::MAX`].
    pub fn decode(record: &[u8]) -> Result<Determinant, ChoiceError> {
        let malformed = ChoiceError::Malformed { len: record.len() };
        let Some((sequence, rest)) = record.split_first_chunk::<8>() else { return Err(malformed) };
        let Some((source, rest)) = rest.split_first_chunk::<4>() else { return Err(malformed) };
        let Ok(ssn) = <[u8; 8]>::try_from(rest) else { return Err(malformed) };
        let ssn = Ssn(u64::from_le_bytes(ssn));
        if ssn > Ssn::MAX {
            return Err(malformed);
        }
        Ok(Determinant { sequence: u64::from_le_bytes(*sequence), source: Rank(u32::from_le_bytes(*source)), ssn })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_decoded_up_to_the_last_ssn_and_refused_beyond_it() {
        let last = Determinant { sequence: 3, source: Rank(1), ssn: Ssn::MAX };
        assert_eq!(ChoiceRecord::decode(&ChoiceRecord::new(last).bytes), Ok(last));
        let beyond = ChoiceRecord::new(Determinant { ssn: Ssn(Ssn::MAX.0 + 1), ..last });
        assert_eq!(ChoiceRecord::decode(&beyond.bytes), Err(ChoiceError::Malformed { len: CHOICE_RECORD_BYTES }));
    }
}
