//! The receive order: counted, and repeated as far as an earlier incarnation recorded it.

use std::collections::BTreeMap;

use counterfoil_log_core::Determinant;

use crate::api::{ChoiceError, ProtocolError};

/// Deliveries of one rank, numbered from 0 since program start.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    /// Number of the first delivery in this execution: earlier ones are in the checkpoint.
    first: u64,
    /// Number of the next delivery.
    next: u64,
    /// Recorded by earlier incarnations, not yet repeated.
    recovered: BTreeMap<u64, Determinant>,
}

impl Deliveries {
    /// Begins after a checkpoint with `next` as its next delivery.
    pub(super) fn resume(next: u64) -> Deliveries {
        Deliveries { first: next, next, recovered: BTreeMap::new() }
    }

    pub(super) fn count(&self) -> u64 {
        self.next
    }

    /// Returns the number of recorded deliveries still to be repeated.
    pub(super) fn pending(&self) -> usize {
        self.recovered.len()
    }

    /// Returns `true` if nothing was delivered or recovered yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.next == 0 && self.recovered.is_empty()
    }

    /// Returns the required next delivery; `None` if the order is free.
    pub(super) fn expected(&self) -> Result<Option<Determinant>, ProtocolError> {
        let Some((&present, &recorded)) = self.recovered.first_key_value() else { return Ok(None) };
        let missing = self.next;
        if present == missing { Ok(Some(recorded)) } else { Err(ProtocolError::MissingDelivery { missing, present }) }
    }

    /// Counts a delivery; returns `true` if it repeats a recorded one.
    pub(super) fn advance(&mut self) -> bool {
        let repeats = self.recovered.remove(&self.next).is_some();
        self.next += 1;
        repeats
    }

    /// Takes a record from an earlier incarnation.
    ///
    /// Records covered by the checkpoint are ignored: a crash between a checkpoint and the log clean-up leaves them.
    pub(super) fn recover(&mut self, delivery: Determinant) -> Result<(), ChoiceError> {
        let sequence = delivery.sequence;
        if sequence < self.first {
            return Ok(());
        }
        if sequence < self.next {
            return Err(ChoiceError::TooLate { sequence });
        }
        match self.recovered.get(&sequence) {
            Some(&first) if first != delivery => Err(ChoiceError::Contradiction { first, second: delivery }),
            _ => {
                self.recovered.insert(sequence, delivery);
                Ok(())
            }
        }
    }
}
