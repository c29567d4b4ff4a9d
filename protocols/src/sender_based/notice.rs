//! The one notice of this rule: "my durable checkpoint covers your messages up to here".

use counterfoil_log_core::{Epoch, Ssn};

/// What stands in the tag of a control header that carries a [`Covered`].
pub(super) const COVERED: i32 = 1;

/// A durable checkpoint of the sender of this notice covers messages of its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Covered {
    /// The epoch that the checkpoint began.
    pub(super) epoch: Epoch,
    /// The last message that it covers.
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

    /// `None` if the bytes are not such a notice.
    pub(super) fn decode(bytes: &[u8]) -> Option<Covered> {
        let (epoch, rest) = bytes.split_first_chunk::<4>()?;
        let upto = <[u8; 8]>::try_from(rest).ok()?;
        let covered = Covered { epoch: Epoch(u32::from_le_bytes(*epoch)), upto: Ssn(u64::from_le_bytes(upto)) };
        let in_range = covered.epoch > Epoch::FIRST && covered.epoch <= Epoch::MAX && covered.upto <= Ssn::MAX;
        in_range.then_some(covered)
    }
}
