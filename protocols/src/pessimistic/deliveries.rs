//! The receive order: counted, and repeated as far as an earlier incarnation has recorded it.

use std::collections::BTreeMap;

use counterfoil_log_core::Determinant;

use crate::frame::{ChoiceError, ProtocolError};

/// The deliveries of one rank, numbered from 0 since the start of the program.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    /// The number of the first delivery of this execution: those before it are in the checkpoint.
    first: u64,
    /// The number of the next one.
    next: u64,
    /// Recorded by earlier incarnations, not yet repeated.
    recovered: BTreeMap<u64, Determinant>,
}

impl Deliveries {
    /// The deliveries after a checkpoint that has `next`.
    pub(super) fn resume(next: u64) -> Deliveries {
        Deliveries { first: next, next, recovered: BTreeMap::new() }
    }

    /// How many there were.
    pub(super) fn counted(&self) -> u64 {
        self.next
    }

    /// How many are to be repeated.
    pub(super) fn rest(&self) -> usize {
        self.recovered.len()
    }

    /// Whether nothing has happened yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.next == 0 && self.recovered.is_empty()
    }

    /// What has to be delivered next; `None` if the order is free.
    pub(super) fn expected(&self) -> Result<Option<Determinant>, ProtocolError> {
        let Some((&present, &recorded)) = self.recovered.first_key_value() else { return Ok(None) };
        let missing = self.next;
        if present == missing { Ok(Some(recorded)) } else { Err(ProtocolError::OrderLost { missing, present }) }
    }

    /// A message is delivered. Says whether that repeats a recorded delivery.
    pub(super) fn advance(&mut self) -> bool {
        let repeats = self.recovered.remove(&self.next).is_some();
        self.next += 1;
        repeats
    }

    /// Takes a record of an earlier incarnation. Those that the checkpoint covers are ignored: a crash between a checkpoint and
    /// the clean-up of the log leaves them.
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
