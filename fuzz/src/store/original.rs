//! The unchanged store: made once, with every kind of contents.

use std::path::PathBuf;
use std::sync::OnceLock;

use counterfoil::{Options, Phase, Rank, Ssn, Tier};
use counterfoil_log_core::{Disposition, Epoch, LaneWriter, Pool, PoolOptions, Record, Run};
use counterfoil_log_io::{
    Block, CheckpointImage, LOCAL, LaneImage, LaneSource, LocalImage, RecordSource, Store, StoreOptions,
};
use counterfoil_test_support::SimulatedDisk;

use super::{Contents, read_all};

const RANKS: u32 = 3;
/// Lane with copied records.
pub(super) const LANE: Rank = Rank(2);
/// Lane with in-place chunks.
const CHUNKS: Rank = Rank(0);

pub(super) fn options() -> StoreOptions {
    StoreOptions {
        segment_bytes: 32 << 10,
        block_bytes: 8 << 10,
        disk_bytes_max: 1 << 20,
        reserve_bytes: 4 << 10,
        checkpoints_kept: 2,
        seed: Some(7),
        ..StoreOptions::new(Rank(1), RANKS)
    }
}

/// Returns options for a log on such a store.
pub(super) fn log_options() -> Options {
    let mut options = Options::new(Rank(1), RANKS);
    options.tier = Tier::NodeLocal;
    (options.memory_bytes_max, options.chunk_bytes, options.prefault_bytes) = (64 << 10, 4 << 10, 0);
    options.local_bytes_max = 16 << 10;
    options.store = Some(counterfoil::StoreOptions {
        segment_bytes: 32 << 10,
        block_bytes: 8 << 10,
        disk_bytes_max: 2 << 20,
        checkpoints_kept: 2,
        ..counterfoil::StoreOptions::new(PathBuf::new())
    });
    options
}

struct Records(std::ops::RangeInclusive<u64>, Vec<u8>);

impl RecordSource for Records {
    fn next(&mut self) -> Option<Record<'_>> {
        let ssn = self.0.next()?;
        self.1 = (0..ssn % 700 + 20).map(|index| (index * 7 + ssn) as u8).collect();
        Record::new(Ssn(ssn), &self.1, 8)
    }
}

fn entry(ssn: u64) -> LocalImage {
    LocalImage { ssn: Ssn(ssn), kind: 3, key: 40 + ssn, bytes: format!("entry {ssn}").into_bytes() }
}

/// Returns the store and its contents.
pub(super) fn original() -> &'static (SimulatedDisk, Contents) {
    static ORIGINAL: OnceLock<(SimulatedDisk, Contents)> = OnceLock::new();
    ORIGINAL.get_or_init(|| {
        let disk = SimulatedDisk::new(8 << 10);
        write(&mut Store::create(Box::new(disk.clone()), options()).expect("a new store"));
        let contents = read_all(&disk).expect("an unchanged store");
        assert!(contents.0.lanes.iter().all(|lane| lane.blocks.len() > 1) && contents.0.local.len() == 4);
        (disk, contents)
    })
}

fn write(store: &mut Store) {
    let pool = PoolOptions { memory_bytes_max: 256 << 10, chunk_bytes: 4 << 10, prefault_bytes: 0, cursors_max: 2 };
    let mut chunks = LaneWriter::new(Pool::volatile(pool).expect("a pool"), CHUNKS);
    for ssn in 1..=40_u64 {
        if ssn % 9 == 0 {
            drop(chunks.claim(8, 50).expect("room"));
        }
        let mut claim = chunks.claim(8, 300).expect("room");
        claim.body_mut().fill(ssn as u8);
        claim.commit();
    }
    let mut lanes: [Vec<Block>; 2] = Default::default();
    let mut done = [0, 0];
    for (epoch, upto) in [(2, [12, 18]), (3, [30, 40])] {
        let [copied, in_place] = upto;
        store.append(LANE, &mut Records(done[0] + 1..=copied, Vec::new()), &mut lanes[0]).expect("room");
        let cursor = chunks.cursor(Ssn(done[1] + 1)).expect("a cursor");
        store.append(CHUNKS, &mut LaneSource::new(cursor, Ssn(in_place)), &mut lanes[1]).expect("room");
        done = upto;
        let retained = Disposition::Retain { epoch: Epoch(1), phase: Phase(2) };
        let lane = |peer, upto: u64, blocks: &Vec<Block>| LaneImage {
            peer,
            next: Ssn(upto + 1),
            acked: Ssn(4),
            covered: Ssn(0),
            runs: vec![
                Run { first: Ssn(1), last: Ssn(2), disposition: Disposition::Release },
                Run { first: Ssn(3), last: Ssn(4), disposition: retained },
            ],
            blocks: blocks.clone(),
        };
        let image = CheckpointImage {
            epoch: Epoch(epoch),
            lanes: vec![lane(LANE, copied, &lanes[0]), lane(CHUNKS, in_place, &lanes[1])],
            local: vec![entry(1), entry(2)],
            tables: vec![("windows".to_owned(), b"a table".to_vec()), ("orphans".to_owned(), Vec::new())],
            application: b"the program's own bytes".to_vec(),
        };
        store.checkpoint(&image).expect("room");
    }
    store.raise_floors(&[(LANE, Ssn(2))]).expect("a floor");
    for ssn in [3, 4] {
        store.append(LOCAL, &mut LocalImage::source(&[entry(ssn)]), &mut Vec::new()).expect("room");
    }
    store.sync().expect("a sync");
}
