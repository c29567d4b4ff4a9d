//! Whether anybody can still make room: a rank that waits for long asks all others, again and again, how much has happened to them.
//!
//! Who computes doesn't answer, and whoever gets on has another number in the next round. If in two rounds, of which one begins
//! when the other is over, all ranks answer with the same numbers, each of them was between the two in one and the same call of
//! MPI, or waited for room. What is under way then can still arrive; if for ten seconds nothing has, nothing will. Where several
//! threads of a rank call MPI, one that computes doesn't show; there it is a minute.

use std::time::{Duration, Instant};

use counterfoil_profile::RecordTag;

/// How long nothing may have happened.
pub const STANDSTILL: Duration = Duration::from_secs(10);
/// So many times as long, where a rank has threads that call MPI when they want to: while one waits in a call, another one may compute.
const TOGETHER_TIMES: u32 = 6;
/// In an answer: this rank waits for room.
const WAITS: i32 = 1;
/// In an answer: this rank's threads call MPI when they want to.
const TOGETHER: i32 = 2;
/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(250);

/// How a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// How much has happened to the program: another number after whatever it was that MPI did for it.
    pub happened: u64,
    /// Whether it waits for room.
    pub waits: bool,
    /// Whether its threads call MPI when they want to.
    pub is_together: bool,
}

/// What a rank that has waited for long does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It goes on waiting.
    Wait,
    /// It asks this of all others.
    Ask([u8; RecordTag::LEN]),
    /// It gives up: for so long nothing has happened to anybody, and it is its turn.
    GiveUp(Duration),
}

/// Rounds of questions. Of one question to a rank the answer comes before there is another.
#[derive(Debug)]
pub struct Rounds {
    rank: u32,
    /// How long nothing may have happened, by itself; longer with threads.
    after: Duration,
    number: u32,
    /// Of each rank, whether its answer in the round is still to come; and of how many that is so.
    is_awaited: Vec<bool>,
    missing: u32,
    /// Of each rank, whether it has gone away: it waits for nothing, and nothing happens to it.
    is_gone: Vec<bool>,
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
    /// Of this rank, in a job of so many. It gives up when nothing has happened for `after`, usually [`STANDSTILL`].
    pub fn new(rank: u32, ranks: u32, after: Duration) -> Rounds {
        Rounds {
            rank,
            after,
            number: 0,
            is_awaited: vec![false; ranks as usize],
            missing: 0,
            is_gone: vec![false; ranks as usize],
            beats: vec![0; ranks as usize],
            before: Vec::new(),
            is_before_us: false,
            is_together: false,
            complete: None,
            still: None,
        }
    }

    /// Sets how long nothing may have happened.
    pub fn set_after(&mut self, after: Duration) {
        self.after = after;
    }

    /// Another wait begins: what was seen before doesn't count.
    pub fn begin(&mut self) {
        self.before.clear();
        self.still = None;
        // Of a round that is under way the number is counted when it ends, and it has to be the first of two.
        self.complete = None;
    }

    /// What a rank that has waited for long, and is like this, does now.
    pub fn step(&mut self, now: Instant, own: Beat) -> Step {
        let is_new = self.complete.is_some_and(|last| now.saturating_duration_since(last) < PAUSE);
        if self.missing > 0 || is_new {
            return Step::Wait;
        }
        let after = self.after.saturating_mul(if self.is_together { TOGETHER_TIMES } else { 1 });
        if !self.is_before_us && self.still.is_some_and(|since| now.saturating_duration_since(since) >= after) {
            return Step::GiveUp(after);
        }
        self.number = self.number.wrapping_add(1);
        for (rank, is_awaited) in self.is_awaited.iter_mut().enumerate() {
            *is_awaited = rank != self.rank as usize && !self.is_gone[rank];
        }
        self.missing = self.is_awaited.iter().map(|is_awaited| u32::from(*is_awaited)).sum();
        (self.is_before_us, self.is_together) = (false, own.is_together);
        self.beats[self.rank as usize] = own.happened;
        if self.missing == 0 {
            self.end(now);
        }
        Step::Ask(RecordTag { comm: self.number, tag: 0, number: 0 }.encode())
    }

    /// What a rank answers that is like this.
    pub fn answer(question: &[u8], own: Beat) -> Option<[u8; RecordTag::LEN]> {
        let question = RecordTag::decode(question)?;
        let waits = if own.waits { WAITS } else { 0 };
        let together = if own.is_together { TOGETHER } else { 0 };
        Some(RecordTag { tag: waits | together, number: own.happened, ..question }.encode())
    }

    /// A rank has answered.
    pub fn take(&mut self, from: u32, answer: &[u8], now: Instant) {
        let Some(answer) = RecordTag::decode(answer) else { return };
        if answer.comm != self.number || !self.was_awaited(from) {
            return;
        }
        self.beats[from as usize] = answer.number;
        self.is_before_us |= answer.tag & WAITS != 0 && from < self.rank;
        self.is_together |= answer.tag & TOGETHER != 0;
        if self.missing == 0 {
            self.end(now);
        }
    }

    /// A rank has gone away: it answers no more.
    pub fn leave(&mut self, rank: u32, now: Instant) {
        if let Some(is_gone) = self.is_gone.get_mut(rank as usize) {
            *is_gone = true;
        }
        if self.was_awaited(rank) && self.missing == 0 {
            self.end(now);
        }
    }

    /// Whether an answer was still to come from a rank in this round: from now on none is.
    fn was_awaited(&mut self, from: u32) -> bool {
        let is_awaited = self.is_awaited.get_mut(from as usize).is_some_and(std::mem::take);
        self.missing -= u32::from(is_awaited);
        is_awaited
    }

    /// Who has gone away.
    pub fn gone(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.is_gone).filter(|(_, is_gone)| **is_gone).map(|(rank, _)| rank)
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

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Beat = Beat { happened: 5, waits: true, is_together: false };

    #[test]
    fn nothing_has_happened_since_the_first_of_two_equal_rounds_of_one_wait() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut rounds = Rounds::new(0, 2, STANDSTILL);
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

    /// What ranks do, once a second, that have waited for long: all of them are like this. The first that gives up, when, and after
    /// what time.
    fn first_to_give_up(beats: [impl Fn(u64) -> Option<Beat>; 3], after: Duration) -> Option<(usize, u64, Duration)> {
        let begun = Instant::now();
        let mut all = [0, 1, 2].map(|rank| Rounds::new(rank, 3, after));
        for second in 0..1000 {
            let now = begun + Duration::from_secs(second);
            for (rank, beat) in beats.iter().enumerate() {
                let Some(own) = beat(second).filter(|own| own.waits) else { continue };
                let question = match all[rank].step(now, own) {
                    Step::Wait => continue,
                    Step::GiveUp(after) => return Some((rank, second, after)),
                    Step::Ask(question) => question,
                };
                for (other, beat) in beats.iter().enumerate().filter(|(other, _)| *other != rank) {
                    if let Some(answer) = beat(second).and_then(|beat| Rounds::answer(&question, beat)) {
                        all[rank].take(other as u32, &answer, now);
                    }
                }
            }
        }
        None
    }

    #[test]
    fn the_lowest_rank_that_waits_for_room_gives_up() {
        let still = |waits| move |_| Some(Beat { waits, ..ALONE });
        let beats = || [still(false), still(true), still(true)];
        assert_eq!(first_to_give_up(beats(), STANDSTILL), Some((1, 10, STANDSTILL)));
        let after = Duration::from_secs(100);
        assert_eq!(first_to_give_up(beats(), after), Some((1, 100, after)));
    }

    #[test]
    fn nobody_gives_up_while_something_happens_or_a_rank_computes() {
        let beats = |other: fn(u64) -> Option<Beat>| [|_| Some(ALONE), |_| Some(ALONE), other];
        let gets_on = |second| Some(Beat { happened: second / 9, ..ALONE });
        assert_eq!(first_to_give_up(beats(gets_on), STANDSTILL), None);
        assert_eq!(first_to_give_up(beats(|_| None), STANDSTILL), None);
        // It stood still before, and again behind it.
        let once = |second| Some(Beat { happened: u64::from(second >= 8), ..ALONE });
        assert_eq!(first_to_give_up(beats(once), STANDSTILL), Some((0, 18, STANDSTILL)));
    }

    #[test]
    fn where_threads_call_when_they_want_to_it_takes_longer() {
        let still = |is_together| move |_| Some(Beat { is_together, ..ALONE });
        let beats = [still(false), still(false), still(true)];
        assert_eq!(first_to_give_up(beats, STANDSTILL), Some((0, 60, STANDSTILL * 6)));
    }

    #[test]
    fn who_has_gone_away_is_not_waited_for() {
        let begun = Instant::now();
        let mut rounds = Rounds::new(1, 3, STANDSTILL);
        let mut given_up = None;
        for second in 0..20 {
            let now = begun + Duration::from_secs(second);
            match rounds.step(now, ALONE) {
                // Rank 0 answers once, and waits for room, too; rank 2 never does.
                Step::Ask(question) if second == 0 => rounds.take(0, &Rounds::answer(&question, ALONE).unwrap(), now),
                Step::Ask(_) | Step::Wait => {}
                Step::GiveUp(_) => given_up = given_up.or(Some(second)),
            }
            if second == 5 {
                rounds.leave(2, now);
                rounds.leave(0, now);
                assert_eq!(rounds.gone().collect::<Vec<_>>(), [0, 2]);
            }
        }
        assert_eq!(given_up, Some(15));
    }

    #[test]
    fn an_answer_of_another_round_counts_for_nothing() {
        let now = Instant::now();
        let mut rounds = Rounds::new(0, 2, STANDSTILL);
        let Step::Ask(question) = rounds.step(now, ALONE) else { panic!("a round is due") };
        let other = RecordTag { comm: 7, ..RecordTag::decode(&question).unwrap() }.encode();
        rounds.take(1, &Rounds::answer(&other, ALONE).unwrap(), now);
        assert_eq!(rounds.missing, 1);
        rounds.take(1, &Rounds::answer(&question, ALONE).unwrap(), now);
        assert_eq!((rounds.missing, rounds.step(now, ALONE)), (0, Step::Wait));
    }
}
