//! Questions between ranks, where a log is full: how far they are.
//!
//! A rank that waits for room asks each of those that could make some, once. Who is asked keeps the question until there is
//! news, and answers once: so no more is under way between two ranks than a question and an answer for each thing that is asked for,
//! and nobody asks again in vain.

use counterfoil::{Log, Rank};
use counterfoil_profile::{COLLECTIVE, RecordTag};
use rustc_hash::FxHashMap;

/// In place of a tag, where messages are asked for; [`COLLECTIVE`] asks for operations.
const MESSAGES: i32 = -3;
/// After so many bytes that are kept of collective operations, others are asked how far they are.
const EARLY_BYTES: u64 = 4 << 20;

/// What goes to each rank: entries of [`RecordTag::LEN`] bytes.
pub type Entries = FxHashMap<u32, Vec<u8>>;

/// A communicator with operations that something is kept for, and of which it isn't known that they are over.
#[derive(Debug)]
struct Open {
    /// The last of them.
    kept: u64,
    /// Whether the program has given it up.
    is_left: bool,
    others: Vec<Other>,
}

/// A rank that must have ended them.
#[derive(Debug)]
struct Other {
    rank: u32,
    /// How many operations it has said to have ended.
    ended: u64,
    /// It was asked, and there is no answer yet.
    is_asked: bool,
}

/// What a rank asks, and what it is asked.
///
/// ```
/// use counterfoil_mpi::room::Asking;
///
/// // Rank 0 keeps what it gave to operation 5 of communicator 7, which rank 1 has not ended.
/// let (mut root, mut leaf) = (Asking::new(0, 2), Asking::new(1, 2));
/// root.keep(7, 5, [1].into_iter());
/// let questions = root.questions(None, 0);
/// leaf.asked(0, &questions[&1]);
/// assert!(leaf.answers(|_| false, |_| 0).is_empty());
/// // Nobody is asked twice.
/// assert!(root.questions(None, 0).is_empty());
/// // There is news, once.
/// let answers = leaf.answers(|_| false, |_| 5);
/// assert_eq!(root.answered(1, &answers[&0]), [(7, 5)]);
/// assert!(!leaf.has_questions());
/// ```
#[derive(Debug, Default)]
pub struct Asking {
    rank: u32,
    /// By the communicator's number.
    open: FxHashMap<u32, Open>,
    /// For each rank, whether it was asked for acknowledgements of messages, and has not said that these are all.
    is_asked: Vec<bool>,
    /// For each rank, whether it has failed.
    is_gone: Vec<bool>,
    /// What others wait for: who, and an entry with what is known there.
    questions: Vec<(u32, RecordTag)>,
    /// How many bytes had been kept of collective operations when others were last asked about them.
    asked_at: u64,
}

impl Open {
    /// How many operations are over; `None` if nobody else is there to say it.
    fn over(&self) -> Option<u64> {
        self.others.iter().map(|other| other.ended).min()
    }

    /// What there is to ask of whom.
    fn questions(&mut self) -> impl Iterator<Item = (u32, u64)> {
        let kept = self.kept;
        let is_due = move |other: &&mut Other| other.ended < kept && !other.is_asked;
        self.others.iter_mut().filter(is_due).map(|other| {
            other.is_asked = true;
            (other.rank, other.ended)
        })
    }
}

/// Ranks that have not acknowledged all that was sent to them.
fn behind(log: &Log) -> impl Iterator<Item = u32> {
    (0..log.options().ranks).filter(|rank| log.acked(Rank(*rank)).next() < log.next_ssn(Rank(*rank)))
}

impl Asking {
    /// Of this rank, in a job of so many.
    pub fn new(rank: u32, ranks: u32) -> Asking {
        let none = || vec![false; ranks as usize];
        Asking { rank, is_asked: none(), is_gone: none(), ..Asking::default() }
    }

    /// Something is kept for a communicator's operations up to this one, until `others` have ended them. Whether there are any.
    pub fn keep(&mut self, comm: u32, kept: u64, others: impl Iterator<Item = u32>) -> bool {
        let other = |rank| Other { rank, ended: 0, is_asked: false };
        let living = others.filter(|rank| !self.is_gone[*rank as usize]);
        let begin = || Open { kept, is_left: false, others: living.map(other).collect() };
        let open = self.open.entry(comm).or_insert_with(begin);
        open.kept = kept;
        !open.others.is_empty()
    }

    /// A rank has failed: nothing is waited for from it. Says of which communicators it was among those to be waited for, and how many
    /// operations the others have ended, as far as something is kept.
    pub fn forget(&mut self, gone: u32) -> Vec<(u32, u64)> {
        if let Some(is_gone) = self.is_gone.get_mut(gone as usize) {
            *is_gone = true;
        }
        self.questions.retain(|(by, _)| *by != gone);
        let of = |(comm, open): (&u32, &mut Open)| {
            let before = open.others.len();
            open.others.retain(|other| other.rank != gone);
            (before > open.others.len()).then(|| Some((*comm, open.over()?.min(open.kept)))).flatten()
        };
        self.open.iter_mut().filter_map(of).collect()
    }

    /// The program gives a communicator up: those who are in it may be asked later. Says how many there are of the kind.
    pub fn leave(&mut self, comm: u32) -> usize {
        if let Some(open) = self.open.get_mut(&comm) {
            open.is_left = true;
        }
        self.left().count()
    }

    /// Communicators that were given up with operations of which it isn't known that they are over, and how far something is kept.
    pub fn left(&self) -> impl Iterator<Item = (u32, u64)> {
        self.open.iter().filter(|(_, open)| open.is_left).map(|(comm, open)| (*comm, open.kept))
    }

    /// The same, of all communicators.
    pub fn open(&self) -> impl Iterator<Item = (u32, u64)> {
        self.open.iter().map(|(comm, open)| (*comm, open.kept))
    }

    /// Operations up to this one are over: if these are all, nothing has to be known of the communicator.
    pub fn close(&mut self, comm: u32, number: u64) {
        let open = &self.open;
        if !open.is_empty() && open.get(&comm).is_some_and(|open| open.kept <= number) {
            self.open.remove(&comm);
        }
    }

    /// Whether so much is kept of collective operations, of all that ever was, that others are to be asked before the log is full: so that it
    /// needn't be waited for room later, and the log stays in the cache.
    pub fn is_early(&self, kept_bytes: u64, budget: usize) -> bool {
        kept_bytes - self.asked_at >= EARLY_BYTES.min(budget as u64 / 2)
    }

    /// What there is to ask of whom, and isn't asked already: how far others are in collective operations; with a log, also for
    /// acknowledgements of what is in it. So many bytes were ever kept of collective operations.
    pub fn questions(&mut self, log: Option<&Log>, kept_bytes: u64) -> Entries {
        self.asked_at = kept_bytes;
        let mut questions = Entries::default();
        for rank in log.into_iter().flat_map(behind) {
            let is_other = rank != self.rank && !self.is_gone[rank as usize];
            if is_other && !std::mem::replace(&mut self.is_asked[rank as usize], true) {
                questions.insert(rank, RecordTag { comm: 0, tag: MESSAGES, number: 0 }.encode().to_vec());
            }
        }
        for (comm, open) in &mut self.open {
            for (rank, ended) in open.questions() {
                let entry = RecordTag { comm: *comm, tag: COLLECTIVE, number: ended };
                questions.entry(rank).or_default().extend(entry.encode());
            }
        }
        questions
    }

    /// Whether anybody else could make room.
    pub fn is_anybody_behind(&self, log: Option<&Log>) -> bool {
        let own = self.rank;
        log.into_iter().flat_map(behind).any(|rank| rank != own && !self.is_gone[rank as usize])
            || self.open.values().any(|open| open.others.iter().any(|other| other.ended < open.kept))
    }

    /// A rank asks: it wants to be told as soon as there is more than this.
    pub fn asked(&mut self, by: u32, entries: &[u8]) {
        for entry in entries.chunks_exact(RecordTag::LEN).filter_map(RecordTag::decode) {
            let is_same =
                |known: &&mut (u32, RecordTag)| known.0 == by && (known.1.comm, known.1.tag) == (entry.comm, entry.tag);
            match self.questions.iter_mut().find(is_same) {
                Some(known) => known.1 = entry,
                None => self.questions.push((by, entry)),
            }
        }
    }

    /// Whether somebody waits for news.
    #[inline]
    pub fn has_questions(&self) -> bool {
        !self.questions.is_empty()
    }

    /// What there is news of, and for whom. `has_messages` says whether there is something of a rank to be acknowledged, which has to be sent
    /// before the answer; `ended` how many operations this rank has ended on a communicator.
    pub fn answers(&mut self, has_messages: impl Fn(u32) -> bool, ended: impl Fn(u32) -> u64) -> Entries {
        let mut answers = Entries::default();
        self.questions.retain(|(by, entry)| {
            let news = match entry.tag {
                MESSAGES if has_messages(*by) => *entry,
                COLLECTIVE => match ended(entry.comm) {
                    number if number > entry.number => RecordTag { number, ..*entry },
                    _ => return true,
                },
                _ => return true,
            };
            answers.entry(*by).or_default().extend(news.encode());
            false
        });
        answers
    }

    /// A rank has answered. Says of which communicators how many operations are over: those that something is kept for.
    pub fn answered(&mut self, from: u32, entries: &[u8]) -> Vec<(u32, u64)> {
        let mut over = Vec::new();
        for RecordTag { comm, tag, number } in entries.chunks_exact(RecordTag::LEN).filter_map(RecordTag::decode) {
            if tag == MESSAGES {
                if let Some(is_asked) = self.is_asked.get_mut(from as usize) {
                    *is_asked = false;
                }
            } else if let Some(number) = self.heard(from, comm, number) {
                over.push((comm, number));
            }
        }
        over
    }

    /// A rank has ended so many operations. Says how many all have ended: nobody is further than this rank with what it keeps.
    fn heard(&mut self, from: u32, comm: u32, ended: u64) -> Option<u64> {
        let open = self.open.get_mut(&comm)?;
        let other = open.others.iter_mut().find(|other| other.rank == from)?;
        other.ended = other.ended.max(ended);
        other.is_asked = false;
        open.over().map(|over| over.min(open.kept))
    }
}

#[cfg(test)]
mod tests {
    use counterfoil::{Keep, Options};

    use super::*;

    fn entry(comm: u32, tag: i32, number: u64) -> [u8; RecordTag::LEN] {
        RecordTag { comm, tag, number }.encode()
    }

    fn decoded(entries: &[u8]) -> Vec<RecordTag> {
        entries.chunks_exact(RecordTag::LEN).filter_map(RecordTag::decode).collect()
    }

    /// A log of rank 0 with a message to each of three ranks, itself among them.
    fn log() -> Log {
        let mut options = Options::new(Rank(0), 3);
        options.keep = Keep::Acked;
        let mut log = Log::create(options).unwrap();
        for rank in 0..3 {
            log.try_claim(Rank(rank), RecordTag::LEN, 10).unwrap().commit();
        }
        log
    }

    #[test]
    fn each_rank_that_has_not_acknowledged_everything_is_asked_once_until_it_answers() {
        let (log, mut asking) = (log(), Asking::new(0, 3));
        let asked = |asking: &mut Asking| {
            let mut asked: Vec<_> = asking.questions(Some(&log), 0).into_keys().collect();
            asked.sort_unstable();
            asked
        };
        assert_eq!(asked(&mut asking), [1, 2]);
        assert!(asked(&mut asking).is_empty());
        assert!(asking.answered(2, &entry(0, MESSAGES, 0)).is_empty());
        assert_eq!(asked(&mut asking), [2]);
        assert!(asking.is_anybody_behind(Some(&log)) && !asking.is_anybody_behind(None));
    }

    #[test]
    fn a_question_is_answered_once_as_soon_as_there_is_more_than_is_known() {
        let mut asking = Asking::new(1, 3);
        asking.asked(0, &entry(7, COLLECTIVE, 3));
        asking.asked(2, &[entry(0, MESSAGES, 0), entry(7, COLLECTIVE, 1)].concat());
        // Asked again, it is one question.
        asking.asked(0, &entry(7, COLLECTIVE, 3));
        let answers = asking.answers(|_| false, |_| 3);
        assert_eq!(answers.keys().collect::<Vec<_>>(), [&2]);
        assert_eq!(decoded(&answers[&2]), [RecordTag { comm: 7, tag: COLLECTIVE, number: 3 }]);
        let answers = asking.answers(|by| by == 2, |_| 4);
        assert_eq!(decoded(&answers[&0]), [RecordTag { comm: 7, tag: COLLECTIVE, number: 4 }]);
        assert_eq!(decoded(&answers[&2]), [RecordTag { comm: 0, tag: MESSAGES, number: 0 }]);
        assert!(!asking.has_questions());
    }

    #[test]
    fn nothing_is_waited_for_from_a_rank_that_has_failed() {
        let (log, mut asking) = (log(), Asking::new(0, 3));
        assert!(asking.keep(7, 4, [1, 2].into_iter()) && asking.keep(8, 2, [2].into_iter()));
        asking.asked(2, &entry(9, COLLECTIVE, 0));
        assert_eq!(asking.answered(1, &entry(7, COLLECTIVE, 3)), [(7, 0)]);
        // Of the second communicator nobody else is left who could say how far it is.
        assert_eq!(asking.forget(2), [(7, 3)]);
        assert!(asking.forget(2).is_empty() && !asking.has_questions());
        assert_eq!(asking.questions(Some(&log), 0).into_keys().collect::<Vec<_>>(), [1]);
        assert!(!asking.keep(10, 1, [2].into_iter()));
        assert_eq!(asking.answered(1, &entry(7, COLLECTIVE, 4)), [(7, 4)]);
    }

    #[test]
    fn an_operation_is_over_when_the_last_one_has_ended_it() {
        let mut asking = Asking::new(0, 3);
        assert!(asking.keep(7, 4, [1, 2].into_iter()));
        assert_eq!(asking.questions(None, 0).len(), 2);
        assert_eq!(asking.answered(1, &entry(7, COLLECTIVE, u64::MAX)), [(7, 0)]);
        assert_eq!(asking.answered(2, &entry(7, COLLECTIVE, 3)), [(7, 3)]);
        // It has not ended all: it is asked again.
        let questions = asking.questions(None, 0);
        assert_eq!(decoded(&questions[&2]), [RecordTag { comm: 7, tag: COLLECTIVE, number: 3 }]);
        assert_eq!(questions.len(), 1);
        // What is over is no more than what is kept, whatever a rank that has given the communicator up says.
        assert_eq!(asking.answered(2, &entry(7, COLLECTIVE, u64::MAX)), [(7, 4)]);
        asking.close(7, 4);
        assert_eq!(asking.open().count(), 0);
        assert!(asking.answered(2, &entry(7, COLLECTIVE, 9)).is_empty());
    }

    #[test]
    fn an_answer_that_is_older_than_what_is_kept_leaves_it_open() {
        let mut asking = Asking::new(0, 2);
        asking.keep(7, 4, [1].into_iter());
        asking.questions(None, 0);
        asking.keep(7, 6, [1].into_iter());
        assert_eq!(asking.answered(1, &entry(7, COLLECTIVE, 4)), [(7, 4)]);
        asking.close(7, 4);
        assert_eq!(asking.open().collect::<Vec<_>>(), [(7, 6)]);
        assert!(asking.is_anybody_behind(None));
    }

    #[test]
    fn what_nobody_else_is_a_part_of_has_nobody_to_be_asked() {
        let mut asking = Asking::new(0, 2);
        assert!(!asking.keep(1, 3, std::iter::empty()));
        assert!(asking.questions(None, 0).is_empty() && !asking.is_anybody_behind(None));
    }

    #[test]
    fn communicators_that_were_given_up_are_asked_about_like_others() {
        let mut asking = Asking::new(0, 2);
        asking.keep(7, 4, [1].into_iter());
        asking.keep(8, 1, [1].into_iter());
        assert_eq!((asking.leave(7), asking.leave(9)), (1, 1));
        assert_eq!(asking.left().collect::<Vec<_>>(), [(7, 4)]);
        assert_eq!(decoded(&asking.questions(None, 0)[&1]).len(), 2);
    }

    #[test]
    fn others_are_asked_early_where_much_is_kept() {
        let mut asking = Asking::new(0, 2);
        assert!(!asking.is_early(4 << 19, 64 << 20) && asking.is_early(4 << 20, 64 << 20));
        assert!(asking.is_early(1 << 19, 1 << 20));
        asking.questions(None, 4 << 20);
        assert!(!asking.is_early(5 << 20, 64 << 20) && asking.is_early(8 << 20, 64 << 20));
    }
}
