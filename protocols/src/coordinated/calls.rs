//! Collective calls (section 5): conclusions from the colour and amLogging bits of the participants.

use std::collections::BTreeMap;

use counterfoil_log_core::{Epoch, Rank};

use super::tables::{CallId, Log, SEALED, Tables, entry};
use crate::api::{CollectiveCall, CollectiveClass, EntryKey, EntryKind};

/// Collective calls of a rank.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// By communicator: number of calls made.
    pub(super) made: BTreeMap<u32, u64>,
    /// *re-exec log* for the next checkpoint: root and call.
    pub(super) repeated: Vec<(u32, CallId)>,
    /// *suppress log* for the next checkpoint: sender and call.
    pub(super) suppressed: Vec<(u32, CallId)>,
    /// Log of the line with which this execution began: results, and calls to be suppressed by others.
    results: BTreeMap<CallId, EntryKey>,
    told: Vec<(u32, CallId)>,
    /// Conclusions from the words of the current call, for its completion.
    concluded: Conclusion,
}

/// Consequences of an incomplete call.
#[derive(Debug, Default)]
pub(super) struct Conclusion {
    /// The call straddles the line, and data came from before it: log the result.
    pub(super) keep: bool,
    /// The root was beyond the line: repeat the call with dummy arguments.
    repeat: bool,
    /// Senders told to suppress the call.
    suppress: Vec<Rank>,
    /// Another participant has stopped logging.
    pub(super) stop: bool,
}

/// State of a participant when it began the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) epoch: Epoch,
    pub(super) am_logging: bool,
}

impl Word {
    pub(super) fn encode(self) -> u64 {
        u64::from(self.epoch.0) << 1 | u64::from(self.am_logging)
    }

    fn decode(word: u64) -> Word {
        Word { epoch: Epoch((word >> 1) as u32), am_logging: word & 1 == 1 }
    }
}

pub(super) fn id(call: &CollectiveCall) -> CallId {
    (call.comm, call.number)
}

impl Calls {
    pub(super) fn restore(tables: &Tables) -> Calls {
        Calls { made: tables.calls.clone(), told: tables.suppressed.clone(), ..Calls::default() }
    }

    /// Takes up the sealed log for the line beginning `epoch`.
    pub(super) fn recover(&mut self, log: &Log, epoch: Epoch) {
        let places = (SEALED..).map(|place| entry(EntryKind::Collective, epoch, place));
        self.results = log.results.iter().copied().zip(places).collect();
        self.told.extend(&log.suppressed);
    }

    /// Returns the calls to this rank to be suppressed by a peer.
    pub(super) fn suppressed_of(&self, peer: Rank) -> Vec<CallId> {
        self.told.iter().filter(|(sender, _)| *sender == peer.0).map(|(_, call)| *call).collect()
    }

    /// Returns the entry of a logged result.
    pub(super) fn logged(&self, call: CallId) -> Option<EntryKey> {
        self.results.get(&call).copied()
    }

    /// Returns `true` if no logged result is yet to be used.
    pub(super) fn are_repeated(&self) -> bool {
        self.results.keys().all(|call| self.is_made(*call))
    }

    pub(super) fn is_made(&self, (comm, number): CallId) -> bool {
        self.made.get(&comm).is_some_and(|made| number < *made)
    }

    /// Returns `true` if this rank has made all these calls.
    pub(super) fn has_made(&self, others: &BTreeMap<u32, u64>) -> bool {
        others.iter().all(|(comm, made)| *made == 0 || self.made.get(comm).is_some_and(|own| own >= made))
    }

    /// Draws the conclusions from the words of a call (Figures 6 to 8).
    ///
    /// A conclusion takes effect when the call is complete.
    pub(super) fn judge(&mut self, call: &CollectiveCall, own: (Rank, Word), words: &[(Rank, u64)]) -> &Conclusion {
        let (rank, Word { epoch, am_logging }) = own;
        let others = words.iter().filter(|(from, _)| *from != rank).map(|(from, word)| (*from, Word::decode(*word)));
        // Participants with data coming here.
        let sources = others.clone().filter(|(from, _)| call.class.flows(*from, rank));
        let behind = sources.clone().any(|(_, word)| word.epoch < epoch);
        let beyond: Vec<Rank> = sources.clone().filter(|(_, word)| word.epoch > epoch).map(|(from, _)| from).collect();
        let crosses = behind || !beyond.is_empty();
        let stopped = sources.clone().any(|(_, word)| !word.am_logging);
        let mut concluded = Conclusion { keep: behind, stop: !crosses && am_logging && stopped, ..Default::default() };
        match call.class {
            CollectiveClass::Barrier | CollectiveClass::AllToAll => {}
            CollectiveClass::FromRoot(_) => concluded.repeat = !beyond.is_empty(),
            CollectiveClass::ToRoot(_) if behind => {
                let same = others.filter(|(_, word)| word.epoch == epoch);
                concluded.suppress = same.map(|(from, _)| from).collect();
            }
            CollectiveClass::ToRoot(_) => concluded.suppress = beyond,
        }
        self.concluded = concluded;
        &self.concluded
    }

    /// Forgets the conclusions from a failed call.
    pub(super) fn fail(&mut self) {
        self.concluded = Conclusion::default();
    }

    /// Notes a call in the logs; `log` is the recovery log, while logging.
    ///
    /// Returns `true` if another participant has stopped logging.
    pub(super) fn conclude(&mut self, call: &CollectiveCall, log: Option<&mut Log>) -> bool {
        let Conclusion { keep, repeat, suppress, stop } = std::mem::take(&mut self.concluded);
        let id = id(call);
        if let CollectiveClass::FromRoot(root) = call.class
            && repeat
        {
            self.repeated.push((root.0, id));
        }
        let suppressed = suppress.into_iter().map(|sender| (sender.0, id));
        match log {
            Some(log) => {
                log.results.extend(keep.then_some(id));
                log.suppressed.extend(suppressed);
            }
            None => self.suppressed.extend(suppressed),
        }
        stop
    }

    /// Counts a call.
    pub(super) fn complete(&mut self, call: &CollectiveCall) {
        let made = self.made.entry(call.comm).or_default();
        *made = (call.number + 1).max(*made);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Rank = Rank(1);

    /// Returns the conclusions from a call by rank 1, in epoch 5: the words from ranks 0 and 2 are an epoch and
    /// *amLogging*.
    fn judged(class: CollectiveClass, am_logging: bool, words: [(u32, bool); 2]) -> Conclusion {
        let own = Word { epoch: Epoch(5), am_logging };
        let words = [0, 2].into_iter().zip(words);
        let words =
            words.map(|(from, (epoch, am_logging))| (Rank(from), Word { epoch: Epoch(epoch), am_logging }.encode()));
        let words: Vec<(Rank, u64)> = words.chain([(OWN, own.encode())]).collect();
        let mut calls = Calls::default();
        calls.judge(&CollectiveCall { class, comm: 0, number: 7, uniform: true }, (OWN, own), &words);
        calls.concluded
    }

    #[test]
    fn logging_ends_with_data_of_a_source_that_has_stopped_and_only_within_the_epoch() {
        let stops = |am_logging, words| judged(CollectiveClass::AllToAll, am_logging, words).stop;
        assert!(stops(true, [(5, false), (5, true)]));
        assert!(!stops(true, [(5, true), (5, true)]), "nobody has stopped");
        assert!(!stops(false, [(5, false), (5, true)]), "this rank isn't logging");
        assert!(!stops(true, [(4, false), (5, false)]), "a source is behind the line");
        assert!(!stops(true, [(6, false), (5, false)]), "a source is beyond it");
        assert!(
            !judged(CollectiveClass::FromRoot(Rank(0)), true, [(5, true), (5, false)]).stop,
            "rank 2 sends nothing here"
        );
    }

    #[test]
    fn results_that_come_from_behind_the_line_are_kept_and_calls_from_beyond_it_repeated() {
        let from_0 = |words| judged(CollectiveClass::FromRoot(Rank(0)), true, words);
        let (behind, beyond) = (from_0([(4, true), (6, true)]), from_0([(6, true), (4, true)]));
        assert_eq!((behind.keep, behind.repeat), (true, false));
        assert_eq!((beyond.keep, beyond.repeat), (false, true));
        let all = |words| judged(CollectiveClass::AllToAll, true, words);
        assert!(all([(5, true), (4, true)]).keep && !all([(5, true), (6, true)]).keep);
    }

    #[test]
    fn a_root_has_those_suppress_the_call_that_will_make_it_again() {
        let to_1 = |words| judged(CollectiveClass::ToRoot(OWN), true, words).suppress;
        assert_eq!(to_1([(6, true), (5, true)]), [Rank(0)], "it won't come again from beyond the line");
        assert_eq!(to_1([(4, true), (5, true)]), [Rank(2)], "the result is kept");
        assert_eq!(to_1([(5, true), (5, true)]), []);
    }
}
