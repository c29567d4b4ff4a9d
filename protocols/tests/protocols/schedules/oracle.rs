//! Properties that must hold under any kills, checked against the actual messages and a run without failures.

use std::collections::BTreeMap;

use counterfoil_log_core::{Rank, Ssn};

use super::application::{Delivery, Payload};

/// Everything ever sent by or delivered to any incarnation.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    /// By source, destination and SSN: payload from the first sending incarnation.
    sent: BTreeMap<(Rank, Rank, Ssn), Payload>,
    /// By rank and place: delivery to the first incarnation to reach it.
    delivered: BTreeMap<(Rank, usize), Delivery>,
    /// For the processes alive at the end: by destination, source and tag, in delivery order.
    streams: BTreeMap<(Rank, Rank, i32), Vec<(Ssn, u64)>>,
}

impl Oracle {
    /// Checks that a repeated execution sends the same bytes under the same SSNs.
    pub(crate) fn note_sent(&mut self, from: Rank, to: Rank, ssn: Ssn, payload: Payload) -> Result<(), String> {
        let first = *self.sent.entry((from, to, ssn)).or_insert(payload);
        if first == payload {
            Ok(())
        } else {
            Err(format!("{from} sends {ssn} to {to} as {payload:?}, but before as {first:?}"))
        }
    }

    /// Checks that a repeated execution is delivered the same messages in the same order.
    pub(crate) fn note_delivered(&mut self, rank: Rank, place: usize, delivery: Delivery) -> Result<(), String> {
        let first = *self.delivered.entry((rank, place)).or_insert(delivery);
        if first == delivery {
            Ok(())
        } else {
            Err(format!("delivery {place} of {rank} is {delivery:?}, but was {first:?}"))
        }
    }

    /// Checks at the end that no message is lost, duplicated, altered or reordered in any surviving timeline.
    pub(crate) fn finish<'a>(&mut self, timelines: impl Iterator<Item = &'a [Delivery]>) -> Result<(), String> {
        let mut missing = self.sent.clone();
        for (rank, timeline) in timelines.enumerate() {
            let rank = Rank(rank as u32);
            for &Delivery { source, tag, ssn, payload } in timeline {
                match missing.remove(&(source, rank, ssn)) {
                    None => return Err(format!("{ssn} of {source} is delivered twice, or was never sent, to {rank}")),
                    Some(sent) if sent != payload => {
                        return Err(format!("{ssn} of {source} to {rank}: {sent:?} became {payload:?}"));
                    }
                    Some(_) => self.streams.entry((rank, source, tag)).or_default().push((ssn, payload.content)),
                }
            }
        }
        if let Some(((from, to, ssn), _)) = missing.first_key_value() {
            return Err(format!("{ssn} of {from} to {to} is lost"));
        }
        match self.streams.iter().find(|(_, stream)| !stream.is_sorted()) {
            Some((stream, ssns)) => Err(format!("reordered in {stream:?}: {ssns:?}")),
            None => Ok(()),
        }
    }

    /// Checks that each stream was delivered as in `reference`, a run without failures.
    pub(crate) fn compare(&self, reference: &Oracle) -> Result<(), String> {
        if self.streams == reference.streams {
            Ok(())
        } else {
            Err("deliveries differ from a run without kills".into())
        }
    }
}
