//! The steps of a store, each with its effect on the model.

use counterfoil_log_core::{
    ChunkImage, Disposition, Epoch, LaneWriter, Phase, Pool, PoolOptions, Rank, Record, Run, Ssn,
};
use counterfoil_log_io::{
    Access, CheckpointImage, LOCAL, LaneImage, LaneSource, LocalImage, RecordSource, Store, StoreError,
};

use super::{BlockRecord, Lane, RANKS, StoreModel};
use crate::power_cuts::{Explored, Mismatch, Outcome};
use crate::random::{Random, below, distinct_bytes};

impl StoreModel {
    pub(super) fn step(&mut self, random: Random<'_>, explored: &mut Explored) -> Result<Outcome, Mismatch> {
        let Some(mut store) = self.store.take() else { return self.create() };
        let result = match random() % 16 {
            0..=5 => self.append(&mut store, random, explored),
            // Several blocks before a sync: a power cut may lose one in the middle.
            6 => (0..3).try_for_each(|_| self.append_local(&mut store, 1, random)),
            7 => self.append_local(&mut store, 3, random),
            8 => self.sync(&mut store),
            9..=11 => self.checkpoint(&mut store, random),
            12 => self.free(&mut store, random),
            13 => self.raise_floors(&mut store),
            14 => match random() % 3 {
                0 => self.discard(&mut store, random),
                1 => self.discard_before(&mut store, random),
                _ => self.truncate(&mut store, random),
            },
            _ => {
                self.steps.push("open again".to_owned());
                drop(store);
                return self.reopen();
            }
        };
        self.store = Some(store);
        outcome(result).map_err(|error| Mismatch(format!("a step fails: {error}")))
    }

    fn create(&mut self) -> Result<Outcome, Mismatch> {
        self.steps.push("create".to_owned());
        self.expected.exists = true;
        match Store::create(Box::new(self.disk.clone()), self.options.clone()) {
            Ok(store) => {
                self.store = Some(store);
                Ok(Outcome::Done)
            }
            Err(StoreError::Failed { .. } | StoreError::Io { .. }) => Ok(Outcome::Failed),
            Err(error) => Err(Mismatch(format!("can't be created: {error}"))),
        }
    }

    /// Starts another process, without a power cut: it sees all written data, synced or not.
    fn reopen(&mut self) -> Result<Outcome, Mismatch> {
        match Store::open(Box::new(self.disk.clone()), self.options.clone(), Access::ReadWrite) {
            Ok((store, image)) => {
                self.store = Some(store);
                self.expected.synced = self.expected.tail.len();
                self.rebuild();
                let found = image.map_or(Vec::new(), |image| image.local);
                if found != self.local {
                    return Err(Mismatch(format!("the local log has {found:?}, not {:?}", self.local)));
                }
                Ok(Outcome::Done)
            }
            Err(StoreError::Failed { .. } | StoreError::Io { .. }) => Ok(Outcome::Failed),
            Err(error) => Err(Mismatch(format!("can't be opened again: {error}"))),
        }
    }

    fn append(&mut self, store: &mut Store, random: Random<'_>, explored: &mut Explored) -> Result<(), StoreError> {
        let lane = below(random, RANKS as usize);
        let mut records = Vec::new();
        let from_memory = random().is_multiple_of(4);
        for _ in 0..1 + below(random, if from_memory { 20 } else { 5 }) {
            let next = &mut self.lanes[lane].next;
            *next = (*next).max(1);
            let len = match random() % 16 {
                0 => below(random, 20_000),
                1..=4 => below(random, 3000),
                _ if from_memory => below(random, 3000),
                _ => below(random, 200),
            };
            self.salt += 1;
            records.push((Ssn(*next), below(random, 40).min(len), distinct_bytes(len, self.salt)));
            *next += 1 + u64::from(random().is_multiple_of(if from_memory { 64 } else { 8 }));
        }
        self.steps.push(format!("append {} records from {} to lane {lane}", records.len(), records[0].0));
        let mut blocks = Vec::new();
        let peer = Rank(lane as u32);
        let result = if from_memory {
            // Dropped before the blocks are read: blocks don't depend on the lane's memory.
            let memory = in_memory(peer, &records);
            let cursor = memory.cursor(records[0].0).expect("the lane's only cursor");
            store.append(peer, &mut CountChunks(LaneSource::new(cursor, Ssn::MAX), &mut explored.chunks), &mut blocks)
        } else {
            store.append(peer, &mut Records(records.iter()), &mut blocks)
        };
        let written: u32 = blocks.iter().map(|block| block.records).sum();
        for block in &blocks {
            let inside = records.iter().filter(|(ssn, ..)| (block.first..=block.last).contains(ssn));
            self.contents.insert((block.segment, block.at), inside.cloned().collect());
        }
        if let Some((unwritten, ..)) = records.get(written as usize) {
            self.lanes[lane].next = unwritten.0;
        }
        self.lanes[lane].blocks.append(&mut blocks);
        result
    }

    fn append_local(&mut self, store: &mut Store, most: usize, random: Random<'_>) -> Result<(), StoreError> {
        let mut entries = Vec::new();
        for _ in 0..1 + below(random, most) {
            self.salt += 1;
            let len = if random().is_multiple_of(16) { below(random, 10_000) } else { below(random, 100) };
            let ssn = Ssn(self.next_local);
            entries.push(LocalImage {
                ssn,
                kind: random() as u8,
                key: random(),
                bytes: distinct_bytes(len, self.salt),
            });
            self.next_local += 1;
        }
        self.steps.push(format!("append {} entries from {} to the local log", entries.len(), entries[0].ssn));
        let mut blocks = Vec::new();
        let result = store.append(LOCAL, &mut LocalImage::source(&entries), &mut blocks);
        let written: u32 = blocks.iter().map(|block| block.records).sum();
        if result.as_ref().is_err_and(is_refusal) {
            entries.truncate(written as usize);
            self.next_local = entries.last().map_or(self.next_local, |entry| entry.ssn.0 + 1);
        }
        self.expected.tail.extend(entries.iter().cloned());
        self.local.append(&mut entries);
        self.next_local = self.local.last().map_or(1, |entry| entry.ssn.0 + 1).max(self.next_local);
        result
    }

    fn sync(&mut self, store: &mut Store) -> Result<(), StoreError> {
        self.steps.push("sync".to_owned());
        self.expected.synced = self.expected.tail.len();
        store.sync()
    }

    fn checkpoint(&mut self, store: &mut Store, random: Random<'_>) -> Result<(), StoreError> {
        let newest = self.expected.kept.last().map_or(0, |image| image.epoch.0);
        let epoch = Epoch(newest + 1 + below(random, 2) as u32);
        self.steps.push(format!("checkpoint of {epoch}"));
        // With a checkpoint the oldest entries may be dropped.
        let dropped = below(random, self.local.len() + 1);
        let application_bytes = if random().is_multiple_of(8) { 9000 } else { 100 };
        let image = CheckpointImage {
            epoch,
            lanes: self.lanes.iter().zip(0..).filter_map(|(lane, peer)| lane_image(lane, Rank(peer), random)).collect(),
            local: self.local[dropped..].to_vec(),
            tables: (0..below(random, 3))
                .map(|name| (format!("table {name}"), distinct_bytes(below(random, 50), 7)))
                .collect(),
            application: distinct_bytes(below(random, application_bytes), random()),
        };
        let before = self.expected.clone();
        let noted = self.expected.with_floors(&image);
        self.expected.kept.push(noted);
        let superfluous = self.expected.kept.len().saturating_sub(self.options.checkpoints_kept);
        self.expected.kept.drain(..superfluous);
        self.expected.tail.clear();
        self.expected.synced = 0;
        self.expected.drop_floors();
        let result = store.checkpoint(&image);
        match &result {
            Ok(()) => drop(self.local.drain(..dropped)),
            // Entries synced before the refusal may be recovered: the model allows them.
            Err(error) if is_refusal(error) => self.expected = before,
            Err(_) => {}
        }
        result
    }

    fn free(&mut self, store: &mut Store, random: Random<'_>) -> Result<(), StoreError> {
        let lane = below(random, RANKS as usize);
        let count = below(random, self.lanes[lane].blocks.len() + 1);
        self.steps.push(format!("free {count} blocks of lane {lane}"));
        let freed: Vec<_> = self.lanes[lane].blocks.drain(..count).collect();
        let covered = &mut self.lanes[lane].covered;
        *covered = freed.last().map_or(*covered, |block| block.last.max(*covered));
        store.free(&freed);
        Ok(())
    }

    fn raise_floors(&mut self, store: &mut Store) -> Result<(), StoreError> {
        let floors: Vec<(Rank, Ssn)> =
            self.lanes.iter().zip(0..).map(|(lane, rank)| (Rank(rank), lane.covered)).collect();
        self.steps.push(format!("raise the floors to {floors:?}"));
        for &(lane, ssn) in floors.iter().filter(|(_, ssn)| *ssn > Ssn::ZERO) {
            let floor = self.expected.floors.entry(lane).or_default();
            *floor = ssn.max(*floor);
        }
        self.expected.drop_floors();
        store.raise_floors(&floors)
    }

    fn discard(&mut self, store: &mut Store, random: Random<'_>) -> Result<(), StoreError> {
        let newest = self.expected.kept.last().map_or(0, |image| image.epoch.0);
        let epoch = Epoch(newest.saturating_sub(below(random, 4) as u32));
        self.steps.push(format!("discard beyond {epoch}"));
        self.expected.kept.retain(|image| image.epoch <= epoch);
        self.expected.tail.clear();
        self.expected.synced = 0;
        self.expected.drop_floors();
        let image = store.discard_beyond(epoch)?;
        self.rebuild();
        assert_eq!(image, self.expected.image(), "the image that is left");
        Ok(())
    }

    fn discard_before(&mut self, store: &mut Store, random: Random<'_>) -> Result<(), StoreError> {
        let newest = self.expected.kept.last().map_or(0, |image| image.epoch.0);
        let epoch = Epoch((newest + 1).saturating_sub(below(random, 4) as u32));
        self.steps.push(format!("discard before {epoch}"));
        self.expected.kept.retain(|image| image.epoch >= epoch || image.epoch.0 == newest);
        self.expected.drop_floors();
        store.discard_before(epoch)
    }

    /// Rolls a lane back: the SSNs of its last block are appended again, with other bytes.
    fn truncate(&mut self, store: &mut Store, random: Random<'_>) -> Result<(), StoreError> {
        let lane = &mut self.lanes[below(random, RANKS as usize)];
        if let Some(block) = lane.blocks.pop() {
            self.steps.push(format!("truncate {} before {}", block.lane, block.first));
            lane.next = block.first.0;
            store.free(&[block]);
        }
        Ok(())
    }
}

/// Builds a lane in memory with these records, in chunks of up to 8 KiB.
fn in_memory(peer: Rank, records: &[BlockRecord]) -> LaneWriter {
    let options = PoolOptions { memory_bytes_max: 1 << 20, chunk_bytes: 8 << 10, prefault_bytes: 0, cursors_max: 1 };
    let pool = Pool::volatile(options).expect("a megabyte of memory");
    let mut lane = LaneWriter::new(pool, peer);
    lane.resume(records[0].0, Ssn::ZERO, &[]).expect("a new lane");
    for (ssn, prefix, wire) in records {
        let mut claim = lane.import(*ssn, *prefix, wire.len() - prefix).expect("there is room for them");
        claim.body_mut().copy_from_slice(wire);
        claim.commit();
    }
    lane
}

fn lane_image(lane: &Lane, peer: Rank, random: Random<'_>) -> Option<LaneImage> {
    if lane.next == 0 {
        return None;
    }
    let run = |first: u64| {
        let retained = Disposition::Retain { epoch: Epoch(first as u32), phase: Phase(7) };
        let disposition = if first.is_multiple_of(2) { Disposition::Release } else { retained };
        Run { first: Ssn(first), last: Ssn(first + 1), disposition }
    };
    Some(LaneImage {
        peer,
        next: Ssn(lane.next),
        acked: Ssn(random() % lane.next),
        covered: lane.covered,
        runs: (0..random() % 3).map(run).collect(),
        blocks: lane.blocks.clone(),
    })
}

fn outcome(result: Result<(), StoreError>) -> Result<Outcome, StoreError> {
    match result {
        Ok(()) => Ok(Outcome::Done),
        Err(StoreError::Failed { .. }) => Ok(Outcome::Failed),
        Err(error) if is_refusal(&error) => Ok(Outcome::Refused),
        Err(error) => Err(error),
    }
}

/// Returns `true` if the store refused a step and did nothing: no space, or a file couldn't be created.
fn is_refusal(error: &StoreError) -> bool {
    matches!(error, StoreError::DiskFull { .. } | StoreError::Budget { .. } | StoreError::Io { .. })
}

/// Records to append.
struct Records<'a>(std::slice::Iter<'a, BlockRecord>);

impl RecordSource for Records<'_> {
    fn next(&mut self) -> Option<Record<'_>> {
        let (ssn, prefix, wire) = self.0.next()?;
        Record::new(*ssn, wire, *prefix)
    }
}

/// A lane's records; counts the chunks taken by the store.
struct CountChunks<'a>(LaneSource, &'a mut u64);

impl RecordSource for CountChunks<'_> {
    fn next(&mut self) -> Option<Record<'_>> {
        self.0.next()
    }

    fn next_chunk(&mut self, bytes_max: usize) -> Option<ChunkImage> {
        let chunk = self.0.next_chunk(bytes_max);
        *self.1 += u64::from(chunk.is_some());
        chunk
    }
}
