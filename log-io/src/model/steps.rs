//! The steps, each with what it does to the model.

use counterfoil_log_core::{Disposition, Epoch, LaneWriter, Phase, Pool, PoolOptions, Rank, Run, Ssn};

use super::{Chance, Counted, Lane, Mismatch, Outcome, RANKS, Records, World, below};
use crate::{Access, CheckpointImage, LOCAL, LaneImage, LaneSource, LocalImage, Store, StoreError};

impl World {
    /// Takes a step. The truth is then what it makes of it if all of it gets durable.
    pub(super) fn take_step(&mut self, chance: Chance<'_>) -> Result<Outcome, Mismatch> {
        let Some(mut store) = self.store.take() else { return self.create() };
        let result = match chance() % 16 {
            0..=5 => self.append(&mut store, chance),
            // Several blocks before a sync: a power cut may take one from among them.
            6 => (0..3).try_for_each(|_| self.append_local(&mut store, 1, chance)),
            7 => self.append_local(&mut store, 3, chance),
            8 => self.sync(&mut store),
            9..=11 => self.checkpoint(&mut store, chance),
            12 => self.free(&mut store, chance),
            13 => self.raise_floors(&mut store),
            14 if chance().is_multiple_of(3) => self.discard(&mut store, chance),
            14 => self.truncate(&mut store, chance),
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
        self.truth.exists = true;
        match Store::create(Box::new(self.disk.clone()), self.options.clone()) {
            Ok(store) => {
                self.store = Some(store);
                Ok(Outcome::Done)
            }
            Err(StoreError::Failed { .. } | StoreError::Io { .. }) => Ok(Outcome::Failed),
            Err(error) => Err(Mismatch(format!("can't be created: {error}"))),
        }
    }

    /// The process ends and another one comes: everything that was written is seen, synced or not.
    fn reopen(&mut self) -> Result<Outcome, Mismatch> {
        match Store::open(Box::new(self.disk.clone()), self.options.clone(), Access::ReadWrite) {
            Ok((store, image)) => {
                self.store = Some(store);
                self.truth.synced = self.truth.tail.len();
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

    fn append(&mut self, store: &mut Store, chance: Chance<'_>) -> Result<(), StoreError> {
        let lane = below(chance, RANKS as usize);
        let mut records = Vec::new();
        let from_memory = chance().is_multiple_of(4);
        for _ in 0..1 + below(chance, if from_memory { 20 } else { 5 }) {
            let next = &mut self.lanes[lane].next;
            *next = (*next).max(1);
            let len = match chance() % 16 {
                0 => below(chance, 20_000),
                1..=4 => below(chance, 3000),
                _ if from_memory => below(chance, 3000),
                _ => below(chance, 200),
            };
            self.salt += 1;
            records.push((Ssn(*next), below(chance, 40).min(len), body(len, self.salt)));
            *next += 1 + u64::from(chance().is_multiple_of(if from_memory { 64 } else { 8 }));
        }
        self.steps.push(format!("append {} records from {} to lane {lane}", records.len(), records[0].0));
        let mut blocks = Vec::new();
        let peer = Rank(lane as u32);
        let result = if from_memory {
            // Dropped before the blocks are read: they are what was written, whatever becomes of the memory.
            let memory = in_memory(peer, &records);
            let cursor = memory.cursor(records[0].0).expect("the lane's only cursor");
            store.append(peer, &mut Counted(LaneSource::new(cursor, Ssn::MAX), &mut self.chunks), &mut blocks)
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

    fn append_local(&mut self, store: &mut Store, most: usize, chance: Chance<'_>) -> Result<(), StoreError> {
        let mut entries = Vec::new();
        for _ in 0..1 + below(chance, most) {
            self.salt += 1;
            let len = if chance().is_multiple_of(16) { below(chance, 10_000) } else { below(chance, 100) };
            let ssn = Ssn(self.next_local);
            entries.push(LocalImage { ssn, kind: chance() as u8, key: chance(), bytes: body(len, self.salt) });
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
        self.truth.tail.extend(entries.iter().cloned());
        self.local.append(&mut entries);
        self.next_local = self.local.last().map_or(1, |entry| entry.ssn.0 + 1).max(self.next_local);
        result
    }

    fn sync(&mut self, store: &mut Store) -> Result<(), StoreError> {
        self.steps.push("sync".to_owned());
        self.truth.synced = self.truth.tail.len();
        store.sync()
    }

    fn checkpoint(&mut self, store: &mut Store, chance: Chance<'_>) -> Result<(), StoreError> {
        let newest = self.truth.kept.last().map_or(0, |image| image.epoch.0);
        let epoch = Epoch(newest + 1 + below(chance, 2) as u32);
        self.steps.push(format!("checkpoint of {epoch}"));
        // Entries that a checkpoint makes superfluous are forgotten from the front.
        let forgotten = below(chance, self.local.len() + 1);
        let application_bytes = if chance().is_multiple_of(8) { 9000 } else { 100 };
        let image = CheckpointImage {
            epoch,
            lanes: self.lanes.iter().zip(0..).filter_map(|(lane, peer)| lane_image(lane, Rank(peer), chance)).collect(),
            local: self.local[forgotten..].to_vec(),
            tables: (0..below(chance, 3)).map(|name| (format!("table {name}"), body(below(chance, 50), 7))).collect(),
            application: body(below(chance, application_bytes), chance()),
        };
        let before = self.truth.clone();
        let noted = self.truth.with_floors(&image);
        self.truth.kept.push(noted);
        let superfluous = self.truth.kept.len().saturating_sub(self.options.checkpoints_kept);
        self.truth.kept.drain(..superfluous);
        self.truth.tail.clear();
        self.truth.synced = 0;
        self.truth.drop_floors();
        let result = store.checkpoint(&image);
        match &result {
            Ok(()) => drop(self.local.drain(..forgotten)),
            // What was synced on the way to a file that didn't get its place stays synced.
            Err(error) if is_refusal(error) => self.truth = before,
            Err(_) => {}
        }
        result
    }

    fn free(&mut self, store: &mut Store, chance: Chance<'_>) -> Result<(), StoreError> {
        let lane = below(chance, RANKS as usize);
        let count = below(chance, self.lanes[lane].blocks.len() + 1);
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
            let floor = self.truth.floors.entry(lane).or_default();
            *floor = ssn.max(*floor);
        }
        self.truth.drop_floors();
        store.raise_floors(&floors)
    }

    fn discard(&mut self, store: &mut Store, chance: Chance<'_>) -> Result<(), StoreError> {
        let newest = self.truth.kept.last().map_or(0, |image| image.epoch.0);
        let epoch = Epoch(newest.saturating_sub(below(chance, 4) as u32));
        self.steps.push(format!("discard beyond {epoch}"));
        self.truth.kept.retain(|image| image.epoch <= epoch);
        self.truth.tail.clear();
        self.truth.synced = 0;
        self.truth.drop_floors();
        let image = store.discard_beyond(epoch)?;
        self.rebuild();
        assert_eq!(image, self.truth.image(), "the image that is left");
        Ok(())
    }

    /// The rank rolls a lane back: what was in blocks is written again, differently.
    fn truncate(&mut self, store: &mut Store, chance: Chance<'_>) -> Result<(), StoreError> {
        let lane = &mut self.lanes[below(chance, RANKS as usize)];
        if let Some(block) = lane.blocks.pop() {
            self.steps.push(format!("truncate {} before {}", block.lane, block.first));
            lane.next = block.first.0;
            store.free(&[block]);
        }
        Ok(())
    }
}

/// A lane in memory with these records, in chunks of up to 8 KiB.
fn in_memory(peer: Rank, records: &[(Ssn, usize, Vec<u8>)]) -> LaneWriter {
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

fn lane_image(lane: &Lane, peer: Rank, chance: Chance<'_>) -> Option<LaneImage> {
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
        acked: Ssn(chance() % lane.next),
        covered: lane.covered,
        runs: (0..chance() % 3).map(run).collect(),
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

/// Nothing happened: no room, or a file couldn't be created.
fn is_refusal(error: &StoreError) -> bool {
    matches!(error, StoreError::DiskFull { .. } | StoreError::Budget { .. } | StoreError::Io { .. })
}

/// Bytes that nobody else has; half of them can be compressed.
fn body(len: usize, salt: u64) -> Vec<u8> {
    let mut word = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|at| {
            if salt.is_multiple_of(2) || at % 16 == 0 {
                word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(salt);
            }
            (word >> 56) as u8
        })
        .collect()
}
