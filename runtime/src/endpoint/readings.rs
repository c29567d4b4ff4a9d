//! Clock readings, repeated by a re-execution.
//!
//! Each clock has its own readings, numbered since the checkpoint that began the epoch. A local log entry has a reading
//! with a new value; those between two entries have the first one's value. Readings are no calls with an outcome: a
//! program whose threads read clocks in another order, or more often, gets other times and continues.

use std::collections::VecDeque;

use counterfoil::Epoch;
use counterfoil_protocols::api::Protocol;

use super::{Endpoint, READING};
use crate::Error;
use crate::transport::Transport;

/// Readings of one clock.
#[derive(Debug, Default)]
struct Clock {
    /// Number of the next reading.
    next: u64,
    value: u64,
    /// The last reading has its predecessor's value, and no entry.
    is_unrecorded: bool,
    /// Readings recorded by dead incarnations and not repeated yet: number and value.
    recorded: VecDeque<(u64, u64)>,
}

/// Readings of all clocks.
#[derive(Debug, Default)]
pub(super) struct Readings {
    epoch: Epoch,
    clocks: Vec<Clock>,
    has_unrecorded: bool,
    /// Recorded readings for all clocks.
    recorded: u64,
}

impl Clock {
    /// Returns the next reading's value, if it is recorded.
    fn repeat(&mut self) -> Option<u64> {
        let (number, value) = *self.recorded.front()?;
        if number == self.next {
            self.recorded.pop_front();
            self.value = value;
        }
        self.next += 1;
        Some(self.value)
    }
}

impl Readings {
    fn clock(&mut self, clock: u8) -> &mut Clock {
        let index = usize::from(clock);
        if index >= self.clocks.len() {
            self.clocks.resize_with(index + 1, Clock::default);
        }
        &mut self.clocks[index]
    }

    /// Begins an epoch, if it is another one: nothing before its checkpoint is repeated.
    fn begin(&mut self, epoch: Epoch) {
        if epoch != self.epoch {
            *self = Readings { epoch, ..Readings::default() };
        }
    }

    /// Takes a dead incarnation's reading, unless it is from another epoch.
    pub(super) fn recover(&mut self, epoch: Epoch, number: u64, bytes: &[u8]) {
        self.begin(epoch);
        let Some(entry) = Entry::parse(bytes).filter(|entry| entry.epoch == epoch) else { return };
        let recorded = &mut self.clock(entry.clock).recorded;
        // Several incarnations' values are the same up to the end of each.
        if recorded.back().is_none_or(|last| last.0 < number) {
            recorded.push_back((number, entry.value));
            self.recorded += 1;
        }
    }
}

/// Entry contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    clock: u8,
    epoch: Epoch,
    value: u64,
}

impl Entry {
    fn bytes(self) -> [u8; 13] {
        let mut bytes = [0; 13];
        bytes[0] = self.clock;
        bytes[1..5].copy_from_slice(&self.epoch.0.to_le_bytes());
        bytes[5..].copy_from_slice(&self.value.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Entry> {
        let ([clock], rest) = bytes.split_first_chunk()?;
        let (epoch, value) = rest.split_first_chunk()?;
        let value = value.try_into().ok()?;
        Some(Entry { clock: *clock, epoch: Epoch(u32::from_le_bytes(*epoch)), value: u64::from_le_bytes(value) })
    }
}

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Returns a clock reading: a dead incarnation's, or `now` applied to the clock's last one (0 before any) and to
    /// the number of recorded readings.
    ///
    /// It is recorded; a clock that `now` lets stand still needs no memory.
    ///
    /// # Errors
    /// Local log [`Error`].
    pub fn reading(&mut self, clock: u8, now: impl FnOnce(u64, u64) -> u64) -> Result<u64, Error> {
        let epoch = self.protocol.epoch();
        self.readings.begin(epoch);
        let recorded = self.readings.recorded;
        let state = self.readings.clock(clock);
        if let Some(value) = state.repeat() {
            return Ok(value);
        }
        let (number, value) = (state.next, now(state.value, recorded));
        let is_new = value != state.value || number == 0;
        state.next += 1;
        state.value = value;
        state.is_unrecorded = !is_new;
        if !is_new {
            self.readings.has_unrecorded = true;
        } else if !self.transport.repeats_only() {
            self.append_reading(number, Entry { clock, epoch, value })?;
        }
        Ok(value)
    }

    /// Records the last readings, before anything depending on them is seen elsewhere.
    pub(super) fn record_readings(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.readings.has_unrecorded) || self.transport.repeats_only() {
            return Ok(());
        }
        let epoch = self.readings.epoch;
        for clock in 0..self.readings.clocks.len() {
            let state = &mut self.readings.clocks[clock];
            if std::mem::take(&mut state.is_unrecorded) {
                let (number, value) = (state.next - 1, state.value);
                self.append_reading(number, Entry { clock: clock as u8, epoch, value })?;
            }
        }
        Ok(())
    }

    fn append_reading(&mut self, number: u64, entry: Entry) -> Result<(), Error> {
        self.log.local().append(READING, number, &entry.bytes())?;
        self.readings.recorded += 1;
        self.tally.choices_logged += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Epoch = Epoch(2);

    fn recovered(entries: &[(u64, u64)]) -> Readings {
        let mut readings = Readings::default();
        for (number, value) in entries {
            readings.recover(EPOCH, *number, &Entry { clock: 1, epoch: EPOCH, value: *value }.bytes());
        }
        readings
    }

    #[test]
    fn readings_between_two_entries_have_the_value_of_the_first() {
        let mut readings = recovered(&[(0, 10), (3, 20), (5, 20)]);
        let values: Vec<_> = std::iter::from_fn(|| readings.clock(1).repeat()).collect();
        assert_eq!(values, [10, 10, 10, 20, 20, 20]);
        assert_eq!(readings.clock(1).next, 6);
    }

    #[test]
    fn readings_of_several_incarnations_are_repeated_once() {
        let mut readings = recovered(&[(0, 10), (1, 11), (0, 10), (1, 11), (2, 12)]);
        let values: Vec<_> = std::iter::from_fn(|| readings.clock(1).repeat()).collect();
        assert_eq!(values, [10, 11, 12]);
    }

    #[test]
    fn readings_of_another_epoch_and_malformed_ones_are_ignored() {
        let mut readings = recovered(&[(0, 10)]);
        let other = Entry { clock: 1, epoch: Epoch(1), value: 9 };
        assert_eq!(Entry::parse(&other.bytes()), Some(other));
        readings.recover(EPOCH, 1, &other.bytes());
        readings.recover(EPOCH, 1, &other.bytes()[..12]);
        readings.recover(EPOCH, 1, &[]);
        assert_eq!((readings.clock(1).repeat(), readings.clock(1).repeat()), (Some(10), None));
        readings.begin(Epoch(3));
        assert_eq!(readings.clock(1).next, 0);
    }
}
