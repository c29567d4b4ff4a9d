//! The only notice under this rule: a durable checkpoint of a rank covers its peer's messages.

use counterfoil_log_core::{Epoch, Ssn};

/// Control header tag for a [`Covered`].
pub(super) const COVERED: i32 = 1;

/// Coverage of the receiver's messages by a durable checkpoint at the notice's sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Covered {
    /// Epoch begun by the checkpoint.
    pub(super) epoch: Epoch,
    /// Last covered message.
    pub(super) upto: Ssn,
}

impl Covered {
    /// Encoded size in bytes.
    pub(super) const LEN: usize = 12;

    pub(super) fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.epoch.0.to_le_bytes());
        bytes[4..].copy_from_slice(&self.upto.0.to_le_bytes());
        bytes
    }

    /// Decodes a notice; `None` if the bytes are not one.
    pub(super) fn decode(bytes: &[u8]) -> Option<Covered> {
        let (epoch, rest) = bytes.split_first_chunk::<4>()?;
        let upto = <[u8; 8]>::try_from(rest).ok()?;
        let covered = Covered { epoch: Epoch(u32::from_le_bytes(*epoch)), upto: Ssn(u64::from_le_bytes(upto)) };
        let in_range = covered.epoch > Epoch::FIRST && covered.epoch <= Epoch::MAX && covered.upto <= Ssn::MAX;
        in_range.then_some(covered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_begins_any_epoch_but_the_first_and_covers_at_most_the_last_ssn() {
        let decoded = |epoch, upto| Covered::decode(&Covered { epoch: Epoch(epoch), upto: Ssn(upto) }.encode());
        let widest = Covered { epoch: Epoch::MAX, upto: Ssn::MAX };
        assert_eq!(decoded(Epoch::MAX.0, Ssn::MAX.0), Some(widest));
        assert_eq!(decoded(2, 0), Some(Covered { epoch: Epoch(2), upto: Ssn::ZERO }));
        assert_eq!((decoded(1, 1), decoded(Epoch::MAX.0 + 1, 1), decoded(2, Ssn::MAX.0 + 1)), (None, None, None));
    }
}
