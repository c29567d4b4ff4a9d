//! Progress queries between ranks, for a full log.
//!
//! A rank waiting for space queries each rank able to free some, once. The queried rank keeps the query until there is
//! news and answers once. So at most one query and one answer per subject are in flight between two ranks, and no rank
//! queries again in vain.

use counterfoil::{Log, Rank};
use counterfoil_profile::{COLLECTIVE, RecordTag};
use rustc_hash::FxHashMap;

/// Used in place of a tag to query for message acknowledgements.
///
/// [`COLLECTIVE`] queries for ended operations.
const MESSAGES: i32 = -3;
/// Contribution bytes in the log after which other ranks are queried before the log is full.
const EARLY_BYTES: u64 = 1 << 20;

/// Entries of [`RecordTag::LEN`] bytes for each rank.
pub(crate) type Entries = FxHashMap<u32, Vec<u8>>;

/// A communicator with logged contributions to operations not known to be complete.
#[derive(Debug)]
struct OpenComm {
    /// Last operation with a contribution in the log.
    kept: u64,
    /// True once the program has freed the communicator.
    is_freed: bool,
    others: Vec<Other>,
}

/// Another member of the communicator; it has to end the operations, too.
#[derive(Debug)]
struct Other {
    rank: u32,
    /// Operations reported ended by it.
    ended: u64,
    /// True while a query to it is unanswered.
    is_queried: bool,
}

impl OpenComm {
    /// Returns the number of complete operations; `None` without another member.
    fn complete(&self) -> Option<u64> {
        self.others.iter().map(|other| other.ended).min()
    }

    /// Marks and returns the due queries: (rank, operations known to have ended there).
    fn due(&mut self) -> impl Iterator<Item = (u32, u64)> {
        let kept = self.kept;
        let is_due = move |other: &&mut Other| other.ended < kept && !other.is_queried;
        self.others.iter_mut().filter(is_due).map(|other| {
            other.is_queried = true;
            (other.rank, other.ended)
        })
    }
}

/// A rank's queries, and unanswered queries from others.
///
/// ```
/// use counterfoil_mpi_logger::ProgressQueries;
///
/// // Rank 0 keeps its contribution to operation 5 of communicator 7, which rank 1 has not ended.
/// let (mut root, mut leaf) = (ProgressQueries::new(0, 2), ProgressQueries::new(1, 2));
/// root.keep(7, 5, [1].into_iter());
/// let queries = root.due(None, 0);
/// leaf.handle_query(0, &queries[&1]);
/// assert!(leaf.answers(|_| false, |_| 0).is_empty());
/// // No rank is queried twice.
/// assert!(root.due(None, 0).is_empty());
/// // News are told once.
/// let answers = leaf.answers(|_| false, |_| 5);
/// assert_eq!(root.handle_answer(1, &answers[&0]), [(7, 5)]);
/// assert!(!leaf.has_pending());
/// ```
#[derive(Debug, Default)]
pub struct ProgressQueries {
    rank: u32,
    /// By number of the communicator.
    open: FxHashMap<u32, OpenComm>,
    /// By rank: true while a query for acknowledgements of messages is unanswered.
    is_queried: Vec<bool>,
    /// By rank: true once it has failed.
    has_failed: Vec<bool>,
    /// Queries from other ranks: the asking rank, and an entry with its knowledge.
    pending: Vec<(u32, RecordTag)>,
    /// Total contribution bytes kept when other ranks were last queried.
    queried_at: u64,
}

/// Returns the ranks with unacknowledged messages.
fn unacknowledging(log: &Log) -> impl Iterator<Item = u32> {
    (0..log.options().ranks).filter(|rank| log.acked(Rank(*rank)).next() < log.next_ssn(Rank(*rank)))
}

fn entries(bytes: &[u8]) -> impl Iterator<Item = RecordTag> {
    bytes.chunks_exact(RecordTag::LEN).filter_map(RecordTag::decode)
}

impl ProgressQueries {
    /// Returns the empty query state of `rank` in a job of `ranks` ranks.
    pub fn new(rank: u32, ranks: u32) -> ProgressQueries {
        let none = || vec![false; ranks as usize];
        ProgressQueries { rank, is_queried: none(), has_failed: none(), ..ProgressQueries::default() }
    }

    /// Notes logged contributions to a communicator's operations up to `kept`, still to be ended by `others`.
    ///
    /// Returns `false` if no other member is alive.
    pub fn keep(&mut self, comm: u32, kept: u64, others: impl Iterator<Item = u32>) -> bool {
        let other = |rank| Other { rank, ended: 0, is_queried: false };
        let living = others.filter(|rank| !self.has_failed[*rank as usize]);
        let begin = || OpenComm { kept, is_freed: false, others: living.map(other).collect() };
        let open = self.open.entry(comm).or_insert_with(begin);
        open.kept = kept;
        !open.others.is_empty()
    }

    /// Notes a rank's failure.
    ///
    /// Returns the operations completed by it: (communicator, last operation).
    pub fn handle_failure(&mut self, failed: u32) -> Vec<(u32, u64)> {
        if let Some(has_failed) = self.has_failed.get_mut(failed as usize) {
            *has_failed = true;
        }
        self.pending.retain(|(by, _)| *by != failed);
        let of = |(comm, open): (&u32, &mut OpenComm)| {
            let before = open.others.len();
            open.others.retain(|other| other.rank != failed);
            (before > open.others.len()).then(|| Some((*comm, open.complete()?.min(open.kept)))).flatten()
        };
        self.open.iter_mut().filter_map(of).collect()
    }

    /// Notes a communicator freed by the program; its members may still be queried.
    ///
    /// Returns the number of freed communicators with open operations.
    pub fn free(&mut self, comm: u32) -> usize {
        if let Some(open) = self.open.get_mut(&comm) {
            open.is_freed = true;
        }
        self.freed().count()
    }

    /// Returns the freed communicators with operations not known to be complete, and their last operation.
    pub fn freed(&self) -> impl Iterator<Item = (u32, u64)> {
        self.open.iter().filter(|(_, open)| open.is_freed).map(|(comm, open)| (*comm, open.kept))
    }

    /// Marks a communicator's operations up to `operation` complete; forgets it if these are all.
    pub fn complete_upto(&mut self, comm: u32, operation: u64) {
        let open = &self.open;
        if !open.is_empty() && open.get(&comm).is_some_and(|open| open.kept <= operation) {
            self.open.remove(&comm);
        }
    }

    /// Returns `true` if the log has enough contribution bytes to query other ranks before it is full.
    ///
    /// `kept_bytes` is the total ever kept. An early query spares a later wait for space and keeps the log in the
    /// cache.
    pub fn is_early(&self, kept_bytes: u64, budget: usize) -> bool {
        kept_bytes - self.queried_at >= EARLY_BYTES.min(budget as u64 / 2)
    }

    /// Takes the due queries: about collective operations, and with a log also for message acknowledgements.
    ///
    /// `kept_bytes` is the total number of contribution bytes ever kept.
    pub fn due(&mut self, log: Option<&Log>, kept_bytes: u64) -> Entries {
        self.queried_at = kept_bytes;
        let mut queries = Entries::default();
        for rank in log.into_iter().flat_map(unacknowledging) {
            let is_other = rank != self.rank && !self.has_failed[rank as usize];
            if is_other && !std::mem::replace(&mut self.is_queried[rank as usize], true) {
                queries.insert(rank, RecordTag { comm: 0, tag: MESSAGES, number: 0 }.encode().to_vec());
            }
        }
        for (comm, open) in &mut self.open {
            for (rank, ended) in open.due() {
                let entry = RecordTag { comm: *comm, tag: COLLECTIVE, number: ended };
                queries.entry(rank).or_default().extend(entry.encode());
            }
        }
        queries
    }

    /// Returns `true` if another rank could free space by an acknowledgement, or by ending an operation.
    pub fn can_others_free_space(&self, log: Option<&Log>) -> bool {
        let own = self.rank;
        log.into_iter().flat_map(unacknowledging).any(|rank| rank != own && !self.has_failed[rank as usize])
            || self.open.values().any(|open| open.others.iter().any(|other| other.ended < open.kept))
    }

    /// Handles queries from rank `by`, to be answered as soon as there is news for it.
    pub fn handle_query(&mut self, by: u32, bytes: &[u8]) {
        for entry in entries(bytes) {
            let is_same =
                |known: &&mut (u32, RecordTag)| known.0 == by && (known.1.comm, known.1.tag) == (entry.comm, entry.tag);
            match self.pending.iter_mut().find(is_same) {
                Some(known) => known.1 = entry,
                None => self.pending.push((by, entry)),
            }
        }
    }

    /// Returns `true` if another rank awaits an answer.
    #[inline]
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Takes the answers to queries with news.
    ///
    /// `has_unreported` returns `true` if messages from a rank are unacknowledged; they have to be acknowledged before
    /// the answer is sent. `ended` returns the number of operations ended by this rank on a communicator.
    pub fn answers(&mut self, has_unreported: impl Fn(u32) -> bool, ended: impl Fn(u32) -> u64) -> Entries {
        let mut answers = Entries::default();
        self.pending.retain(|(by, entry)| {
            let news = match entry.tag {
                MESSAGES if has_unreported(*by) => *entry,
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

    /// Handles an answer.
    ///
    /// Returns the complete operations on communicators with logged contributions.
    pub fn handle_answer(&mut self, from: u32, bytes: &[u8]) -> Vec<(u32, u64)> {
        let mut complete = Vec::new();
        for RecordTag { comm, tag, number } in entries(bytes) {
            if tag == MESSAGES {
                if let Some(is_queried) = self.is_queried.get_mut(from as usize) {
                    *is_queried = false;
                }
            } else if let Some(number) = self.handle_ended(from, comm, number) {
                complete.push((comm, number));
            }
        }
        complete
    }

    /// Notes the number of operations ended by a rank.
    ///
    /// Returns the number of complete ones, at most the kept ones.
    fn handle_ended(&mut self, from: u32, comm: u32, ended: u64) -> Option<u64> {
        let open = self.open.get_mut(&comm)?;
        let other = open.others.iter_mut().find(|other| other.rank == from)?;
        other.ended = other.ended.max(ended);
        other.is_queried = false;
        open.complete().map(|complete| complete.min(open.kept))
    }
}

#[cfg(test)]
mod tests {
    use counterfoil::{Keep, Options};

    use super::*;

    fn entry(comm: u32, tag: i32, number: u64) -> [u8; RecordTag::LEN] {
        RecordTag { comm, tag, number }.encode()
    }

    fn decoded(bytes: &[u8]) -> Vec<RecordTag> {
        entries(bytes).collect()
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
    fn each_rank_that_has_not_acknowledged_everything_is_queried_once_until_it_answers() {
        let (log, mut queries) = (log(), ProgressQueries::new(0, 3));
        let due = |queries: &mut ProgressQueries| {
            let mut due: Vec<_> = queries.due(Some(&log), 0).into_keys().collect();
            due.sort_unstable();
            due
        };
        assert_eq!(due(&mut queries), [1, 2]);
        assert!(due(&mut queries).is_empty());
        assert!(queries.handle_answer(2, &entry(0, MESSAGES, 0)).is_empty());
        assert_eq!(due(&mut queries), [2]);
        assert!(queries.can_others_free_space(Some(&log)) && !queries.can_others_free_space(None));
    }

    #[test]
    fn a_query_is_answered_once_as_soon_as_there_is_more_than_is_known() {
        let mut queries = ProgressQueries::new(1, 3);
        queries.handle_query(0, &entry(7, COLLECTIVE, 3));
        queries.handle_query(2, &[entry(0, MESSAGES, 0), entry(7, COLLECTIVE, 1)].concat());
        // Sent again, it is one query.
        queries.handle_query(0, &entry(7, COLLECTIVE, 3));
        let answers = queries.answers(|_| false, |_| 3);
        assert_eq!(answers.keys().collect::<Vec<_>>(), [&2]);
        assert_eq!(decoded(&answers[&2]), [RecordTag { comm: 7, tag: COLLECTIVE, number: 3 }]);
        let answers = queries.answers(|by| by == 2, |_| 4);
        assert_eq!(decoded(&answers[&0]), [RecordTag { comm: 7, tag: COLLECTIVE, number: 4 }]);
        assert_eq!(decoded(&answers[&2]), [RecordTag { comm: 0, tag: MESSAGES, number: 0 }]);
        assert!(!queries.has_pending());
    }

    #[test]
    fn a_failed_rank_is_not_waited_for() {
        let (log, mut queries) = (log(), ProgressQueries::new(0, 3));
        assert!(queries.keep(7, 4, [1, 2].into_iter()) && queries.keep(8, 2, [2].into_iter()));
        queries.handle_query(2, &entry(9, COLLECTIVE, 0));
        assert_eq!(queries.handle_answer(1, &entry(7, COLLECTIVE, 3)), [(7, 0)]);
        // The second communicator has no other member left to answer.
        assert_eq!(queries.handle_failure(2), [(7, 3)]);
        assert!(queries.handle_failure(2).is_empty() && !queries.has_pending());
        assert_eq!(queries.due(Some(&log), 0).into_keys().collect::<Vec<_>>(), [1]);
        assert!(!queries.keep(10, 1, [2].into_iter()));
        assert_eq!(queries.handle_answer(1, &entry(7, COLLECTIVE, 4)), [(7, 4)]);
    }

    #[test]
    fn an_operation_is_complete_when_the_last_member_has_ended_it() {
        let mut queries = ProgressQueries::new(0, 3);
        assert!(queries.keep(7, 4, [1, 2].into_iter()));
        assert_eq!(queries.due(None, 0).len(), 2);
        assert_eq!(queries.handle_answer(1, &entry(7, COLLECTIVE, u64::MAX)), [(7, 0)]);
        assert_eq!(queries.handle_answer(2, &entry(7, COLLECTIVE, 3)), [(7, 3)]);
        // It has not ended all: it is queried again.
        let due = queries.due(None, 0);
        assert_eq!(decoded(&due[&2]), [RecordTag { comm: 7, tag: COLLECTIVE, number: 3 }]);
        assert_eq!(due.len(), 1);
        // No more is complete than is kept, whatever a rank reports after freeing the communicator.
        assert_eq!(queries.handle_answer(2, &entry(7, COLLECTIVE, u64::MAX)), [(7, 4)]);
        queries.complete_upto(7, 4);
        assert!(queries.open.is_empty() && queries.handle_answer(2, &entry(7, COLLECTIVE, 9)).is_empty());
    }

    #[test]
    fn an_answer_that_is_older_than_what_is_kept_leaves_the_communicator_open() {
        let mut queries = ProgressQueries::new(0, 2);
        queries.keep(7, 4, [1].into_iter());
        queries.due(None, 0);
        queries.keep(7, 6, [1].into_iter());
        assert_eq!(queries.handle_answer(1, &entry(7, COLLECTIVE, 4)), [(7, 4)]);
        queries.complete_upto(7, 4);
        assert_eq!(queries.open[&7].kept, 6);
        assert!(queries.can_others_free_space(None));
    }

    #[test]
    fn a_communicator_without_other_members_is_not_queried_about() {
        let mut queries = ProgressQueries::new(0, 2);
        assert!(!queries.keep(1, 3, std::iter::empty()));
        assert!(queries.due(None, 0).is_empty() && !queries.can_others_free_space(None));
    }

    #[test]
    fn freed_communicators_are_queried_about_like_others() {
        let mut queries = ProgressQueries::new(0, 2);
        queries.keep(7, 4, [1].into_iter());
        queries.keep(8, 1, [1].into_iter());
        assert_eq!((queries.free(7), queries.free(9)), (1, 1));
        assert_eq!(queries.freed().collect::<Vec<_>>(), [(7, 4)]);
        assert_eq!(decoded(&queries.due(None, 0)[&1]).len(), 2);
    }

    #[test]
    fn queries_are_early_where_much_is_kept() {
        let mut queries = ProgressQueries::new(0, 2);
        assert!(!queries.is_early(EARLY_BYTES - 1, 64 << 20) && queries.is_early(EARLY_BYTES, 64 << 20));
        assert!(queries.is_early(1 << 15, 1 << 16));
        queries.due(None, EARLY_BYTES);
        assert!(!queries.is_early(EARLY_BYTES * 3 / 2, 64 << 20) && queries.is_early(2 * EARLY_BYTES, 64 << 20));
    }
}
