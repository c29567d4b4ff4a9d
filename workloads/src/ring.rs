//! Tokens around a ring, each depending on all earlier ones.
//!
//! Each rank keeps a running hash. In every lap rank 0 sends [`TOKENS`] tokens in sequence; the receiving rank folds
//! each into its hash, derives the next token from the hash, and passes it on. A lost, duplicated, modified or
//! overtaken message changes all later hashes. At the end each rank computes the known answer serially.

use std::iter::repeat_with;
use std::ops::RangeInclusive;

use counterfoil_runtime::communicator::Communicator;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};
use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use crate::steps::Steps;
use crate::{Class, Error, MessageError, Outcome, RanksError, StateError, Value};

/// Name of this workload.
pub const NAME: &str = "ring";

/// Number of tokens in flight at a time.
pub const TOKENS: u64 = 4;

const TAG: i32 = 7;

/// Token lengths in bytes: a log's empty, small and large messages, longer than a chunk.
const LENGTHS: [usize; 9] = [24, 4_096, 0, 1_025, 70_000, 1, 1_024, 200_000, 30_000];

/// Ring; class S, W, A have 30, 120, 400 laps.
///
/// Every rank's iteration is one lap. Tokens have 34 KB on average, from 0 to 200,000 bytes. Runs on any number of
/// ranks; a single rank sends to itself.
#[derive(Clone, Debug)]
pub struct Ring {
    class: Class,
    laps: u64,
}

impl Ring {
    /// Creates the ring with size `class`.
    pub fn new(class: Class) -> Ring {
        let laps = match class {
            Class::S => 30,
            Class::W => 120,
            Class::A => 400,
        };
        Ring { class, laps }
    }

    /// Computes all ranks' final hashes without messages.
    fn known_answer(&self, ranks: u32) -> Vec<u64> {
        let mut hashes: Vec<u64> = (0..ranks).map(first_hash).collect();
        for lap in 1..=self.laps {
            // Serial and concurrent tokens give the same hashes, because each rank receives them in the same order.
            let mut tokens: Vec<Vec<u8>> = (0..TOKENS).map(|index| token(hashes[0], lap, index, 0)).collect();
            for rank in (1..ranks).chain([0]) {
                let hash = &mut hashes[rank as usize];
                for (index, slot) in (0..).zip(&mut tokens) {
                    *hash = fold(*hash, slot);
                    *slot = token(*hash, lap, index, rank);
                }
            }
        }
        hashes
    }
}

impl Steps for Ring {
    const NAME: &'static str = NAME;
    const STATE_ID: u32 = 2;

    /// The rank's hash.
    type Part = u64;

    fn class(&self) -> Class {
        self.class
    }

    fn ranks(&self) -> RangeInclusive<u32> {
        1..=u32::MAX
    }

    fn steps(&self) -> u64 {
        self.laps
    }

    fn message_bytes_max(&self, _ranks: u32) -> usize {
        // Every length occurs within nine laps. The final gather sends hashes of 8 bytes.
        LENGTHS.into_iter().max().unwrap_or(0)
    }

    fn start(&self, rank: u32, _ranks: u32) -> Result<u64, RanksError> {
        Ok(first_hash(rank))
    }

    fn restore(&self, hash: &mut u64, _lap: u64, body: &[u8]) -> Result<(), StateError> {
        let saved = U64::read_from_bytes(body)
            .map_err(|_| StateError::Length { expected: size_of::<U64>() as u64, found: body.len() as u64 })?;
        *hash = saved.get();
        Ok(())
    }

    fn encode(&self, hash: &u64) -> Vec<u8> {
        hash.to_le_bytes().to_vec()
    }

    fn step(&self, comm: &mut dyn Communicator, lap: u64, hash: &mut u64) -> Result<(), Error> {
        let (rank, ranks) = (comm.rank(), comm.size());
        let right = if rank + 1 == ranks { 0 } else { rank + 1 };
        let left = if rank == 0 { ranks - 1 } else { rank - 1 };
        if rank == 0 {
            for index in 0..TOKENS {
                comm.send(right, TAG, &token(*hash, lap, index, rank))?;
            }
        }
        for index in 0..TOKENS {
            let (_, received) = comm.recv(Some(left), Some(TAG))?;
            *hash = fold(*hash, &received);
            if rank != 0 {
                comm.send(right, TAG, &token(*hash, lap, index, rank))?;
            }
        }
        Ok(())
    }

    fn finish(&self, comm: &mut dyn Communicator, hash: u64) -> Result<Outcome, Error> {
        let hashes = gather_hashes(comm, hash)?;
        let bytes: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
        Ok(Outcome {
            verified: Some(hashes == self.known_answer(comm.size())),
            value: Value::Text(format!("{:016x}", hashes[0])),
            digest: xxh3_64(&bytes),
        })
    }
}

fn first_hash(rank: u32) -> u64 {
    xxh3_64(&rank.to_le_bytes())
}

/// Derives a lap's token number `index` from the sending rank's hash.
fn token(hash: u64, lap: u64, index: u64, rank: u32) -> Vec<u8> {
    let len = LENGTHS[((lap + 2 * index + 5 * u64::from(rank)) % LENGTHS.len() as u64) as usize];
    // A Weyl sequence from the hash: cheap, and every word in the token depends on it.
    let mut word = hash ^ index;
    let words = repeat_with(|| {
        word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        word.to_le_bytes()
    });
    let mut bytes: Vec<u8> = words.take(len.div_ceil(8)).flatten().collect();
    bytes.truncate(len);
    bytes
}

/// Returns a rank's hash after receiving `token`.
///
/// An empty token changes it, too.
fn fold(hash: u64, token: &[u8]) -> u64 {
    xxh3_64_with_seed(token, hash)
}

/// Gathers all ranks' hashes, in rank order.
fn gather_hashes(comm: &mut dyn Communicator, hash: u64) -> Result<Vec<u64>, Error> {
    let blocks = comm.allgather(&hash.to_le_bytes())?;
    let hashes = (0..).zip(&blocks).map(|(source_rank, block)| {
        let error = MessageError {
            rank: comm.rank(),
            source_rank,
            tag: -1,
            len: block.len(),
            expected: "a hash of 8 bytes in an allgather",
        };
        Ok(U64::read_from_bytes(block).map_err(|_| error)?.get())
    });
    hashes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_occurs_on_every_rank() {
        let ring = Ring::new(Class::S);
        for rank in 0..5 {
            let mut lengths: Vec<usize> = (1..=ring.laps)
                .flat_map(|lap| (0..TOKENS).map(move |index| token(1, lap, index, rank).len()))
                .collect();
            lengths.sort_unstable();
            lengths.dedup();
            assert_eq!(lengths, [0, 1, 24, 1_024, 1_025, 4_096, 30_000, 70_000, 200_000]);
        }
    }

    #[test]
    fn swapped_tokens_give_another_hash() {
        let (first, second) = (token(1, 1, 0, 0), token(1, 1, 1, 0));
        assert_ne!(fold(fold(9, &first), &second), fold(fold(9, &second), &first));
        assert_ne!(fold(9, &[]), 9, "an empty token changes the hash");
    }
}
