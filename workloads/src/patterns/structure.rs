//! Tests of each pattern's structure, against counts by hand.

use std::collections::BTreeMap;

use super::{Kernel, Message, Pattern, PatternError};

/// Returns every kernel's patterns, on the numbers of ranks in Table I and on the smallest.
fn patterns() -> Vec<(Kernel, Pattern)> {
    let of_kernel = |kernel: Kernel| {
        let smallest = kernel.ranks_limits().0;
        [smallest, 64, 128, 256]
            .map(|ranks| (kernel, Pattern::nas(kernel, kernel.ranks_within(ranks).unwrap()).unwrap()))
    };
    Kernel::ALL.into_iter().flat_map(of_kernel).collect()
}

fn nas(kernel: Kernel, ranks: u32) -> Pattern {
    Pattern::nas(kernel, ranks).unwrap()
}

/// Counts the messages by (step, source, destination).
fn counts(messages: impl Iterator<Item = Message>) -> BTreeMap<(u32, u32, u32), u32> {
    let mut counts = BTreeMap::new();
    for message in messages {
        *counts.entry((message.step, message.source, message.destination)).or_default() += 1;
    }
    counts
}

#[test]
fn every_message_has_two_different_ranks_and_a_payload() {
    for (kernel, pattern) in patterns() {
        for rank in 0..pattern.ranks() {
            let sends = pattern.sends(rank);
            assert!(sends.is_sorted_by_key(|message| message.step), "{kernel}");
            for message in sends {
                assert_eq!(message.source, rank);
                assert!(message.destination != rank && message.destination < pattern.ranks(), "{kernel}: {message:?}");
                assert!(message.bytes > 0, "{kernel}: {message:?}");
            }
        }
        assert!(pattern.sends(pattern.ranks()).is_empty());
    }
}

#[test]
fn the_matrix_has_every_message_once() {
    for (kernel, pattern) in patterns() {
        let matrix = pattern.matrix();
        assert_eq!(matrix.messages(), pattern.messages().count() as u64, "{kernel}");
        assert_eq!(matrix.bytes(), pattern.messages().map(|message| message.bytes).sum::<u64>(), "{kernel}");
        assert!(matrix.pairs().is_sorted_by_key(|pair| (pair.source, pair.destination)));
        let first = pattern.sends(0)[0];
        let to_first = pattern.sends(0).iter().filter(|message| message.destination == first.destination).count();
        assert_eq!(matrix.pair(0, first.destination).unwrap().messages, to_first as u64);
        assert_eq!(matrix.pair(0, 0), None);
    }
}

#[test]
fn cg_sends_79_messages_for_each_halving_of_a_row_and_26_across_the_diagonal() {
    for (ranks, columns_log2, on_diagonal) in [(64, 3, 8), (128, 4, 16), (256, 4, 16)] {
        let pattern = nas(Kernel::Cg, ranks);
        let count = u64::from(ranks) * (79 * columns_log2 + 26) - on_diagonal * 26;
        assert_eq!(pattern.matrix().messages(), count, "{ranks} ranks");
    }
}

#[test]
fn cg_has_only_symmetric_exchanges() {
    for ranks in [2, 64, 128, 256] {
        let counts = counts(nas(Kernel::Cg, ranks).messages());
        let back = |&(step, source, destination): &(u32, u32, u32)| counts.get(&(step, destination, source)).copied();
        assert!(counts.iter().all(|(key, &count)| count == 1 && back(key) == Some(1)), "{ranks} ranks");
    }
}

#[test]
fn lu_sends_407_messages_over_each_link_in_each_direction() {
    for (ranks, links) in [(64, 2 * 7 * 8), (128, 15 * 8 + 16 * 7), (256, 2 * 15 * 16)] {
        let matrix = nas(Kernel::Lu, ranks).matrix();
        assert_eq!(matrix.pairs().len(), 2 * links, "{ranks} ranks");
        assert!(matrix.pairs().iter().all(|pair| pair.messages == 407), "{ranks} ranks");
    }
}

#[test]
fn lu_sends_a_plane_only_after_receiving_both_borders() {
    const ROWS: u32 = 16;
    let mut steps: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
    for message in nas(Kernel::Lu, 128).messages() {
        steps.entry((message.source, message.destination)).or_default().push(message.step);
    }
    let mut compared = 0;
    for (&(source, destination), sent) in &steps {
        // A sweep's n-th message has the n-th plane; it depends on those from upstream, along either axis.
        let is_forward = destination > source;
        let upstream =
            [1, ROWS].map(|stride| if is_forward { source.checked_sub(stride) } else { Some(source + stride) });
        for received in upstream.into_iter().flatten().filter_map(|rank| steps.get(&(rank, source))) {
            assert!(received.iter().zip(sent).take(406).all(|(a, b)| a < b), "{source} to {destination}");
            compared += 1;
        }
    }
    // From 232 links: each of the 15 * 7 inner corners connects two with two, and each line has one less than it has
    // links.
    assert_eq!(compared, 2 * (2 * 15 * 7 + 8 * 14 + 16 * 6));
}

#[test]
fn ft_exchanges_32_gib_all_to_all_and_sums_up_a_checksum() {
    for ranks in [64, 128, 256] {
        let pattern = nas(Kernel::Ft, ranks);
        let all = u64::from(ranks);
        let matrix = pattern.matrix();
        assert_eq!(matrix.messages(), all * (all - 1) + all - 1);
        assert_eq!(matrix.bytes(), (32 << 30) / all * (all - 1) + 16 * (all - 1));
    }
}

#[test]
fn bt_sends_as_many_messages_to_each_of_six_neighbours_as_there_are_slices() {
    for (ranks, q) in [(64, 8), (121, 11), (256, 16)] {
        let matrix = nas(Kernel::Bt, ranks).matrix();
        assert_eq!(matrix.pairs().len(), 6 * ranks as usize);
        assert!(matrix.pairs().iter().all(|pair| pair.messages == q), "{ranks} ranks");
    }
    // 408 = 8 * 51: from 8 cells, 7 have a successor; two layers with five unknowns. Then 7 faces with 52^2 points, 30
    // numbers each.
    let east = nas(Kernel::Bt, 64).matrix().pair(0, 1).unwrap();
    assert_eq!(east.bytes, 8 * (7 * 51 * 51 * 2 * 5 + 7 * 52 * 52 * 30));
}

#[test]
fn mg_exchanges_borders_29_times_and_activates_ranks_without_points() {
    // 4 x 4 x 4 ranks: all are active except on the coarsest level with 2^3 points, where 8 are; from there half the
    // ranks on each axis send to their two neighbours.
    let on_64 = 6 * (64 * 27 + 8 * 2) + 3 * 32 * 2;
    assert_eq!(nas(Kernel::Mg, 64).matrix().messages(), on_64);
    // 4 x 4 x 8: on the level with 4^3 points, half the ranks are active, and along z, half send to reach the next
    // level; from 2^3 to 4^3, a half along x and y, a quarter along z (all active ones along the axis).
    let on_128 = 6 * (128 * 24 + 64 * 3 + 8 * 2) + 2 * (64 + 64 + 64 + 32);
    assert_eq!(nas(Kernel::Mg, 128).matrix().messages(), on_128);
    // The finest level: 256^2 points on a face with 4 x 4 x 4 ranks, and their borders.
    let largest = nas(Kernel::Mg, 64).sends(0).into_iter().map(|message| message.bytes).max();
    assert_eq!(largest, Some(258 * 258 * 8));
}

#[test]
fn mg_activates_only_inactive_neighbours_and_otherwise_exchanges() {
    for ranks in [8, 64, 128, 256] {
        let counts = counts(nas(Kernel::Mg, ranks).messages());
        for (&(step, source, destination), &count) in &counts {
            let back = counts.get(&(step, destination, source)).copied().unwrap_or_default();
            // 9 exchanges down, one on the coarsest level, then for each finer level 3 activation steps and 6 exchange
            // steps.
            let is_activation = (30..30 + 9 * 9).contains(&step) && (step - 30) % 9 < 3;
            assert_eq!(back, if is_activation { 0 } else { count }, "step {step}, {source} to {destination}");
        }
    }
}

#[test]
fn mg_activates_from_the_last_of_each_two_ranks_which_has_the_point() {
    // From 4 ranks along each axis, the coarsest level with 2 points leaves ranks 1 and 3: the first three activation
    // steps.
    for (axis, stride) in [1, 4, 16].into_iter().enumerate() {
        let at = |rank: u32| rank / stride % 4;
        let activations: Vec<Message> =
            nas(Kernel::Mg, 64).messages().filter(|message| message.step as usize == 30 + axis).collect();
        assert_eq!(activations.len(), 64);
        for Message { source, destination, .. } in activations {
            assert!(at(source) % 2 == 1 && at(destination) % 2 == 0, "axis {axis}: {source} to {destination}");
        }
    }
}

#[test]
fn a_million_ranks_can_be_iterated_one_at_a_time() {
    let pattern = Pattern::neighbour([100, 100, 100], 1_024).unwrap();
    assert_eq!(pattern.ranks(), 1_000_000);
    let mut received = vec![0_u8; 1_000_000];
    for message in pattern.messages() {
        received[message.destination as usize] += 1;
    }
    assert!(received.iter().all(|&count| count == 6));
}

#[test]
fn a_torus_is_periodic_and_an_axis_of_one_has_no_messages() {
    let to = |pattern: Pattern, rank: u32| pattern.sends(rank).iter().map(|send| send.destination).collect::<Vec<_>>();
    let flat = Pattern::neighbour([4, 3, 1], 8).unwrap();
    assert_eq!(to(flat, 0), [1, 3, 4, 8]);
    assert_eq!(to(flat, 11), [8, 10, 3, 7]);
    assert_eq!(to(Pattern::neighbour([2, 1, 1], 8).unwrap(), 1), [0, 0]);
    assert!(to(Pattern::neighbour([1, 1, 1], 8).unwrap(), 0).is_empty());
    for extents in [[0, 4, 4], [1 << 16, 1 << 16, 1]] {
        assert_eq!(Pattern::neighbour(extents, 8), Err(PatternError::Extents { extents }));
    }
}

#[test]
fn a_kernel_has_the_expected_numbers_of_ranks() {
    assert_eq!(Kernel::Bt.ranks_within(128), Some(121));
    assert_eq!(Kernel::Lu.ranks_within(127), Some(64));
    assert_eq!(Kernel::Mg.ranks_within(7), None);
    assert_eq!(Kernel::Ft.ranks_within(u32::MAX), Some(512));
    let refused = Pattern::nas(Kernel::Bt, 128).unwrap_err();
    assert_eq!(refused.to_string(), "BT of class D needs a square of ranks, 4 to 18496, not 128");
    assert!(Pattern::nas(Kernel::Cg, 0).is_err() && Pattern::nas(Kernel::Cg, 96).is_err());
}
