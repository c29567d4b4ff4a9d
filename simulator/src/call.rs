//! Collective calls: their contributions and results.
//!
//! Calls are modelled by data flow, as in C3 (section 4): a rank *begins* one with a contribution, and can *complete*
//! it once all ranks with data flow to it have begun. MPI promises no more; but an implementation may make every rank
//! wait for every other, so half the calls do so.

use std::collections::BTreeMap;

use counterfoil_log_core::{Epoch, Rank};
use counterfoil_protocols::api::{CollectiveClass, Scope};

use super::application::Payload;
use crate::random::mix;

/// A rank's contribution to a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contribution {
    /// `None` for a rank taking part with dummy arguments.
    pub(crate) payload: Option<Payload>,
    pub(crate) word: Option<(u64, Scope)>,
    /// The rank's epoch at the beginning of the call.
    pub(crate) epoch: Epoch,
}

/// Contributions to the calls of the current attempt.
///
/// A communicator with a lost participant is unusable: when the participant is replaced, all ranks begin their
/// uncompleted calls anew.
#[derive(Debug)]
pub(crate) struct Calls {
    ranks: u32,
    /// By call number: by rank.
    begun: BTreeMap<u64, Vec<Option<Contribution>>>,
    attempt: u64,
}

impl Calls {
    pub(crate) fn new(ranks: u32) -> Calls {
        Calls { ranks, begun: BTreeMap::new(), attempt: 0 }
    }

    /// Adds a rank's contribution.
    pub(crate) fn begin(&mut self, number: u64, rank: u32, contribution: Contribution) {
        let nobody = || vec![None; self.ranks as usize];
        self.begun.entry(number).or_insert_with(nobody)[rank as usize] = Some(contribution);
    }

    /// Loses a rank's contributions to some of the calls: `lost` draws for each.
    pub(crate) fn lose(&mut self, rank: u32, mut lost: impl FnMut() -> bool) {
        for begun in self.begun.values_mut() {
            // The coordinator takes no part.
            if let Some(contribution) = begun.get_mut(rank as usize) {
                contribution.take_if(|_| lost());
            }
        }
    }

    /// Ends all calls: the participants begin again.
    pub(crate) fn reset(&mut self) {
        self.begun.clear();
        self.attempt += 1;
    }

    /// Returns `true` if a rank receives data from another epoch than its own.
    pub(crate) fn straddles(&self, class: CollectiveClass, number: u64, rank: u32) -> bool {
        let Some(begun) = self.begun.get(&number) else { return false };
        let own = begun[rank as usize].map(|own| own.epoch);
        let differs = |(from, other): (u32, &Option<Contribution>)| {
            class.flows(Rank(from), Rank(rank)) && other.is_some_and(|other| Some(other.epoch) != own)
        };
        (0..).zip(begun).any(differs)
    }

    /// Returns the ranks beginning a call in a later epoch than others; `None` if some have not begun it.
    pub(crate) fn later_epochs(&self, number: u64) -> Option<Vec<bool>> {
        let begun = self.begun.get(&number)?;
        let epochs = begun.iter().map(|of| Some((*of)?.epoch)).collect::<Option<Vec<Epoch>>>()?;
        let first = epochs.iter().min()?;
        Some(epochs.iter().map(|epoch| epoch > first).collect())
    }

    /// Returns a call's result at a rank and the words received; `None` if it can't complete.
    pub(crate) fn outcome(
        &self,
        class: CollectiveClass,
        number: u64,
        rank: u32,
    ) -> Option<(Payload, Vec<(Rank, u64)>)> {
        let begun = self.begun.get(&number)?;
        let waits_for_all = mix(number ^ mix(self.attempt)) & 1 == 1;
        let flows = |from: u32| class.flows(Rank(from), Rank(rank));
        let all = (0..).zip(begun);
        let needs = |from: u32| {
            let to_all = begun[rank as usize].and_then(|own| own.word).is_some_and(|(_, scope)| scope == Scope::All);
            waits_for_all || to_all || from == rank || flows(from)
        };
        if all.clone().any(|(from, contribution)| needs(from) && contribution.is_none()) {
            return None;
        }
        let words = all.clone().filter_map(|(from, contribution)| {
            let (word, scope) = (*contribution)?.word?;
            (scope == Scope::All || from == rank || flows(from)).then_some((Rank(from), word))
        });
        let words = words.collect();
        let payloads =
            all.filter(|&(from, _)| flows(from)).map(|(_, contribution)| contribution.and_then(|of| of.payload));
        let result = match class {
            CollectiveClass::Barrier => Payload::default(),
            CollectiveClass::ToRoot(root) if root.0 != rank => Payload::default(),
            CollectiveClass::FromRoot(_) | CollectiveClass::ToRoot(_) | CollectiveClass::AllToAll => {
                result(payloads.collect::<Option<Vec<Payload>>>()?)
            }
        };
        Some((result, words))
    }
}

/// Combines contributions into a result.
pub(crate) fn result(payloads: Vec<Payload>) -> Payload {
    let mut sum = Payload::default();
    for Payload { content, history } in payloads {
        sum.content = mix(sum.content.rotate_left(7) ^ content);
        sum.history = if history == 0 { sum.history } else { mix(sum.history.rotate_left(7) ^ history) };
    }
    sum
}
