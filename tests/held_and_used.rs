//! Random histories of a log with three peers, compared with lists of messages: what is retained can be replayed, and
//! holds at most twice the memory that it uses.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used)]

use counterfoil::ack::Ack;
use counterfoil::{Epoch, Keep, Log, Options, Phase, Rank, Ssn};
use proptest::prelude::*;

const PEERS: u32 = 3;
/// Bytes in front of the first record of a chunk.
const CHUNK_HEADER: usize = 112;
/// What a lane may hold beyond twice of what it uses.
const SMALL_CHUNK: usize = 4096;

#[derive(Clone, Debug)]
enum Step {
    Append { peer: u32, sizes: Vec<usize> },
    GiveUp { peer: u32, sizes: Vec<usize> },
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
        3 => (peer.clone(), prop::collection::vec(size(), 1..20)).prop_map(|(peer, sizes)| Step::GiveUp { peer, sizes }),
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
    /// Tells what was sent under an SSN from what was sent under it before a truncation.
    mark: u8,
}

/// What was sent to a peer, and what it said.
#[derive(Debug, Default)]
struct Peer {
    sent: Vec<Message>,
    acked: u64,
    covered: u64,
    epoch: u32,
}

/// Bytes that a record takes.
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

    /// Bytes of the records that are retained, with their headers. Claims that were given up are not used.
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

    fn takes(&mut self, step: &Step) {
        match *step {
            Step::Append { peer, ref sizes } => sizes.iter().for_each(|&size| self.appends(peer, size)),
            Step::GiveUp { peer, ref sizes } => {
                for &size in sizes {
                    drop(self.log.try_claim(Rank(peer), 0, size).unwrap());
                }
            }
            Step::Acknowledge { peer, percent, new_epoch } => {
                let known = &mut self.peers[peer as usize];
                known.acked = Peer::between(known.acked, known.last(), percent);
                known.epoch += u32::from(new_epoch || known.epoch == 0);
                let ack = Ack { ssn: Ssn(known.acked), epoch: Epoch(known.epoch) };
                if known.acked > 0 {
                    self.log.acknowledge(Rank(peer), ack, Phase(known.epoch)).unwrap();
                }
            }
            Step::Cover { peer, percent } => {
                let known = &mut self.peers[peer as usize];
                known.covered = Peer::between(known.covered, known.last(), percent);
                known.acked = known.acked.max(known.covered);
                self.log.receiver_covered(Rank(peer), Epoch(known.epoch + 1), Ssn(known.covered)).unwrap();
            }
            Step::RollBackReceiver { peer, percent } => {
                let known = &mut self.peers[peer as usize];
                known.acked = Peer::between(known.covered, known.acked, percent);
                self.log.receiver_rolled_back(Rank(peer), Ssn(known.acked));
            }
            Step::Truncate { peer, percent } => {
                let known = &mut self.peers[peer as usize];
                let last = Peer::between(known.covered, known.last(), percent);
                known.sent.truncate(last as usize);
                known.acked = known.acked.min(last);
                self.log.truncate(Rank(peer), Ssn(last)).unwrap();
                self.mark = self.mark.wrapping_add(1);
            }
            Step::Collect => {
                self.log.collect();
            }
        }
    }

    fn appends(&mut self, peer: u32, size: usize) {
        let known = &mut self.peers[peer as usize];
        let mut claim = self.log.try_claim(Rank(peer), 0, size).unwrap();
        claim.payload_mut().fill(self.mark ^ known.last() as u8);
        known.sent.push(Message { size, mark: self.mark });
        assert_eq!(claim.commit(), Ssn(known.last()));
    }

    /// Everything that no checkpoint covers can be replayed, in order and as it was sent.
    fn replays(&mut self, keep: Keep) {
        for (rank, known) in self.peers.iter().enumerate().skip(1) {
            let from = if keep == Keep::All { 1 } else { known.covered + 1 };
            let mut cursor = self.log.cursor(Rank(rank as u32), Ssn(from)).unwrap();
            for ssn in from..=known.last() {
                let Message { size, mark } = known.sent[ssn as usize - 1];
                let record = cursor.peek().unwrap().unwrap_or_else(|| panic!("message {ssn} to rank {rank} is gone"));
                assert_eq!((record.ssn(), record.payload().len()), (Ssn(ssn), size), "to rank {rank}");
                assert!(record.payload().iter().all(|&byte| byte == mark ^ (ssn - 1) as u8));
                cursor.advance();
            }
            assert!(cursor.peek().unwrap().is_none(), "more than was sent to rank {rank}");
        }
    }

    fn holds_at_most_twice_what_it_uses(&self) {
        let stats = self.log.stats();
        let mut in_all = 0;
        for holder in &stats.holders {
            let known = &self.peers[holder.lane.index()];
            let used = known.retained_bytes() + CHUNK_HEADER * holder.bytes.div_ceil(SMALL_CHUNK);
            assert!(holder.bytes <= 2 * used + SMALL_CHUNK, "{holder:?}, {used} used, {known:?}");
            in_all += holder.bytes;
        }
        assert!(in_all <= stats.used_bytes && stats.used_bytes <= stats.resident_bytes, "{stats:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn retained_messages_can_be_replayed_and_hold_at_most_twice_what_they_use(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut history = History::new(Keep::Checkpoint);
        for step in &steps {
            history.takes(step);
            if matches!(step, Step::Collect) {
                history.holds_at_most_twice_what_it_uses();
                history.replays(Keep::Checkpoint);
            }
        }
        history.replays(Keep::Checkpoint);

        // Once a checkpoint of each peer covers everything, nothing is retained.
        for peer in 1..=PEERS {
            history.takes(&Step::Cover { peer, percent: 100 });
        }
        history.log.collect();
        prop_assert_eq!(history.log.stats().holders, []);
    }

    #[test]
    fn a_log_that_keeps_all_loses_nothing(steps in prop::collection::vec(step(), 1..60)) {
        let mut history = History::new(Keep::All);
        for step in &steps {
            history.takes(step);
        }
        history.log.collect();
        history.replays(Keep::All);
    }
}

/// One message among claims that were given up, again and again: the log holds the messages, not the pads.
#[test]
fn claims_that_were_given_up_are_not_kept() {
    let mut history = History::new(Keep::Checkpoint);
    for _ in 0..500 {
        history.takes(&Step::GiveUp { peer: 1, sizes: vec![1000; 30] });
        history.takes(&Step::Append { peer: 1, sizes: vec![40] });
        history.takes(&Step::Acknowledge { peer: 1, percent: 100, new_epoch: false });
    }
    // So that the last message's chunk is settled, too.
    history.takes(&Step::Append { peer: 1, sizes: vec![15_000; 2] });
    history.takes(&Step::Acknowledge { peer: 1, percent: 100, new_epoch: false });
    history.takes(&Step::Collect);
    history.holds_at_most_twice_what_it_uses();
    history.replays(Keep::Checkpoint);
    let pads = 500 * 30 * footprint(1000);
    let held = history.log.stats().used_bytes;
    assert!(held < pads / 100, "{held} bytes are held, {pads} bytes were given up");
}
