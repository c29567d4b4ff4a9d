//! Questions between ranks, where a log is full: how far they are. `docs/piggyback.md` says why this is enough.
//!
//! A rank that waits for room asks each of those that could make some, once. Who is asked keeps the question until there is
//! news, and answers once: so no more is under way between two ranks than a question and an answer for each thing that is asked for,
//! and nobody asks again in vain.

use rustc_hash::FxHashMap;

use counterfoil::{Keep, Log, Rank};
use counterfoil_mpi::acks::RecordTag;

use super::Session;
use super::control::Kind;
use super::over::COLLECTIVE;

/// After so many bytes that are kept of collective operations, others are asked how far they are.
const EARLY_BYTES: u64 = 4 << 20;
/// In place of a tag, where messages are asked for.
const MESSAGES: i32 = -3;

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

/// What this rank asked, and what it was asked.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// By the communicator's number.
    open: FxHashMap<u32, Open>,
    /// For each rank, whether it was asked for acknowledgements of messages, and has not said that these are all.
    is_asked: Vec<bool>,
    /// What others wait for: who, and an entry with what is known there.
    questions: Vec<(u32, RecordTag)>,
    /// How many bytes had been kept of collective operations when others were last asked about them.
    asked_at: u64,
}

impl Asking {
    pub(super) fn new(ranks: u32) -> Asking {
        Asking { is_asked: vec![false; ranks as usize], ..Asking::default() }
    }

    fn open(&mut self, comm: u32, kept: u64, others: impl Iterator<Item = u32>) -> &mut Open {
        let other = |rank| Other { rank, ended: 0, is_asked: false };
        let begin = || Open { kept, is_left: false, others: others.map(other).collect() };
        let open = self.open.entry(comm).or_insert_with(begin);
        open.kept = kept;
        open
    }

    /// A rank has ended so many operations. Says how many all have ended.
    fn heard(&mut self, from: u32, comm: u32, ended: u64) -> Option<u64> {
        let open = self.open.get_mut(&comm)?;
        let other = open.others.iter_mut().find(|other| other.rank == from)?;
        other.ended = other.ended.max(ended);
        other.is_asked = false;
        open.over()
    }

    /// A rank has failed. Says of which communicators it was the one to be waited for, and how many operations the others have ended.
    pub(super) fn forget(&mut self, gone: u32) -> Vec<(u32, u64)> {
        self.questions.retain(|(by, _)| *by != gone);
        let of = |(comm, open): (&u32, &mut Open)| {
            let before = open.others.len();
            open.others.retain(|other| other.rank != gone);
            (before > open.others.len()).then(|| Some((*comm, open.over()?.min(open.kept)))).flatten()
        };
        self.open.iter_mut().filter_map(of).collect()
    }

    /// Somebody wants to be told as soon as there is more than this.
    fn asked(&mut self, by: u32, entry: RecordTag) {
        let is_same =
            |known: &&mut (u32, RecordTag)| known.0 == by && (known.1.comm, known.1.tag) == (entry.comm, entry.tag);
        match self.questions.iter_mut().find(is_same) {
            Some(known) => known.1 = entry,
            None => self.questions.push((by, entry)),
        }
    }
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

impl Session {
    /// Asks everybody who could make room in the log, and isn't asked already.
    pub(super) fn ask(&mut self) {
        let mut questions: FxHashMap<u32, Vec<u8>> = FxHashMap::default();
        for rank in self.log.iter().flat_map(behind) {
            if rank != self.rank
                && !self.control.failures.is_gone(rank)
                && !std::mem::replace(&mut self.asking.is_asked[rank as usize], true)
            {
                questions.insert(rank, RecordTag { comm: 0, tag: MESSAGES, number: 0 }.encode().to_vec());
            }
        }
        self.ask_with(questions);
    }

    /// Asks how far others are in collective operations where so much was kept for them since it was last asked, so that it needn't be
    /// waited for room later, and the log stays in the cache.
    pub(super) fn ask_early(&mut self) {
        let kept = self.ledger.contributions.bytes;
        let due = EARLY_BYTES.min(self.settings.budget as u64 / 2);
        if self.settings.keep == Keep::Acked && kept - self.asking.asked_at >= due {
            self.ask_with(FxHashMap::default());
        }
    }

    /// Asks this, and how far others are in collective operations.
    fn ask_with(&mut self, mut questions: FxHashMap<u32, Vec<u8>>) {
        self.asking.asked_at = self.ledger.contributions.bytes;
        self.see_what_is_open();
        let mut add = |of, comm, tag, number| {
            questions.entry(of).or_default().extend(RecordTag { comm, tag, number }.encode());
        };
        for (comm, open) in &mut self.asking.open {
            for (rank, ended) in open.questions() {
                add(rank, *comm, COLLECTIVE, ended);
            }
        }
        for (of, entries) in questions {
            let asked = self.control.send(of, Kind::Ask, &entries);
            self.check(asked);
        }
    }

    /// Whom else this rank waits for if it waits for room.
    pub(super) fn is_anybody_behind(&mut self) -> bool {
        self.see_what_is_open();
        let own = self.rank;
        self.log.iter().flat_map(behind).any(|rank| rank != own && !self.control.failures.is_gone(rank))
            || self.asking.open.values().any(|open| open.others.iter().any(|other| other.ended < open.kept))
    }

    /// Communicators that something is kept for. Operations of which nobody else is a part are over when they have ended here.
    fn see_what_is_open(&mut self) {
        let mut over = Vec::new();
        for info in self.comms.open() {
            let others = info.others(self.rank).filter(|rank| !self.control.failures.is_gone(*rank));
            let open = self.asking.open(info.number, info.kept, others);
            if open.others.is_empty() {
                over.push((info.number, info.ended));
            }
        }
        self.are_over(&over);
    }

    /// A communicator is given up: those who are in it may be asked later. Says how many there are of the kind.
    pub(super) fn leave_open(&mut self, comm: u32) -> usize {
        self.see_what_is_open();
        if let Some(open) = self.asking.open.get_mut(&comm) {
            open.is_left = true;
        }
        self.left_open().count()
    }

    /// Operations on communicators that were given up, of which it isn't known that they are over.
    pub(super) fn left_open(&self) -> impl Iterator<Item = (u32, u64)> {
        self.asking.open.iter().filter(|(_, open)| open.is_left).map(|(comm, open)| (*comm, open.kept))
    }

    /// Operations up to this one are over: if these are all, nothing has to be known of the communicator.
    pub(super) fn close(&mut self, comm: u32, number: u64) {
        let open = &self.asking.open;
        if !open.is_empty() && open.get(&comm).is_some_and(|open| open.kept <= number) {
            self.asking.open.remove(&comm);
        }
    }

    /// A rank asks.
    pub(super) fn asked(&mut self, by: u32, entries: &[u8]) {
        for entry in entries.chunks_exact(RecordTag::LEN).filter_map(RecordTag::decode) {
            self.asking.asked(by, entry);
        }
    }

    /// Whether somebody waits for news.
    #[inline]
    pub(super) fn has_questions(&self) -> bool {
        !self.asking.questions.is_empty()
    }

    /// Answers what there is news of.
    pub(super) fn answer(&mut self) {
        let mut answers: FxHashMap<u32, Vec<u8>> = FxHashMap::default();
        let (batcher, comms) = (&self.batcher, &self.comms);
        self.asking.questions.retain(|(by, entry)| {
            let news = match entry.tag {
                MESSAGES if batcher.has(*by) => *entry,
                COLLECTIVE if comms.ended(entry.comm) > entry.number => {
                    RecordTag { number: comms.ended(entry.comm), ..*entry }
                }
                _ => return true,
            };
            answers.entry(*by).or_default().extend(news.encode());
            false
        });
        for (to, entries) in answers {
            // Before it says that these are all.
            self.acknowledge(to);
            let sent = self.control.send(to, Kind::Answer, &entries);
            self.check(sent);
        }
    }

    /// A rank has answered.
    pub(super) fn answered(&mut self, from: u32, entries: &[u8]) {
        for RecordTag { comm, tag, number } in entries.chunks_exact(RecordTag::LEN).filter_map(RecordTag::decode) {
            if tag == MESSAGES {
                if let Some(is_asked) = self.asking.is_asked.get_mut(from as usize) {
                    *is_asked = false;
                }
            } else if let Some(over) = self.asking.heard(from, comm, number) {
                // Nobody is further than this rank with what it keeps.
                let over = self.asking.open.get(&comm).map_or(over, |open| over.min(open.kept));
                self.are_over(&[(comm, over)]);
            }
        }
    }
}
