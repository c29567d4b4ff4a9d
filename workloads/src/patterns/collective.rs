//! Collectives' messages, with an MPI library's algorithms for these sizes.

use super::sends::Sends;

/// Adds a pairwise all-to-all exchange: in step i, for i = 1, 2, ..., each rank swaps its block with rank XOR i.
///
/// MPICH2 uses it on a power of two of ranks for blocks above 32 KiB. A rank copies its own block instead of sending
/// it. Takes `ranks` - 1 steps.
pub(super) fn all_to_all_pairwise(sends: &mut Sends, rank: u32, ranks: u32, bytes: u64) {
    for distance in 1..ranks {
        sends.send(rank ^ distance, bytes);
        sends.next_step();
    }
}

/// Adds a reduction to rank 0 along a binomial tree.
///
/// In step i, a rank with bit i as its lowest set bit sends its sum to the rank without it, and is done. MPICH2 uses it
/// for messages below 2 KiB. Takes log2 `ranks` steps, rounded up.
pub(super) fn reduce_binomial(sends: &mut Sends, rank: u32, ranks: u32, bytes: u64) {
    let mut distance = 1;
    while distance < ranks {
        if rank.trailing_zeros() == distance.ilog2() {
            sends.send(rank - distance, bytes);
        }
        sends.next_step();
        distance *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patterns::Message;

    fn all(ranks: u32, collective: fn(&mut Sends, u32, u32, u64)) -> Vec<Message> {
        let of_rank = |rank| {
            let mut sends = Sends::new(rank);
            collective(&mut sends, rank, ranks, 16);
            sends.finish()
        };
        let mut messages: Vec<Message> = (0..ranks).flat_map(of_rank).collect();
        messages.sort_by_key(|message| message.step);
        messages
    }

    #[test]
    fn a_binomial_reduction_brings_every_contribution_to_rank_0_once() {
        for ranks in [2, 3, 8, 13, 64] {
            let mut sums: Vec<u64> = (0..ranks).map(|rank| 1 + u64::from(rank) * 1_000).collect();
            let total = sums.iter().sum::<u64>();
            for message in all(ranks, reduce_binomial) {
                sums[message.destination as usize] += std::mem::take(&mut sums[message.source as usize]);
            }
            assert_eq!(sums[0], total, "{ranks} ranks");
        }
    }

    #[test]
    fn a_pairwise_exchange_joins_each_pair_once_and_in_the_same_step() {
        let messages = all(16, all_to_all_pairwise);
        assert_eq!(messages.len(), 16 * 15);
        for message in &messages {
            let back = Message { source: message.destination, destination: message.source, ..*message };
            assert_eq!(messages.iter().filter(|other| **other == back).count(), 1);
        }
    }
}
