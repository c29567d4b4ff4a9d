use std::time::Instant;

use proptest::prelude::*;

use super::*;

const RANKS: usize = 6;

/// Send epoch, receive epoch unless logged, and the receive epoch known to older checkpoints.
type Entries = Vec<(u32, Option<u32>, Option<StaleReceipt>)>;

/// Random tables, with some entries impossible in failure-free runs (received later than sent and not logged).
fn tables() -> impl Strategy<Value = Vec<RankTable>> {
    let stale = (1u32..6, 1u32..6).prop_map(|(upto, received)| StaleReceipt { upto, received });
    let entry = (1u32..5, proptest::option::of(1u32..6), proptest::option::of(stale));
    let channel = (0..RANKS as u32, proptest::collection::vec(entry, 0..4));
    let rank = (1u32..6, proptest::collection::vec(channel, 0..5));
    proptest::collection::vec(rank, 1..=RANKS).prop_map(|ranks| {
        let channels = |channels: Vec<(u32, Entries)>| {
            let channels = channels.into_iter().map(|(peer, mut entries)| {
                entries.sort_unstable_by_key(|entry| entry.0);
                entries.dedup_by_key(|entry| entry.0);
                let epochs: Vec<_> = (1..)
                    .zip(entries)
                    .map(|(first, (epoch, received, stale))| SentInEpoch { epoch, first, received, stale })
                    .collect();
                SentTo { peer, sent: epochs.len() as u64, epochs }
            });
            channels.collect()
        };
        let ranks = ranks.into_iter();
        ranks.map(|(epoch, sent)| RankTable { epoch, channels: channels(sent), ..RankTable::default() }).collect()
    })
}

fn is_closed(tables: &[RankTable], line: &[u32]) -> bool {
    tables.iter().enumerate().all(|(sender, table)| {
        table.channels.iter().filter(|channel| (channel.peer as usize) < tables.len()).all(|channel| {
            channel.epochs.iter().all(|entry| {
                entry.received.is_none_or(|received| received < line[channel.peer as usize])
                    || line[sender] <= entry.epoch
            })
        })
    })
}

/// Finds the largest of all closed lines by trying them all. `STAY` is above every epoch.
fn by_brute_force(tables: &[RankTable], failed: &[Option<u32>]) -> Vec<Option<u32>> {
    const STAY: u32 = 6;
    let start: Vec<u32> = failed.iter().map(|epoch| epoch.unwrap_or(STAY)).collect();
    let mut best: Option<Vec<u32>> = None;
    let mut line = vec![1; tables.len()];
    loop {
        let fits = line.iter().zip(&start).all(|(epoch, start)| epoch <= start) && is_closed(tables, &line);
        // Closed lines are a lattice: the largest sum is the largest line.
        if fits && best.as_ref().is_none_or(|best| best.iter().sum::<u32>() < line.iter().sum()) {
            best = Some(line.clone());
        }
        let Some(at) = line.iter().position(|&epoch| epoch < STAY) else { break };
        line[..at].fill(1);
        line[at] += 1;
    }
    best.unwrap_or_default().iter().map(|&epoch| (epoch < STAY).then_some(epoch)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_line_is_the_largest_closed_one(
        tables in tables(),
        mut failed in proptest::collection::vec(proptest::option::of(1u32..6), RANKS),
    ) {
        failed.truncate(tables.len());
        prop_assert_eq!(recovery_line(&tables, &failed), by_brute_force(&tables, &failed));
    }

    #[test]
    fn no_failure_goes_below_the_floors(
        tables in tables(),
        mut fails in proptest::collection::vec(any::<bool>(), RANKS),
    ) {
        fails.truncate(tables.len());
        let (floors, smallest) = (floor_by_line(&tables), floor_by_smallest_epoch(&tables));
        // One failure after another, each time with only the receipts in the checkpoints of the rollbacks.
        let mut line: Vec<Option<u32>> = vec![None; tables.len()];
        for (rank, _) in fails.iter().enumerate().filter(|&(_, &fails)| fails) {
            let known: Vec<u32> = line.iter().zip(&tables).map(|(epoch, table)| epoch.unwrap_or(table.epoch)).collect();
            line[rank] = Some(known[rank]);
            line = line_with(&tables, &line, |sender, entry| entry.as_of(known[sender as usize]));
        }
        for (epoch, floor) in line.into_iter().zip(floors) {
            prop_assert!(epoch.is_none_or(|epoch| epoch >= floor));
            prop_assert!(floor >= smallest);
        }
    }
}

#[test]
fn the_plain_smallest_epoch_would_collect_what_a_message_sent_again_still_needs() {
    let entry = SentInEpoch { epoch: 1, first: 1, received: Some(2), stale: None };
    let sent = SentTo { peer: 1, sent: 1, epochs: vec![entry] };
    let tables = [
        RankTable { epoch: 2, channels: vec![sent], ..RankTable::default() },
        RankTable { epoch: 2, ..RankTable::default() },
    ];
    assert_eq!(recovery_line(&tables, &[None, Some(2)]), [Some(1), Some(2)]);
    assert_eq!((floor_by_line(&tables), floor_by_smallest_epoch(&tables)), (vec![1, 2], 1));
}

#[test]
fn the_base_of_a_channel_is_what_was_sent_before_the_epoch() {
    let entry = |epoch, first| SentInEpoch { epoch, first, received: None, stale: None };
    let channel = SentTo { peer: 0, sent: 9, epochs: vec![entry(2, 4), entry(5, 7)] };
    let bases = [None, Some(1), Some(2), Some(3), Some(5), Some(6)].map(|epoch| channel.sent_before(epoch));
    assert_eq!(bases, [9, 3, 3, 6, 6, 9]);
}

/// Row of 100,000 ranks with 8 neighbours and 4 epochs; one failure rolls all the others back.
#[test]
fn a_hundred_thousand_ranks_take_seconds_at_most() {
    const MANY: u32 = 100_000;
    let tables: Vec<RankTable> = (0..MANY)
        .map(|rank| {
            let peers = (1..=4).flat_map(|step| [(rank + step) % MANY, (rank + MANY - step) % MANY]);
            let entry = |epoch| SentInEpoch { epoch, first: epoch.into(), received: Some(epoch), stale: None };
            let epochs = |_| (1..=4).map(entry);
            let channels = peers.map(|peer| SentTo { peer, sent: 4, epochs: epochs(peer).collect() }).collect();
            RankTable { epoch: 4, channels, ..RankTable::default() }
        })
        .collect();
    let mut failed = vec![None; MANY as usize];
    failed[17] = Some(3);
    let begin = Instant::now();
    let line = recovery_line(&tables, &failed);
    let took = begin.elapsed();
    assert!(line.iter().all(|&epoch| epoch == Some(3)));
    assert!(took.as_secs() < 10, "{took:?}");
}

#[test]
fn the_smallest_epoch_is_that_of_the_oldest_checkpoint_that_a_rank_restarts_from() {
    let table = |epoch, restored| RankTable { epoch, restored, ..RankTable::default() };
    assert_eq!(floor_by_smallest_epoch(&[table(5, None), table(4, None)]), 4);
    assert_eq!(floor_by_smallest_epoch(&[table(5, Some(3)), table(4, None)]), 3);
    assert_eq!(floor_by_smallest_epoch(&[]), u32::MAX);
}

#[test]
fn an_older_checkpoint_knows_of_a_later_receipt() {
    let stale = Some(StaleReceipt { upto: 3, received: 5 });
    let entry = SentInEpoch { epoch: 1, first: 1, received: Some(2), stale };
    let logged = SentInEpoch { received: None, ..entry };
    for (entry, now) in [(entry, Some(2)), (logged, None)] {
        let received = [1, 3, 4].map(|epoch| entry.as_of(epoch).received);
        assert_eq!(received, [Some(5), Some(5), now]);
    }
}

#[test]
fn two_bounds_of_older_checkpoints_become_one_that_covers_both() {
    let one = StaleReceipt { upto: 2, received: 5 };
    let other = StaleReceipt { upto: 4, received: 3 };
    let both = Some(StaleReceipt { upto: 4, received: 5 });
    assert_eq!(StaleReceipt::merge(Some(one), Some(other)), both);
    assert_eq!(StaleReceipt::merge(Some(other), Some(one)), both);
    assert_eq!(StaleReceipt::merge(Some(one), None), Some(one));
    assert_eq!(StaleReceipt::merge(None, Some(one)), Some(one));
    assert_eq!(StaleReceipt::merge(None, None), None);
}
