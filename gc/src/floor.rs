//! Collection floor of a lane.

use counterfoil_log_core::{Epoch, Ssn};

/// Floor of one channel: the receiver's oldest durable checkpoint still reachable by a recovery covers every SSN up to
/// it, so no recovery needs them.
///
/// It only rises, because a durable checkpoint stays durable.
///
/// The floor has two sources. The receiver reports which SSN its checkpoint covers (exact, for every protocol with a
/// known recovery line). Otherwise only the smallest epoch reachable by any rollback is known (Guermouche 2011, section
/// III.A.4), and the lane's [`EpochIndex`](crate::EpochIndex) converts it into an SSN.
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
    /// Returns the last covered SSN; [`Ssn::ZERO`] if none is.
    #[inline]
    pub fn ssn(&self) -> Ssn {
        self.ssn
    }

    /// Returns the epoch floor: all records received in earlier epochs are covered.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns `true` if a chunk ending with record `last` is covered as a whole.
    #[inline]
    pub fn covers(&self, last: Ssn) -> bool {
        last <= self.ssn
    }

    /// Raises the floor to `ssn`; returns `true` if it rose.
    pub fn raise(&mut self, ssn: Ssn) -> bool {
        let rises = ssn > self.ssn;
        self.ssn = self.ssn.max(ssn);
        rises
    }

    /// Raises the epoch floor; returns `true` if it rose.
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
        assert!(floor.raise_epoch(Epoch(3)) && !floor.raise_epoch(Epoch(2)) && !floor.raise_epoch(Epoch(3)));
        assert_eq!(floor.epoch(), Epoch(3));
    }
}
