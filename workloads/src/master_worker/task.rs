//! Tasks, their results, and their encoding in messages.

use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use super::{Kind, disks};

/// Period of successive tasks' input lengths.
const LENGTHS: u64 = 4_000;

fn input_len(kind: Kind, task: u64) -> u64 {
    match kind {
        Kind::Hashes => task.wrapping_mul(1_237) % LENGTHS,
        Kind::Disks => 0,
    }
}

/// Returns the longest message length in bytes for tasks 0 to `tasks` - 1.
pub(super) fn message_bytes_max(kind: Kind, tasks: u64) -> usize {
    let longest = (0..tasks.min(LENGTHS)).map(|task| input_len(kind, task)).max().unwrap_or(0);
    size_of::<u64>() + longest as usize
}

/// Generates the input for task number `task`: 0 to 3,999 bytes for a hash chain, none for disks.
pub(super) fn input(kind: Kind, task: u64) -> Vec<u8> {
    (0..input_len(kind, task)).map(|at| (at.wrapping_mul(task | 1) >> 3) as u8).collect()
}

/// Computes the result: a hash chain starting from the input, or counts from a chain of [`disks`].
///
/// Its length (1,000 to 19,000 hashes) varies from task to task, so workers become idle at different times.
pub(super) fn compute(kind: Kind, task: u64, input: &[u8]) -> u64 {
    if kind == Kind::Disks {
        return disks::run(task).to_word();
    }
    let first = xxh3_64_with_seed(input, task);
    let links = 1_000 + 2_000 * (first % 10);
    (0..links).fold(first, |hash, link| xxh3_64_with_seed(&hash.to_le_bytes(), link))
}

/// Encodes task number and input as one message.
pub(super) fn encode_task(kind: Kind, task: u64) -> Vec<u8> {
    [&task.to_le_bytes()[..], &input(kind, task)].concat()
}

/// Decodes task number and input.
pub(super) fn decode_task(message: &[u8]) -> Option<(u64, &[u8])> {
    let (task, input) = U64::read_from_prefix(message).ok()?;
    Some((task.get(), input))
}

/// Combination of results, independent of their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// Number of results.
    pub(super) count: u64,
    /// Their sum modulo 2^64.
    pub(super) sum: u64,
    /// Their exclusive or.
    pub(super) xor: u64,
}

impl Answer {
    /// Adds a result.
    pub(super) fn add(&mut self, result: u64) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(result);
        self.xor ^= result;
    }

    pub(super) fn to_words(self) -> [u64; 3] {
        [self.count, self.sum, self.xor]
    }

    pub(super) fn from_words([count, sum, xor]: [u64; 3]) -> Answer {
        Answer { count, sum, xor }
    }

    /// Encodes the words, little-endian.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        self.to_words().iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// Decodes `count` little-endian words; `None` if `bytes` has another length.
pub(super) fn words(bytes: &[u8], count: usize) -> Option<Vec<u64>> {
    let words = <[U64]>::ref_from_bytes_with_elems(bytes, count).ok()?;
    Some(words.iter().map(|word| word.get()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_depends_on_every_result_but_not_on_the_order() {
        let results: Vec<u64> = (0..20).map(|task| compute(Kind::Hashes, task, &input(Kind::Hashes, task))).collect();
        let answer = |results: &mut dyn Iterator<Item = &u64>| {
            let mut answer = Answer::default();
            results.for_each(|result| answer.add(*result));
            answer
        };
        let all = answer(&mut results.iter());
        assert_eq!(all, answer(&mut results.iter().rev()));
        assert_ne!(all, answer(&mut results[1..].iter()));
        assert_ne!(all, answer(&mut results[1..].iter().chain(&results[1..2])));
    }

    #[test]
    fn a_task_is_decoded_as_it_was_encoded() {
        for task in [0, 1, 71, u64::MAX] {
            assert_eq!(decode_task(&encode_task(Kind::Hashes, task)), Some((task, &input(Kind::Hashes, task)[..])));
            assert_eq!(decode_task(&encode_task(Kind::Disks, task)), Some((task, &[][..])));
        }
        assert_eq!(decode_task(b"short"), None);
    }
}
