//! What a task is, what comes out, and how both look in messages.

use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

/// Input lengths, of tasks numbered one after the other, repeat after so many.
const LENGTHS: u64 = 4_000;

fn input_len(task: u64) -> u64 {
    task.wrapping_mul(1_237) % LENGTHS
}

/// Bytes of the longest message among those of tasks 0 to `tasks` - 1.
pub(super) fn message_bytes_max(tasks: u64) -> usize {
    let longest = (0..tasks.min(LENGTHS)).map(input_len).max().unwrap_or(0);
    size_of::<u64>() + longest as usize
}

/// The bytes that belong to task number `task`: 0 to 3,999 of them.
pub(super) fn input(task: u64) -> Vec<u8> {
    (0..input_len(task)).map(|at| (at.wrapping_mul(task | 1) >> 3) as u8).collect()
}

/// The result: a chain of hashes that starts from the input, of a length (1,000 to 19,000) that varies from task to
/// task, so that workers come free at different times.
pub(super) fn compute(task: u64, input: &[u8]) -> u64 {
    let first = xxh3_64_with_seed(input, task);
    let links = 1_000 + 2_000 * (first % 10);
    (0..links).fold(first, |hash, link| xxh3_64_with_seed(&hash.to_le_bytes(), link))
}

/// Task number and input, as one message.
pub(super) fn encode_task(task: u64) -> Vec<u8> {
    [&task.to_le_bytes()[..], &input(task)].concat()
}

/// Task number and input.
pub(super) fn decode_task(message: &[u8]) -> Option<(u64, &[u8])> {
    let (task, input) = U64::read_from_prefix(message).ok()?;
    Some((task.get(), input))
}

/// Results put together, in whatever order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// How many results.
    pub(super) count: u64,
    /// Their sum modulo 2^64.
    pub(super) sum: u64,
    /// Their exclusive or.
    pub(super) xor: u64,
}

impl Answer {
    /// Puts one more result in.
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

    /// The words, little-endian.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        self.to_words().iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// `bytes` as `count` little-endian words; `None` if the length is another.
pub(super) fn words(bytes: &[u8], count: usize) -> Option<Vec<u64>> {
    let words = <[U64]>::ref_from_bytes_with_elems(bytes, count).ok()?;
    Some(words.iter().map(|word| word.get()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_does_not_depend_on_the_order_but_on_every_result() {
        let results: Vec<u64> = (0..20).map(|task| compute(task, &input(task))).collect();
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
    fn a_task_comes_back_as_it_was_sent() {
        for task in [0, 1, 71, u64::MAX] {
            assert_eq!(decode_task(&encode_task(task)), Some((task, &input(task)[..])));
        }
        assert_eq!(decode_task(b"short"), None);
    }
}
