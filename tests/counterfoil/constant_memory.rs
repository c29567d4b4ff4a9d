//! Long runs: memory stays constant after the first messages, and within the budget whatever the peers do.
//!
//! A billion messages take too long for a daily test (a quarter of a minute, optimised): `cargo test --release --test
//! counterfoil constant_memory:: -- --ignored`.

use counterfoil::{Ack, AppendError, Epoch, Keep, Log, Options, Phase, Rank, Ssn, Tier, create_private_dir};

fn append(log: &mut Log, peer: Rank, size: usize) -> Result<Ssn, AppendError> {
    let mut claim = log.try_claim(peer, 0, size).map_err(|refused| *refused)?;
    claim.payload_mut().fill(5);
    Ok(claim.commit())
}

fn acknowledge(log: &mut Log, peer: Rank, ssn: Ssn) {
    log.acknowledge(peer, Ack { ssn, epoch: Epoch::FIRST }, Phase::default()).unwrap();
}

const FIVE_MILLION: u64 = 5_000_000;

/// Sends 64-byte messages to three peers in turn, acknowledging every 32nd of each.
fn send(messages: u64, options: Options) {
    let keep = options.keep;
    let mut log = Log::create(options).unwrap();
    let mut resident = 0;
    for number in 1..=messages {
        let peer = Rank(1 + (number % 3) as u32);
        let ssn = append(&mut log, peer, 64).unwrap();
        if ssn.0.is_multiple_of(32) {
            acknowledge(&mut log, peer, ssn);
        }
        if keep == Keep::Checkpoint && ssn.0.is_multiple_of(2048) {
            log.receiver_covered(peer, Epoch::FIRST, ssn).unwrap();
            log.collect();
        }
        if number == 50_000 {
            resident = log.stats().resident_bytes;
        } else if number % 100_000 == 0 {
            assert_eq!(log.stats().resident_bytes, resident, "after {number} messages");
        }
    }
    let stats = log.stats();
    assert_eq!(stats.messages_logged, messages);
    assert_eq!(stats.bytes_logged, messages * (16 + 64));
    assert!(resident <= 3 << 20, "{resident} bytes for three lanes");
}

#[test]
fn five_million_acknowledged_messages_need_no_more_memory_than_the_first_ones() {
    send(FIVE_MILLION, Options { keep: Keep::Acked, ..Options::new(Rank(0), 4) });
}

#[test]
fn five_million_covered_messages_need_no_more_memory_than_the_first_ones() {
    send(FIVE_MILLION, Options { keep: Keep::Checkpoint, ..Options::new(Rank(0), 4) });
}

#[test]
fn five_million_messages_need_no_more_memory_in_a_file() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("job");
    create_private_dir(&dir).unwrap();
    let options = Options::new(Rank(0), 4);
    send(FIVE_MILLION, Options { keep: Keep::Acked, tier: Tier::ProcessCrashSafe, dir: Some(dir), ..options });
}

/// One peer never acknowledges: memory stays within the budget, errors name that peer, and its unacknowledged messages
/// are kept.
///
/// As soon as it answers, all sends continue.
#[test]
fn a_peer_that_never_acknowledges_uses_at_most_the_budget() {
    const BUDGET: usize = 512 << 10;
    let (silent, others) = (Rank(1), [Rank(2), Rank(3)]);
    let mut options = Options::new(Rank(0), 4);
    (options.memory_bytes_max, options.chunk_bytes, options.prefault_bytes) = (BUDGET, 16 << 10, 64 << 10);
    options.keep = Keep::Acked;
    let mut log = Log::create(options).unwrap();
    let mut refused = 0;
    for number in 0..100_000_u64 {
        for (peer, size) in [(silent, 200), (others[0], 20 + (number % 700) as usize), (others[1], 64)] {
            let ssn = match append(&mut log, peer, size) {
                Ok(ssn) => ssn,
                Err(AppendError::Full(full)) => {
                    assert_eq!(full.holders[0].0, silent, "{full}");
                    assert_eq!(peer, silent, "an acknowledging peer reuses its own memory: {full}");
                    refused += 1;
                    log.next_ssn(peer).prev()
                }
                Err(other) => panic!("{other}"),
            };
            if peer != silent && ssn > Ssn::ZERO {
                acknowledge(&mut log, peer, ssn);
            }
        }
        if number % 64 == 0 {
            let stats = log.stats();
            assert!(stats.used_bytes <= stats.resident_bytes && stats.resident_bytes <= BUDGET, "{stats:?}");
        }
    }
    assert!(refused > 90_000);
    assert!(log.stats().used_bytes >= BUDGET * 3 / 4, "the silent peer uses the remaining memory: {:?}", log.stats());

    let last = log.next_ssn(silent).prev();
    let mut cursor = log.cursor(silent, Ssn::FIRST).unwrap();
    for ssn in 1..=last.0 {
        assert_eq!(cursor.peek().unwrap().map(|record| (record.ssn(), record.payload().len())), Some((Ssn(ssn), 200)));
        cursor.advance();
    }
    assert!(cursor.peek().unwrap().is_none());
    drop(cursor);

    acknowledge(&mut log, silent, last);
    for number in 1..=1000 {
        for peer in [silent, others[0], others[1]] {
            let ssn = append(&mut log, peer, number).unwrap();
            acknowledge(&mut log, peer, ssn);
        }
    }
}
