//! Collective calls: their contributions and results.
//!
//! A call is modelled by its data flow, as C3 (section 4) sees it: a rank *begins* it with a contribution, and can
//! *complete* it once those whose data flows to it have begun. That is all that MPI promises; but an implementation may
//! make every rank wait for every other, so in half of the calls they do.

use std::collections::BTreeMap;

use counterfoil_log_core::{Epoch, Rank};
use counterfoil_protocols::api::{CollectiveClass, Scope};

use super::application::Payload;
use crate::random::mix;

/// What a rank brings into a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contribution {
    /// `None` of a rank that takes part with dummy arguments.
    pub(crate) payload: Option<Payload>,
    pub(crate) word: Option<(u64, Scope)>,
    /// Epoch in which the rank began the call.
    pub(crate) epoch: Epoch,
}

/// Contributions to the calls of the present attempt. A communicator with a lost participant is of no use: when the
/// participant is replaced, all ranks that haven't completed a call begin it anew.
#[derive(Debug)]
pub(crate) struct Calls {
    ranks: u32,
    /// By number of the call: by rank.
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

    /// Loses what a rank has contributed to some of the calls: `lost` draws for each.
    pub(crate) fn lose(&mut self, rank: u32, mut lost: impl FnMut() -> bool) {
        for begun in self.begun.values_mut() {
            // The coordinator takes part in none.
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

    /// Returns `true` if data comes to a rank from another epoch than its own.
    pub(crate) fn straddles(&self, class: CollectiveClass, number: u64, rank: u32) -> bool {
        let Some(begun) = self.begun.get(&number) else { return false };
        let own = begun[rank as usize].map(|own| own.epoch);
        let differs = |(from, other): (u32, &Option<Contribution>)| {
            class.flows(Rank(from), Rank(rank)) && other.is_some_and(|other| Some(other.epoch) != own)
        };
        (0..).zip(begun).any(differs)
    }

    /// Returns the ranks that began a call in a later epoch than others; `None` if some have not begun it.
    pub(crate) fn later_epochs(&self, number: u64) -> Option<Vec<bool>> {
        let begun = self.begun.get(&number)?;
        let epochs = begun.iter().map(|of| Some((*of)?.epoch)).collect::<Option<Vec<Epoch>>>()?;
        let first = epochs.iter().min()?;
        Some(epochs.iter().map(|epoch| epoch > first).collect())
    }

    /// Returns the result of a call at a rank, and the words that have come to it; `None` if it can't complete.
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

/// Returns the result of these contributions.
pub(crate) fn result(payloads: Vec<Payload>) -> Payload {
    let mut sum = Payload::default();
    for Payload { content, history } in payloads {
        sum.content = mix(sum.content.rotate_left(7) ^ content);
        sum.history = if history == 0 { sum.history } else { mix(sum.history.rotate_left(7) ^ history) };
    }
    sum
}
