//! Every collective on 1 to 9 ranks, against a direct computation.

use bytes::Bytes;
use counterfoil_runtime::Error;
use counterfoil_runtime::communicator::{ANY_SOURCE, ANY_TAG, CallError, Communicator, InternalTag, Reduction};
use std::sync::atomic::{AtomicU32, Ordering};

use super::threads::{ThreadCommunicator, run_ranks};

const SIZES: std::ops::RangeInclusive<u32> = 1..=9;

/// Returns bytes whose length (may be 0) and contents depend on both ranks.
fn block(from: u32, to: u32) -> Vec<u8> {
    let len = (from * 7 + to * 3) % 11 * 100;
    (0..len).map(|at| (from * 31 + to * 17 + at) as u8).collect()
}

/// Returns values whose sum depends on the order of additions.
fn floats(rank: u32) -> Vec<f64> {
    many_floats(rank, 5)
}

fn many_floats(rank: u32, count: u32) -> Vec<f64> {
    (0..count).map(|at| 0.1 * f64::from(rank * 5 + at + 1) * 10f64.powi((rank % 3) as i32 * 6)).collect()
}

#[test]
fn no_rank_leaves_a_barrier_before_all_have_entered_it() {
    for size in SIZES {
        let entered = AtomicU32::new(0);
        run_ranks(size, |comm| {
            for round in 1..=20 {
                entered.fetch_add(1, Ordering::SeqCst);
                comm.barrier().unwrap();
                assert!(entered.load(Ordering::SeqCst) >= round * size);
                comm.barrier().unwrap();
            }
        });
    }
}

#[test]
fn a_broadcast_reaches_every_rank_from_every_root() {
    for size in SIZES {
        run_ranks(size, |comm| {
            for root in 0..size {
                let payload = comm.bcast(root, &block(comm.rank(), 5)).unwrap();
                assert_eq!(payload, block(root, 5), "root {root} of {size}");
                let mut values = floats(comm.rank());
                comm.bcast_f64(root, &mut values).unwrap();
                assert_eq!(values, floats(root));
                let mut value = [u64::from(comm.rank())];
                comm.bcast_u64(root, &mut value).unwrap();
                assert_eq!(value, [u64::from(root)]);
            }
        });
    }
}

#[test]
fn integers_reduce_to_the_exact_answer_at_every_root() {
    type Fold = fn(u64, u64) -> u64;
    let reductions: [(Reduction, Fold); 3] =
        [(Reduction::Sum, u64::wrapping_add), (Reduction::Min, u64::min), (Reduction::Max, u64::max)];
    let of_rank = |rank: u32| [u64::from(rank) + 3, u64::MAX - 5 * u64::from(rank), u64::from(rank % 2)];
    for size in SIZES {
        for (reduction, fold) in reductions {
            let mut expected = of_rank(0);
            for rank in 1..size {
                expected.iter_mut().zip(of_rank(rank)).for_each(|(left, right)| *left = fold(*left, right));
            }
            run_ranks(size, |comm| {
                for root in 0..size {
                    let mut values = of_rank(comm.rank());
                    comm.reduce_u64(root, &mut values, reduction).unwrap();
                    let own = of_rank(comm.rank());
                    assert_eq!(values, if comm.rank() == root { expected } else { own }, "root {root} of {size}");
                }
                let mut values = of_rank(comm.rank());
                comm.allreduce_u64(&mut values, reduction).unwrap();
                assert_eq!(values, expected);
            });
        }
    }
}

#[test]
fn sums_of_floats_have_the_same_bits_for_every_root_and_in_every_run() {
    // From 1,024 on, an allreduce works by blocks.
    for (size, count) in SIZES.flat_map(|size| [5, 1023, 1024, 2003].map(|count| (size, count))) {
        let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        let sum = |comm: &mut ThreadCommunicator| {
            let mut values = many_floats(comm.rank(), count);
            comm.allreduce_f64(&mut values, Reduction::Sum).unwrap();
            for root in 0..size {
                let mut at_root = many_floats(comm.rank(), count);
                comm.reduce_f64(root, &mut at_root, Reduction::Sum).unwrap();
                if comm.rank() == root {
                    assert_eq!(bits(&at_root), bits(&values), "root {root} of {size}");
                }
            }
            values
        };
        let first = run_ranks(size, sum);
        for result in first.iter().chain(&run_ranks(size, sum)) {
            assert_eq!(bits(result), bits(&first[0]));
        }
        for (at, total) in first[0].iter().enumerate() {
            let naive: f64 = (0..size).map(|rank| many_floats(rank, count)[at]).sum();
            assert!((total - naive).abs() <= 1e-12 * naive, "{total} is not {naive}");
        }
    }
}

#[test]
fn minimum_and_maximum_of_floats_distinguish_the_zeros() {
    run_ranks(4, |comm| {
        let zero = if comm.rank() == 2 { -0.0 } else { 0.0 };
        let mut value = [zero, 1.0 - f64::from(comm.rank())];
        comm.allreduce_f64(&mut value, Reduction::Min).unwrap();
        assert_eq!(value.map(f64::to_bits), [-0.0f64, -2.0].map(f64::to_bits));
        let mut value = [-zero];
        comm.allreduce_f64(&mut value, Reduction::Max).unwrap();
        assert_eq!(value[0].to_bits(), 0.0f64.to_bits());
    });
}

#[test]
fn gather_and_scatter_keep_rank_order_and_lengths() {
    for size in SIZES {
        run_ranks(size, |comm| {
            let rank = comm.rank();
            for root in 0..size {
                let gathered = comm.gather(root, &block(rank, root)).unwrap();
                let expected = (0..size).map(|from| Bytes::from(block(from, root))).collect();
                assert_eq!(gathered, (rank == root).then_some(expected), "root {root} of {size}");

                let blocks: Vec<Vec<u8>> = (0..size).map(|to| block(root, to)).collect();
                let blocks: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
                let given = if rank == root { &blocks[..] } else { &[] };
                assert_eq!(comm.scatter(root, given).unwrap(), block(root, rank));
            }
        });
    }
}

#[test]
fn allgather_and_alltoall_bring_every_block_to_its_place() {
    for size in SIZES {
        run_ranks(size, |comm| {
            let rank = comm.rank();
            let gathered = comm.allgather(&block(rank, 4)).unwrap();
            assert_eq!(gathered, (0..size).map(|from| block(from, 4)).collect::<Vec<_>>());

            let blocks: Vec<Vec<u8>> = (0..size).map(|to| block(rank, to)).collect();
            let blocks: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
            let received = comm.alltoallv(&blocks).unwrap();
            assert_eq!(received, (0..size).map(|from| block(from, rank)).collect::<Vec<_>>());

            for block_len in [0, 1, 24] {
                let equal = |from: u32, to: u32| vec![(from * 16 + to) as u8; block_len];
                let sent: Vec<u8> = (0..size).flat_map(|to| equal(rank, to)).collect();
                let expected: Vec<u8> = (0..size).flat_map(|from| equal(from, rank)).collect();
                assert_eq!(comm.alltoall(&sent).unwrap(), expected);
            }
        });
    }
}

#[test]
fn an_application_receive_never_takes_a_message_of_a_collective() {
    run_ranks(3, |comm| {
        let rank = comm.rank();
        // Posted before the collective's messages arrive, with both wildcards.
        let receive = comm.irecv(ANY_SOURCE, ANY_TAG).unwrap();
        assert_eq!(comm.allgather(&block(rank, 1)).unwrap().len(), 3);
        comm.barrier().unwrap();
        assert_eq!(comm.iprobe(ANY_SOURCE, ANY_TAG).unwrap(), None);
        assert!(!comm.test(&receive).unwrap());
        comm.barrier().unwrap();
        comm.send((rank + 1) % 3, 9, b"mine").unwrap();
        let (status, payload) = comm.wait(receive).unwrap();
        assert_eq!((status.source, status.tag, status.len), ((rank + 2) % 3, 9, 4));
        assert_eq!(payload, &b"mine"[..]);
    });
}

#[test]
fn blocking_calls_equal_their_parts() {
    run_ranks(4, |comm| {
        let (rank, size) = (comm.rank(), comm.size());
        let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
        let (status, payload) = comm.sendrecv(right, 1, &block(rank, right), Some(left), Some(1)).unwrap();
        assert_eq!((status.source, payload), (left, Bytes::from(block(left, rank))));

        let receives: Vec<_> = (0..size).map(|from| comm.irecv(Some(from), Some(2)).unwrap()).collect();
        let sends: Vec<_> = (0..size).map(|to| comm.isend(to, 2, &block(rank, to)).unwrap()).collect();
        let sent = comm.waitall(sends).unwrap();
        assert!(sent.iter().all(|(status, payload)| status.tag == 2 && payload.is_empty()));
        for (from, (status, payload)) in (0..).zip(comm.waitall(receives).unwrap()) {
            assert_eq!((status.source, payload), (from, Bytes::from(block(from, rank))));
        }
    });
}

#[test]
fn invalid_calls_are_refused() {
    fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> CallError {
        match result.unwrap_err() {
            Error::Call(reason) => reason,
            other => panic!("{other}"),
        }
    }
    run_ranks(2, |comm| {
        let no_rank = |call| CallError::NoSuchRank { call, rank: 2, size: 2 };
        assert_eq!(refusal(comm.bcast(2, b"")), no_rank("bcast"));
        assert_eq!(refusal(comm.bcast_f64(2, &mut [])), no_rank("bcast"));
        assert_eq!(refusal(comm.reduce_u64(2, &mut [], Reduction::Sum)), no_rank("reduce"));
        assert_eq!(refusal(comm.gather(2, b"")), no_rank("gather"));
        assert_eq!(refusal(comm.scatter(2, &[])), no_rank("scatter"));
        assert_eq!(refusal(comm.send(2, 0, b"")), no_rank("isend"));
        assert_eq!(refusal(comm.send(1, -1, b"")), CallError::NegativeTag { call: "isend", tag: -1 });
        assert_eq!(refusal(comm.alltoall(b"odd")), CallError::UnequalBlocks { call: "alltoall", len: 3, size: 2 });
        assert_eq!(refusal(comm.alltoallv(&[b""])), CallError::BlockCount { call: "alltoallv", blocks: 1, size: 2 });
        if comm.rank() == 0 {
            assert_eq!(refusal(comm.scatter(0, &[])), CallError::BlockCount { call: "scatter", blocks: 0, size: 2 });
        }
    });
}

#[test]
fn a_peer_with_another_length_is_named() {
    run_ranks(2, |comm| {
        let mut values = vec![1; 3 - comm.rank() as usize];
        let result = comm.reduce_u64(0, &mut values, Reduction::Sum);
        if comm.rank() == 0 {
            let message = result.unwrap_err().to_string();
            assert_eq!(message, "reduce: rank 1 sent 16 bytes where 24 were expected");
        } else {
            result.unwrap();
        }
    });
}

#[test]
fn tags_of_collectives_are_negative_for_every_number() {
    for sequence in [0, 1, 0x7fff_ffff, 0x8000_0000, u64::MAX] {
        assert!(InternalTag::new(sequence).wire() < 0);
    }
    assert_eq!(InternalTag::new(0).wire(), -1);
    assert_ne!(InternalTag::new(6).wire(), InternalTag::new(7).wire());
}
