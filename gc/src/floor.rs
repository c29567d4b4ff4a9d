//! Up to where a lane's records are superfluous.

use counterfoil_log_core::{Epoch, Ssn};

/// The floor of one channel: every SSN up to it is covered by the receiver's oldest durable checkpoint that a
/// recovery can still reach, so no recovery asks for it. It only rises: what is durable stays so.
///
/// There are two ways to learn it. The receiver says which SSN its checkpoint covers (exact, and right for every
/// protocol that knows its recovery line); or all that is known is the smallest epoch that any rank can roll back
/// to (Guermouche 2011, section III.A.4), and the lane's [`EpochIndex`](crate::EpochIndex) turns it into an SSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    ssn: Ssn,
    epoch: Epoch,
}

impl Default for Floor {
    fn default() -> Self {
        Floor { ssn: Ssn::ZERO, epoch: Epoch::FIRST }
    }
}

impl Floor {
    /// All up to this SSN is covered; [`Ssn::ZERO`] if nothing is.
    #[inline]
    pub fn ssn(&self) -> Ssn {
        self.ssn
    }

    /// All that was received in an epoch before this one is covered.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether a chunk whose last record is `last` is covered as a whole.
    #[inline]
    pub fn covers(&self, last: Ssn) -> bool {
        last <= self.ssn
    }

    /// Raises the floor to `ssn`; returns whether it rose.
    pub fn raise(&mut self, ssn: Ssn) -> bool {
        let rises = ssn > self.ssn;
        self.ssn = self.ssn.max(ssn);
        rises
    }

    /// Raises the epoch; returns whether it rose.
    pub fn raise_epoch(&mut self, epoch: Epoch) -> bool {
        let rises = epoch > self.epoch;
        self.epoch = self.epoch.max(epoch);
        rises
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_only_rises() {
        let mut floor = Floor::default();
        assert!(!floor.covers(Ssn::FIRST));
        assert!(floor.raise(Ssn(5)));
        assert!(!floor.raise(Ssn(3)) && !floor.raise(Ssn(5)));
        assert!(floor.covers(Ssn(5)) && !floor.covers(Ssn(6)));
        assert!(floor.raise_epoch(Epoch(3)) && !floor.raise_epoch(Epoch(2)));
        assert_eq!(floor.epoch(), Epoch(3));
    }
}
