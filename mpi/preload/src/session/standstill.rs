//! Whether anybody can still make room: a rank that waits for long asks all others, again and again, how much has happened to them.
//!
//! Who computes doesn't answer, and whoever gets on has another number in the next round. If in two rounds, of which one begins
//! when the other is over, all ranks answer with the same numbers, each of them was between the two in one and the same call of
//! MPI, or waited for room. What is under way then can still arrive; if for ten seconds nothing has, nothing will. Where several
//! threads of a rank call MPI, one that computes doesn't show; there it is a minute.

use std::time::{Duration, Instant};

use counterfoil_mpi::acks::RecordTag;

use super::control::Kind;
use super::ledger::Traffic;
use super::{Session, is_together};

/// How long nothing may have happened.
const STANDSTILL: Duration = Duration::from_secs(10);
/// The same, where a rank has threads that call MPI when they want to: while one waits in a call, another one may compute.
const STANDSTILL_TOGETHER: Duration = Duration::from_secs(60);
/// In an answer: this rank waits for room.
const WAITS: i32 = 1;
/// In an answer: this rank's threads call MPI when they want to.
const TOGETHER: i32 = 2;
/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(250);

/// Why a rank doesn't wait any longer.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoRoom {
    /// All ranks wait, for each other or for this one.
    #[error(
        "{refused}, and nobody will make room: for {} s all ranks have been waiting in calls of MPI or for room in their logs. \
         COUNTERFOIL_BUDGET gives it more",
        after.as_secs()
    )]
    Standstill {
        /// What the log said.
        refused: String,
        /// How long nothing has happened.
        after: Duration,
    },
    /// Everybody else has received what was sent, and has come as far.
    #[error("{refused}, and only the program itself could make room. COUNTERFOIL_BUDGET gives it more")]
    Alone {
        /// What the log said.
        refused: String,
    },
}

/// Rounds of questions. Of one question to a rank the answer comes before there is another.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    number: u32,
    /// How many answers of the round are still to come.
    missing: u32,
    /// What each rank has answered; this rank's own number when the round began.
    beats: Vec<u64>,
    /// The same, of the round before; empty if it was for another wait.
    before: Vec<u64>,
    /// What all ranks together have said beside it. Where a rank before this one waits for room, too, it is its turn to give up.
    is_before_us: bool,
    is_together: bool,
    /// When the last round was complete.
    complete: Option<Instant>,
    /// Since when nothing has happened.
    still: Option<Instant>,
}

impl Rounds {
    /// Another wait begins: what was seen before doesn't count.
    pub(super) fn begin(&mut self) {
        self.before.clear();
        self.still = None;
        // Of a round that is under way the number is counted when it ends, and it has to be the first of two.
        self.complete = None;
    }

    /// A rank has failed: it answers no more, and what others answer to the question that it has is nothing to wait for.
    pub(super) fn forget(&mut self) {
        self.begin();
        self.missing = 0;
    }

    /// All have answered.
    fn end(&mut self, now: Instant) {
        if self.before != self.beats || self.complete.is_none() {
            self.still = None;
        } else if self.still.is_none() {
            self.still = self.complete;
        }
        self.before.clone_from(&self.beats);
        self.complete = Some(now);
    }
}

impl Session {
    /// How much has happened to the program: the number is another one after whatever it was that MPI did for it.
    fn happened(&self) -> u64 {
        let [logged, received] = [&self.ledger.logged, &self.ledger.received].map(|of| Traffic::sum(of).messages);
        logged + received + self.ledger.all_collectives() + self.moves
    }

    /// Asks all others where they are, if that is due. Says for how long nobody has got any further, if it is long enough and this
    /// rank's turn to give up.
    pub(super) fn stands_still(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let rounds = &self.rounds;
        if rounds.missing > 0 || rounds.complete.is_some_and(|last| now.saturating_duration_since(last) < PAUSE) {
            return None;
        }
        let after = if rounds.is_together { STANDSTILL_TOGETHER } else { STANDSTILL };
        if !rounds.is_before_us && rounds.still.is_some_and(|since| now.saturating_duration_since(since) >= after) {
            return Some(after);
        }
        let own = self.happened();
        let rounds = &mut self.rounds;
        rounds.number = rounds.number.wrapping_add(1);
        rounds.missing = self.ranks - 1 - self.control.failures.count();
        (rounds.is_before_us, rounds.is_together) = (false, is_together());
        rounds.beats.resize(self.ranks as usize, 0);
        rounds.beats[self.rank as usize] = own;
        if rounds.missing == 0 {
            rounds.end(now);
        }
        let question = RecordTag { comm: rounds.number, tag: 0, number: 0 }.encode();
        let own = self.rank;
        for peer in (0..self.ranks).filter(|peer| *peer != own) {
            let asked = self.control.send(peer, Kind::Pulse, &question);
            self.check(asked);
        }
        None
    }

    /// A rank wants to know how much has happened here.
    pub(super) fn beat(&mut self, to: u32, question: &[u8]) {
        let Some(question) = RecordTag::decode(question) else { return };
        let waits = if self.waiting.is_some() { WAITS } else { 0 };
        let together = if is_together() { TOGETHER } else { 0 };
        let answer = RecordTag { tag: waits | together, number: self.happened(), ..question };
        let sent = self.control.send(to, Kind::Beat, &answer.encode());
        self.check(sent);
    }

    /// A rank has said how much has happened there, and whether it waits for room.
    pub(super) fn take_beat(&mut self, from: u32, answer: &[u8]) {
        let Some(answer) = RecordTag::decode(answer) else { return };
        let rounds = &mut self.rounds;
        let Some(beat) = rounds.beats.get_mut(from as usize) else { return };
        if answer.comm != rounds.number || rounds.missing == 0 {
            return;
        }
        *beat = answer.number;
        rounds.missing -= 1;
        rounds.is_before_us |= answer.tag & WAITS != 0 && from < self.rank;
        rounds.is_together |= answer.tag & TOGETHER != 0;
        if rounds.missing == 0 {
            rounds.end(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_happened_since_the_first_of_two_equal_rounds_of_one_wait() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut rounds = Rounds { beats: vec![1, 2], ..Rounds::default() };
        let mut round = |beats: [u64; 2], seconds| {
            rounds.beats = beats.to_vec();
            rounds.end(at(seconds));
            rounds.still
        };
        assert_eq!(round([1, 2], 1), None);
        assert_eq!(round([1, 2], 3), Some(at(1)));
        assert_eq!(round([1, 2], 4), Some(at(1)));
        assert_eq!(round([1, 3], 5), None);
        assert_eq!(round([1, 3], 6), Some(at(5)));
        rounds.begin();
        rounds.end(at(7));
        assert_eq!(rounds.still, None);
        rounds.end(at(8));
        assert_eq!(rounds.still, Some(at(7)));
    }
}
