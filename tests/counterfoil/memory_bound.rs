//! Random histories of a log with three peers, compared with lists of messages: all retained messages can be replayed,
//! and hold at most twice the memory they use.

use counterfoil::{Ack, Epoch, Keep, Log, Options, Phase, Rank, Ssn};
use proptest::prelude::*;

const PEERS: u32 = 3;
/// Bytes before a chunk's first record.
const CHUNK_HEADER: usize = 112;
/// Bytes that a lane may hold beyond twice its used bytes.
const SMALL_CHUNK: usize = 4096;

#[derive(Clone, Debug)]
enum Step {
    Append { peer: u32, sizes: Vec<usize> },
    DropClaims { peer: u32, sizes: Vec<usize> },
    Acknowledge { peer: u32, percent: u64, new_epoch: bool },
    Cover { peer: u32, percent: u64 },
    RollBackReceiver { peer: u32, percent: u64 },
    Truncate { peer: u32, percent: u64 },
    Collect,
}

fn step() -> impl Strategy<Value = Step> {
    let peer = 1..=PEERS;
    let size = || prop_oneof![6 => 0usize..200, 3 => 200usize..2000, 1 => 3000usize..20_000];
    let percent = || 0u64..=100;
    prop_oneof![
        8 => (peer.clone(), prop::collection::vec(size(), 1..40)).prop_map(|(peer, sizes)| Step::Append { peer, sizes }),
        3 => (peer.clone(), prop::collection::vec(size(), 1..20)).prop_map(|(peer, sizes)| Step::DropClaims { peer, sizes }),
        5 => (peer.clone(), percent(), any::<bool>())
            .prop_map(|(peer, percent, new_epoch)| Step::Acknowledge { peer, percent, new_epoch }),
        3 => (peer.clone(), percent()).prop_map(|(peer, percent)| Step::Cover { peer, percent }),
        1 => (peer.clone(), percent()).prop_map(|(peer, percent)| Step::RollBackReceiver { peer, percent }),
        1 => (peer, percent()).prop_map(|(peer, percent)| Step::Truncate { peer, percent }),
        4 => Just(Step::Collect),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message {
    size: usize,
    /// Distinguishes messages with the same SSN before and after a truncation.
    mark: u8,
}

/// Messages sent to a peer, and its acknowledgements.
#[derive(Debug, Default)]
struct Peer {
    sent: Vec<Message>,
    acked: u64,
    covered: u64,
    epoch: u32,
}

/// Returns a record's bytes in memory.
fn footprint(size: usize) -> usize {
    (16 + size).next_multiple_of(16)
}

impl Peer {
    fn between(low: u64, high: u64, percent: u64) -> u64 {
        low + (high - low) * percent / 100
    }

    fn last(&self) -> u64 {
        self.sent.len() as u64
    }

    /// Returns the retained records' bytes, with their headers.
    ///
    /// Dropped claims don't count.
    fn retained_bytes(&self) -> usize {
        let records = &self.sent[self.covered as usize..self.acked as usize];
        records.iter().map(|message| footprint(message.size)).sum()
    }
}

struct History {
    log: Log,
    peers: Vec<Peer>,
    mark: u8,
}

impl History {
    fn new(keep: Keep) -> History {
        let mut options = Options::new(Rank(0), PEERS + 1);
        (options.keep, options.chunk_bytes, options.prefault_bytes) = (keep, 16 << 10, 0);
        History { log: Log::create(options).unwrap(), peers: (0..=PEERS).map(|_| Peer::default()).collect(), mark: 0 }
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Append { peer, ref sizes } => sizes.iter().for_each(|&size| self.append(peer, size)),
            Step::DropClaims { peer, ref sizes } => {
                for &size in sizes {
                    drop(self.log.try_claim(Rank(peer), 0, size).unwrap());
                }
            }
            Step::Acknowledge { peer, percent, new_epoch } => {
                let state = &mut self.peers[peer as usize];
                state.acked = Peer::between(state.acked, state.last(), percent);
                state.epoch += u32::from(new_epoch || state.epoch == 0);
                let ack = Ack { ssn: Ssn(state.acked), epoch: Epoch(state.epoch) };
                if state.acked > 0 {
                    self.log.acknowledge(Rank(peer), ack, Phase(state.epoch)).unwrap();
                }
            }
            Step::Cover { peer, percent } => {
                let state = &mut self.peers[peer as usize];
                state.covered = Peer::between(state.covered, state.last(), percent);
                state.acked = state.acked.max(state.covered);
                self.log.receiver_covered(Rank(peer), Epoch(state.epoch + 1), Ssn(state.covered)).unwrap();
            }
            Step::RollBackReceiver { peer, percent } => {
                let state = &mut self.peers[peer as usize];
                state.acked = Peer::between(state.covered, state.acked, percent);
                self.log.receiver_rolled_back(Rank(peer), Ssn(state.acked));
            }
            Step::Truncate { peer, percent } => {
                let state = &mut self.peers[peer as usize];
                let last = Peer::between(state.covered, state.last(), percent);
                state.sent.truncate(last as usize);
                state.acked = state.acked.min(last);
                self.log.truncate(Rank(peer), Ssn(last)).unwrap();
                self.mark = self.mark.wrapping_add(1);
            }
            Step::Collect => {
                self.log.collect();
            }
        }
    }

    fn append(&mut self, peer: u32, size: usize) {
        let state = &mut self.peers[peer as usize];
        let mut claim = self.log.try_claim(Rank(peer), 0, size).unwrap();
        claim.payload_mut().fill(self.mark ^ state.last() as u8);
        state.sent.push(Message { size, mark: self.mark });
        assert_eq!(claim.commit(), Ssn(state.last()));
    }

    /// Checks that all uncovered messages can be replayed, in order and unmodified.
    fn check_replay(&mut self, keep: Keep) {
        for (rank, state) in self.peers.iter().enumerate().skip(1) {
            let from = if keep == Keep::All { 1 } else { state.covered + 1 };
            let mut cursor = self.log.cursor(Rank(rank as u32), Ssn(from)).unwrap();
            for ssn in from..=state.last() {
                let Message { size, mark } = state.sent[ssn as usize - 1];
                let record = cursor.peek().unwrap().unwrap_or_else(|| panic!("message {ssn} to rank {rank} is gone"));
                assert_eq!((record.ssn(), record.payload().len()), (Ssn(ssn), size), "to rank {rank}");
                assert!(record.payload().iter().all(|&byte| byte == mark ^ (ssn - 1) as u8));
                cursor.advance();
            }
            assert!(cursor.peek().unwrap().is_none(), "more than was sent to rank {rank}");
        }
    }

    fn check_bound(&self) {
        let stats = self.log.stats();
        let mut total = 0;
        for holder in &stats.holders {
            let state = &self.peers[holder.lane.index()];
            let used = state.retained_bytes() + CHUNK_HEADER * holder.bytes.div_ceil(SMALL_CHUNK);
            assert!(holder.bytes <= 2 * used + SMALL_CHUNK, "{holder:?}, {used} used, {state:?}");
            total += holder.bytes;
        }
        assert!(total <= stats.used_bytes && stats.used_bytes <= stats.resident_bytes, "{stats:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn retained_messages_can_be_replayed_and_hold_at_most_twice_the_used_memory(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut history = History::new(Keep::Checkpoint);
        for step in &steps {
            history.apply(step);
            if matches!(step, Step::Collect) {
                history.check_bound();
                history.check_replay(Keep::Checkpoint);
            }
        }
        history.check_replay(Keep::Checkpoint);

        // Once a checkpoint of each peer covers everything, no record is retained.
        for peer in 1..=PEERS {
            history.apply(&Step::Cover { peer, percent: 100 });
        }
        history.log.collect();
        prop_assert_eq!(history.log.stats().holders, []);
    }

    #[test]
    fn keep_all_loses_nothing(steps in prop::collection::vec(step(), 1..60)) {
        let mut history = History::new(Keep::All);
        for step in &steps {
            history.apply(step);
        }
        history.log.collect();
        history.check_replay(Keep::All);
    }
}

/// Each message follows many dropped claims: the log holds the messages, not the pads.
#[test]
fn dropped_claims_are_not_kept() {
    let mut history = History::new(Keep::Checkpoint);
    for _ in 0..500 {
        history.apply(&Step::DropClaims { peer: 1, sizes: vec![1000; 30] });
        history.apply(&Step::Append { peer: 1, sizes: vec![40] });
        history.apply(&Step::Acknowledge { peer: 1, percent: 100, new_epoch: false });
    }
    // These settle the last message's chunk, too.
    history.apply(&Step::Append { peer: 1, sizes: vec![15_000; 2] });
    history.apply(&Step::Acknowledge { peer: 1, percent: 100, new_epoch: false });
    history.apply(&Step::Collect);
    history.check_bound();
    history.check_replay(Keep::Checkpoint);
    let pads = 500 * 30 * footprint(1000);
    let held = history.log.stats().used_bytes;
    assert!(held < pads / 100, "{held} bytes are held, {pads} bytes were dropped");
}
