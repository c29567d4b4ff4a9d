//! Changed bytes of notices, for fuzzing.

use super::network::Frame;

/// Change to one byte of a Hello or another notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Number of the notice in arrival order, from 0.
    pub notice: u64,
    /// Offset of the byte, modulo the length.
    pub at: usize,
    /// Changed bits.
    pub bits: u8,
}

/// Pending changes.
#[derive(Debug)]
pub(crate) struct Damages {
    left: Vec<Damage>,
    /// Number of arrived notices.
    arrived: u64,
}

impl Damages {
    pub(crate) fn new(damages: Vec<Damage>) -> Damages {
        Damages { left: damages, arrived: 0 }
    }

    /// Returns the number of pending changes.
    pub(crate) fn left(&self) -> usize {
        self.left.len()
    }

    /// Applies the changes for an arriving frame.
    pub(crate) fn apply(&mut self, frame: &mut Frame) {
        let (Frame::Hello(bytes) | Frame::Control(bytes)) = frame else { return };
        let (arrived, len) = (self.arrived, bytes.len());
        self.arrived += 1;
        for damage in self.left.extract_if(.., |damage| damage.notice == arrived && len > 0) {
            let at = damage.at % len;
            bytes[at] ^= damage.bits;
        }
    }
}
