//! Collectives completed by this rank and the others, and their kept results.

use std::collections::BTreeSet;

use counterfoil_log_core::Rank;

use super::tables::{AllCounts, Durable, Report};
use crate::api::{CALL_BITS, CollectiveCall, EntryKey, EntryKind, Misbehaviour};

/// Collectives of this rank, and its knowledge about those of the others.
#[derive(Debug)]
pub(super) struct Calls {
    rank: Rank,
    completed: AllCounts,
    /// Results in the local log, by entry number.
    kept: BTreeSet<u64>,
    /// Indexed by rank; for this one only the checkpoint.
    peers: Vec<Peer>,
    /// By communicator: calls below are beyond every rank's durable checkpoint, and their results are gone.
    floor: Durable,
}

/// Knowledge about a rank.
#[derive(Debug, Default)]
struct Peer {
    /// Hello received.
    is_met: bool,
    completed: AllCounts,
    /// Results in its local log, or on their way to it.
    holds: BTreeSet<u64>,
    durable: Durable,
}

impl Calls {
    pub(super) fn new(rank: Rank, ranks: u32) -> Calls {
        let peers = (0..ranks).map(|_| Peer::default()).collect();
        Calls { rank, completed: AllCounts::new(), kept: BTreeSet::new(), peers, floor: Durable::new() }
    }

    pub(super) fn completed(&self) -> &AllCounts {
        &self.completed
    }

    /// Continues from the counts of a durable checkpoint.
    pub(super) fn restore(&mut self, completed: AllCounts) {
        self.completed = completed;
        self.note_durable(self.rank, &self.durable_now());
    }

    /// Returns the number of the first call on a communicator not completed by this rank.
    pub(super) fn next(&self, comm: u32) -> u64 {
        next(&self.completed, comm)
    }

    /// Returns the first call numbers after a checkpoint taken now.
    pub(super) fn durable_now(&self) -> Durable {
        self.completed.iter().map(|(&comm, counts)| (comm, counts.next)).collect()
    }

    pub(super) fn is_kept(&self, call: &CollectiveCall) -> bool {
        self.kept.contains(&call.entry().number)
    }

    /// Returns `true` if another rank has completed the call, as far as is known.
    pub(super) fn is_completed_by_another(&self, call: &CollectiveCall) -> bool {
        self.peers.iter().any(|peer| next(&peer.completed, call.comm) > call.number)
    }

    /// Counts a complete call. `keep`: its result is in the local log.
    pub(super) fn complete(&mut self, call: &CollectiveCall, keep: bool) {
        self.completed.entry(call.comm).or_default().add(call.class, call.number);
        if keep {
            self.kept.insert(call.entry().number);
        }
    }

    /// Takes a result from the local log, or sent by `from`; returns `true` if it is new and its call is to come.
    pub(super) fn insert(&mut self, from: Option<Rank>, entry: EntryKey) -> bool {
        let number = entry.number;
        if let Some(peer) = from.and_then(|from| self.peers.get_mut(from.index())) {
            peer.holds.insert(number);
        }
        let is_to_come = from.is_none() || number & mask() >= self.next(comm_of(number));
        is_to_come && self.kept.insert(number)
    }

    /// Returns the ranks that may lack a call completed by this one.
    pub(super) fn lagging(&self, call: &CollectiveCall) -> Vec<Rank> {
        let others = (0..).map(Rank).zip(&self.peers).filter(|(peer, _)| *peer != self.rank);
        others.filter(|(_, peer)| next(&peer.completed, call.comm) <= call.number).map(|(peer, _)| peer).collect()
    }

    /// Returns `true` if a Hello from the peer was handled.
    pub(super) fn has_met(&self, peer: Rank) -> bool {
        self.peers[peer.index()].is_met
    }

    /// Returns `true` if this rank has completed a call unknown to or not completed by the peer.
    pub(super) fn is_ahead_of(&self, peer: Rank) -> bool {
        let its = &self.peers[peer.index()].completed;
        self.completed.iter().any(|(&comm, counts)| counts.next > next(its, comm))
    }

    /// Returns the results missing at a peer, in call order, and notes them as on their way.
    pub(super) fn lacked_by(&mut self, peer: Rank) -> Vec<EntryKey> {
        let Peer { completed, holds, .. } = &mut self.peers[peer.index()];
        let lacks = |number: &u64| number & mask() >= next(completed, comm_of(*number)) && !holds.contains(number);
        let lacked: Vec<u64> = self.kept.iter().copied().filter(lacks).collect();
        holds.extend(&lacked);
        lacked.into_iter().map(key).collect()
    }

    /// Returns this rank's report.
    pub(super) fn report(&self) -> Report {
        let waits = |number: &u64| number & mask() >= self.next(comm_of(*number));
        let held = Report::ranges(self.kept.iter().copied().filter(waits));
        Report { completed: self.completed.clone(), held, ..self.report_durable() }
    }

    /// Returns this rank's report for a Hello.
    pub(super) fn report_to(&self, peer: Rank) -> Report {
        Report { has_met: self.has_met(peer), ..self.report() }
    }

    /// Returns only calls before this rank's durable checkpoint.
    ///
    /// A peer waits for the result of a call once it knows the call to be completed here, so it may learn of the
    /// completion only with the result.
    pub(super) fn report_durable(&self) -> Report {
        Report { durable: self.peers[self.rank.index()].durable.clone(), ..Report::default() }
    }

    /// Checks that a peer as far as this rank has made the same kinds of calls.
    pub(super) fn check(&self, report: &Report) -> Result<(), Misbehaviour> {
        let is_other = |(comm, own): (&u32, &super::Counts)| {
            report.completed.get(comm).is_some_and(|its| its.next == own.next && its != own)
        };
        match self.completed.iter().find(|&counts| is_other(counts)) {
            Some((&comm, _)) => Err(Misbehaviour::OtherCollectives { comm }),
            None => Ok(()),
        }
    }

    /// Replaces the knowledge about a peer by the report in its Hello.
    pub(super) fn meet(&mut self, peer: Rank, report: &Report) {
        let held = report.held.iter().filter(|(first, last)| first <= last);
        let holds = held.flat_map(|&(first, last)| self.kept.range(first..=last).copied()).collect();
        let known = &mut self.peers[peer.index()];
        known.completed.clone_from(&report.completed);
        known.holds = holds;
        known.is_met = true;
        self.note_durable(peer, &report.durable);
    }

    /// Adds a later report from a peer.
    pub(super) fn note(&mut self, peer: Rank, report: &Report) {
        let known = &mut self.peers[peer.index()].completed;
        for (&comm, counts) in &report.completed {
            let before = known.entry(comm).or_default();
            if counts.next > before.next {
                *before = *counts;
            }
        }
        self.note_durable(peer, &report.durable);
    }

    /// Notes the calls before a rank's durable checkpoint.
    pub(super) fn note_durable(&mut self, rank: Rank, durable: &Durable) {
        let known = &mut self.peers[rank.index()].durable;
        for (&comm, &number) in durable {
            let before = known.entry(comm).or_default();
            *before = number.max(*before);
        }
    }

    /// Drops the results no rank can need again: all before every rank's durable checkpoint.
    ///
    /// Returns the first and last entry dropped, for each communicator.
    pub(super) fn collect(&mut self) -> Vec<(u64, u64)> {
        let own = &self.peers[self.rank.index()].durable;
        let mut dropped = Vec::new();
        for &comm in own.keys() {
            let of = |peer: &Peer| peer.durable.get(&comm).copied().unwrap_or_default();
            let floor = self.peers.iter().map(of).min().unwrap_or_default();
            let before = self.floor.insert(comm, floor).unwrap_or_default();
            let first = u64::from(comm) << CALL_BITS;
            if floor > before {
                dropped.push((first, first + floor - 1));
            }
        }
        for &(first, last) in &dropped {
            self.kept.retain(|number| !(first..=last).contains(number));
            self.peers.iter_mut().for_each(|peer| peer.holds.retain(|number| !(first..=last).contains(number)));
        }
        dropped
    }
}

fn next(counts: &AllCounts, comm: u32) -> u64 {
    counts.get(&comm).map_or(0, |counts| counts.next)
}

fn mask() -> u64 {
    (1 << CALL_BITS) - 1
}

fn comm_of(number: u64) -> u32 {
    (number >> CALL_BITS) as u32
}

fn key(number: u64) -> EntryKey {
    EntryKey { kind: EntryKind::Collective, number }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::CollectiveClass;

    const OWN: Rank = Rank(0);
    const PEER: Rank = Rank(1);

    fn call(comm: u32, number: u64) -> CollectiveCall {
        CollectiveCall { class: CollectiveClass::AllToAll, comm, number, uniform: true }
    }

    fn entry(comm: u32, number: u64) -> EntryKey {
        call(comm, number).entry()
    }

    /// Calls on two communicators: three and one, all with results.
    fn two_communicators() -> Calls {
        let mut calls = Calls::new(OWN, 2);
        for (comm, number) in [(5, 0), (5, 1), (5, 2), (6, 0)] {
            calls.complete(&call(comm, number), true);
        }
        calls
    }

    /// Report from a peer with this many completed calls on each communicator.
    fn completed(of: &[(u32, u64)]) -> Report {
        let counts = |next| super::super::Counts { next, all_to_all: next, ..Default::default() };
        Report { completed: of.iter().map(|&(comm, next)| (comm, counts(next))).collect(), ..Report::default() }
    }

    #[test]
    fn a_peer_lacks_the_results_of_each_communicator_that_it_has_not_completed_and_does_not_hold() {
        let mut calls = two_communicators();
        assert!(!calls.has_met(PEER));
        let report = Report { held: vec![(entry(5, 2).number, entry(5, 2).number)], ..completed(&[(5, 1)]) };
        calls.meet(PEER, &report);
        assert!(calls.has_met(PEER) && calls.is_ahead_of(PEER));
        assert_eq!(calls.lacked_by(PEER), [entry(5, 1), entry(6, 0)]);
        assert_eq!(calls.lacked_by(PEER), [], "they are on their way");
        calls.note(PEER, &completed(&[(5, 3), (6, 1)]));
        assert!(!calls.is_ahead_of(PEER));
        // A report under way says less.
        calls.note(PEER, &completed(&[(5, 2)]));
        assert!(!calls.is_ahead_of(PEER));
    }

    #[test]
    fn a_result_is_kept_if_its_call_is_to_come_in_its_communicator() {
        let mut calls = two_communicators();
        calls.complete(&call(7, 0), false);
        for (comm, number, is_new) in
            [(5, 2, false), (5, 3, true), (5, 3, false), (6, 0, false), (6, 1, true), (7, 0, false), (7, 1, true)]
        {
            assert_eq!(calls.insert(Some(PEER), entry(comm, number)), is_new, "call {number} of {comm}");
        }
        let held = [entry(5, 3), entry(6, 1), entry(7, 1)].map(|entry| (entry.number, entry.number));
        assert_eq!(calls.report().held, held);
        // What the peer has sent isn't sent back.
        calls.note(PEER, &completed(&[(5, 3), (6, 1), (7, 1)]));
        assert_eq!(calls.lacked_by(PEER), []);
    }

    #[test]
    fn results_are_dropped_in_each_communicator_below_what_all_durable_checkpoints_are_beyond() {
        let mut calls = two_communicators();
        calls.meet(PEER, &completed(&[]));
        let durable = calls.durable_now();
        calls.note_durable(OWN, &durable);
        assert_eq!(calls.collect(), []);
        calls.note_durable(PEER, &Durable::from([(5, 2)]));
        assert_eq!(calls.collect(), [(entry(5, 0).number, entry(5, 1).number)]);
        assert_eq!(calls.collect(), [], "once");
        assert_eq!(calls.lacked_by(PEER), [entry(5, 2), entry(6, 0)]);
    }

    /// A result held by a peer is dropped there, too: another call may get its number after a restart.
    #[test]
    fn what_a_peer_holds_is_forgotten_with_the_result() {
        let mut calls = two_communicators();
        assert_eq!(calls.lacked_by(PEER).len(), 4);
        for rank in [OWN, PEER] {
            calls.note_durable(rank, &Durable::from([(5, 2)]));
        }
        calls.collect();
        let held: Vec<u64> = calls.peers[PEER.index()].holds.iter().copied().collect();
        assert_eq!(held, [entry(5, 2).number, entry(6, 0).number]);
    }
}
