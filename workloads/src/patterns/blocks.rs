//! Division of an axis into blocks.

/// Returns the length of block `index` when `points` are divided into `blocks`: the first ones are one longer if
/// needed.
pub(super) fn block_len(points: u64, blocks: u32, index: u32) -> u64 {
    points / u64::from(blocks) + u64::from(u64::from(index) < points % u64::from(blocks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_the_axis_and_differ_by_at_most_one() {
        for (points, blocks) in [(408, 11), (408, 8), (1_500_000, 64), (5, 8)] {
            let lens: Vec<u64> = (0..blocks).map(|index| block_len(points, blocks, index)).collect();
            assert_eq!(lens.iter().sum::<u64>(), points);
            assert!(lens.is_sorted_by(|a, b| a >= b) && lens[0] - lens[lens.len() - 1] <= 1);
        }
    }
}
