//! Program of the virtual ranks: rounds of sends, receives by wildcard and by tags out of order, probes.
//!
//! Every rank sends all its messages for a round before it receives any in this round, and sends never block, so the
//! program can't deadlock by itself. A payload's `content` depends on the program only, and is compared with a run
//! without failures. Its `history` depends on everything seen by the sender, so an execution that doesn't repeat its
//! choices is found by its messages.

use counterfoil_log_core::{Rank, Ssn};

use crate::random::{Random, mix};

/// Tags received from any source.
pub(crate) const WILDCARD_TAGS: [i32; 2] = [0, 1];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Payload {
    pub(crate) content: u64,
    pub(crate) history: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// Send a message with this many bytes.
    Send { to: Rank, tag: i32, len: u64 },
    /// Receive by source and tag.
    Receive { source: Rank, tag: i32 },
    /// Receive from any source.
    ReceiveAny { tag: i32 },
    /// Post a receive from any source for each wildcard tag, and wait for both: they may be matched in either order.
    ReceiveBoth,
    /// Probe for a message from any source.
    Probe { tag: i32 },
    /// Take a checkpoint.
    Checkpoint,
}

/// Operations of each rank.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) ops: Vec<Vec<Op>>,
}

impl Random {
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}

impl Program {
    pub(crate) fn draw(random: &mut Random, ranks: u32, rounds: u64, checkpoints: bool) -> Program {
        let mut ops = vec![Vec::new(); ranks as usize];
        for _ in 0..rounds {
            let mut receives: Vec<Vec<Op>> = vec![Vec::new(); ranks as usize];
            for source in (0..ranks).map(Rank) {
                let mut sends = Vec::new();
                for to in (0..ranks).map(Rank) {
                    for _ in 0..random.below(4) {
                        let tag = random.below(5) as i32;
                        let len = random.below(1500);
                        sends.push(Op::Send { to, tag, len });
                        receives[to.index()].push(match WILDCARD_TAGS.contains(&tag) {
                            true => Op::ReceiveAny { tag },
                            false => Op::Receive { source, tag },
                        });
                    }
                }
                random.shuffle(&mut sends);
                ops[source.index()].extend(sends);
            }
            for (rank, mut receives) in receives.into_iter().enumerate() {
                random.shuffle(&mut receives);
                merge_a_pair(&mut receives);
                for _ in 0..random.below(3) {
                    let tag = WILDCARD_TAGS[random.below(2) as usize];
                    receives.insert(random.below(receives.len() as u64 + 1) as usize, Op::Probe { tag });
                }
                ops[rank].extend(receives);
                if checkpoints && random.one_in(2) {
                    ops[rank].push(Op::Checkpoint);
                }
            }
        }
        Program { ops }
    }
}

/// Merges the first receives of both wildcard tags, if any, into one [`Op::ReceiveBoth`].
fn merge_a_pair(receives: &mut Vec<Op>) {
    let find =
        |receives: &[Op], wanted| receives.iter().position(|op| matches!(op, Op::ReceiveAny { tag } if *tag == wanted));
    let (Some(a), Some(b)) = (find(receives, WILDCARD_TAGS[0]), find(receives, WILDCARD_TAGS[1])) else { return };
    receives[a.min(b)] = Op::ReceiveBoth;
    receives.remove(a.max(b));
}

/// Message as the application received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) source: Rank,
    pub(crate) tag: i32,
    pub(crate) ssn: Ssn,
    pub(crate) payload: Payload,
}

/// Application state, as contained in a checkpoint.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// Index of the next operation.
    pub(crate) at: usize,
    /// Hash over everything seen.
    history: u64,
    /// Messages sent.
    sent: u64,
    /// Delivered messages, in order.
    pub(crate) deliveries: Vec<Delivery>,
}

impl Memory {
    pub(crate) fn next_payload(&mut self, rank: Rank) -> Payload {
        self.sent += 1;
        Payload { content: mix(u64::from(rank.0) << 32 | self.sent), history: mix(self.history ^ self.sent) }
    }

    pub(crate) fn see_delivery(&mut self, delivery: Delivery) {
        let Delivery { source, ssn, payload, .. } = delivery;
        self.see(u64::from(source.0) << 48 | ssn.0);
        self.see(payload.content ^ payload.history.rotate_left(17));
        self.deliveries.push(delivery);
    }

    pub(crate) fn see(&mut self, fact: u64) {
        self.history = mix(self.history.rotate_left(9) ^ fact);
    }
}
