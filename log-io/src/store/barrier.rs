//! Durability: syncs, checkpoints, and manifest changes.

use std::collections::{BTreeMap, BTreeSet};

use counterfoil_log_core::{Epoch, Rank, Ssn};

use super::{Kept, Store, apply_floors};
use crate::format::checkpoint_file::{self, Context, CoveredSegment, Encoded, Written};
use crate::format::fields::Malformed;
use crate::format::manifest::{KeptCheckpoint, Manifest};
use crate::format::names::{checkpoint_name, segment_name};
use crate::{Block, CheckpointImage, StoreError};

impl Store {
    /// Waits until all appended blocks are written.
    ///
    /// They are readable then, and the memory of their chunks is released.
    ///
    /// # Errors
    /// [`StoreError::Failed`]; the memory is released in this case, too.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        let flushed = self.backend.flush().map_err(StoreError::io("write", "files"));
        self.check_writable()?;
        flushed.map_err(|error| self.fail(error))
    }

    /// Makes all appended blocks durable.
    ///
    /// After a power cut a recovery finds blocks in the lane [`LOCAL`](crate::LOCAL) without a checkpoint, other blocks
    /// only through a checkpoint.
    ///
    /// # Errors
    /// [`StoreError::Failed`].
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.flush()?;
        let dirty: Vec<u32> = self.segments.iter().filter(|(_, of)| of.is_dirty).map(|(&number, _)| number).collect();
        for number in dirty {
            let Some(segment) = self.segments.get_mut(&number) else { continue };
            let Some(file) = segment.file else { continue };
            segment.is_dirty = false;
            if self.active != Some(number) {
                segment.file = None;
            }
            self.sync_file(file, &segment_name(number))?;
            if self.active != Some(number) {
                self.backend.close(file);
            }
        }
        if self.is_directory_dirty { self.sync_dir() } else { Ok(()) }
    }

    /// Takes a checkpoint.
    ///
    /// After this returns, `image` and everything referenced by it survive a power cut, and a recovery finds it as the
    /// newest. Checkpoints beyond `checkpoints_kept` are removed, with the blocks that only they needed.
    ///
    /// # Errors
    /// [`StoreError::Epoch`] if the epoch doesn't rise; [`StoreError::NoBlock`] if a block was freed;
    /// [`StoreError::Image`] if a number in the image is out of range; [`StoreError::DiskFull`],
    /// [`StoreError::Budget`], [`StoreError::TooManyFiles`], [`StoreError::Io`]: the checkpoint can be taken again;
    /// [`StoreError::Failed`], after which the checkpoint may be durable or not.
    pub fn checkpoint(&mut self, image: &CheckpointImage) -> Result<(), StoreError> {
        self.check_writable()?;
        let newest = self.kept.last().map_or(Epoch(0), |kept| kept.entry.epoch);
        if image.epoch <= newest {
            return Err(StoreError::Epoch { asked: image.epoch, newest });
        }
        // Blocks already collected are left out.
        let mut image = std::borrow::Cow::Borrowed(image);
        if !self.manifest.floors.is_empty() {
            apply_floors(image.to_mut(), &self.manifest.floors);
        }
        let segments = self.covered_segments(&image)?;
        self.sync()?;

        let number = self.take_number()?;
        let written = Written {
            segment: self.active.unwrap_or(0),
            end: self.active.map_or(0, |active| self.segments[&active].end),
            next_number: self.next_number,
        };
        let context = Context {
            number,
            store: self.manifest.store,
            session: self.manifest.session,
            rank: self.options.rank,
            ranks: self.options.ranks,
            written,
            segments,
        };
        let encoded = checkpoint_file::encode(&image, &context);
        encoded.check().map_err(|Malformed| StoreError::Image { epoch: image.epoch })?;
        self.write_checkpoint(&encoded)?;
        let kept = self.open_kept(encoded.kept, &image, &context);
        let committed = kept.and_then(|kept| self.commit_checkpoint(kept));
        if committed.is_err() && self.failed.is_none() {
            // The manifest wasn't changed: nothing refers to the file.
            self.remove_checkpoint(number);
        }
        committed
    }

    /// Writes a checkpoint file, durably; nothing refers to it yet.
    fn write_checkpoint(&mut self, encoded: &Encoded<'_>) -> Result<(), StoreError> {
        let name = checkpoint_name(encoded.kept.number);
        self.check_budget(encoded.kept.bytes)?;
        let file = match self.create_file(&name, encoded.kept.bytes) {
            // The reserve is for this: a checkpoint lets other space be freed.
            Err(StoreError::DiskFull { .. }) if self.remove_reserve() => self.create_file(&name, encoded.kept.bytes)?,
            created => created?,
        };
        self.write_pieces(file, &name, 0, &encoded.pieces())?;
        self.sync_file(file, &name)?;
        self.sync_dir()?;
        self.backend.close(file);
        Ok(())
    }

    /// Opens a checkpoint file, and returns the state of a kept checkpoint.
    pub(super) fn open_kept(
        &mut self,
        entry: KeptCheckpoint,
        image: &CheckpointImage,
        context: &Context,
    ) -> Result<Kept, StoreError> {
        let name = checkpoint_name(entry.number);
        let file = self.backend.reader(&name).map_err(StoreError::io("open", &name))?;
        Ok(Kept {
            entry,
            file,
            blocks: image.lanes.iter().flat_map(|lane| lane.blocks.iter().copied()).collect(),
            covered: image.lanes.iter().map(|lane| (lane.peer, lane.covered)).collect(),
            written: context.written,
            session: context.session,
        })
    }

    /// Makes a new checkpoint valid.
    fn commit_checkpoint(&mut self, newest: Kept) -> Result<(), StoreError> {
        let superfluous = (self.kept.len() + 1).saturating_sub(self.options.checkpoints_kept);
        let mut manifest = self.manifest.clone();
        manifest.kept.drain(..superfluous.min(manifest.kept.len()));
        manifest.kept.push(newest.entry);
        manifest.tail_session = manifest.session;
        let kept = self.kept.iter().skip(superfluous).chain([&newest]);
        drop_floors(&mut manifest, kept);
        self.commit_manifest(manifest)?;

        self.release(places(&newest.blocks), |stored| stored.checkpoints += 1);
        self.kept.push(newest);
        let old: Vec<Kept> = self.kept.drain(..superfluous).collect();
        let local = std::mem::take(&mut self.local);
        self.release(local.into_iter(), |stored| stored.is_live = false);
        self.local_last = Ssn::ZERO;
        self.drop_checkpoints(old);
        self.make_reserve_if_possible();
        Ok(())
    }

    /// Removes checkpoints no longer in the manifest.
    fn drop_checkpoints(&mut self, old: Vec<Kept>) {
        for kept in old {
            self.remove_checkpoint(kept.entry.number);
            self.release(places(&kept.blocks), |stored| stored.checkpoints -= 1);
        }
    }

    /// Returns, for each segment, the end of the last block referenced by an image.
    fn covered_segments(&self, image: &CheckpointImage) -> Result<Vec<CoveredSegment>, StoreError> {
        let mut covered: BTreeMap<u32, u64> = BTreeMap::new();
        for block in image.lanes.iter().flat_map(|lane| &lane.blocks) {
            let (segment, at) = (block.segment, block.at);
            if !self.segments.get(&segment).is_some_and(|of| of.has(at)) {
                return Err(StoreError::NoBlock { segment, at });
            }
            let end = covered.entry(segment).or_default();
            *end = (*end).max(at + block.disk_bytes);
        }
        let entry = |(segment, covered)| {
            let generation = self.segments[&segment].generation;
            CoveredSegment { segment, generation, covered }
        };
        Ok(covered.into_iter().map(entry).collect())
    }

    /// Raises, durably, the lanes' floors: records up to these SSNs are unneeded, although a kept checkpoint may have
    /// them.
    ///
    /// Frees blocks below the floors that are referenced only by checkpoints; a recovery leaves them out of the image.
    ///
    /// # Errors
    /// [`StoreError::Options`] if a lane isn't a rank in the job; [`StoreError::Failed`].
    pub fn raise_floors(&mut self, floors: &[(Rank, Ssn)]) -> Result<(), StoreError> {
        self.check_writable()?;
        let mut manifest = self.manifest.clone();
        for &(lane, ssn) in floors {
            if lane.0 >= self.options.ranks {
                return Err(StoreError::Options(format!("a floor of {lane}, which the job doesn't have")));
            }
            let floor = manifest.floors.entry(lane).or_default();
            *floor = ssn.max(*floor);
        }
        drop_floors(&mut manifest, self.kept.iter());
        if manifest.floors == self.manifest.floors {
            return Ok(());
        }
        self.commit_manifest(manifest)?;
        let mut freed = Vec::new();
        for kept in &mut self.kept {
            freed.append(&mut kept.take_below(&self.manifest.floors));
        }
        self.release(places(&freed), |stored| stored.checkpoints -= 1);
        Ok(())
    }

    /// Discards, durably, the checkpoints beginning epochs before `epoch`, except the newest checkpoint, and frees the
    /// blocks needed only by them.
    ///
    /// # Errors
    /// [`StoreError::Failed`].
    pub fn discard_before(&mut self, epoch: Epoch) -> Result<(), StoreError> {
        self.check_writable()?;
        let earlier = self.kept.partition_point(|kept| kept.entry.epoch < epoch);
        let earlier = earlier.min(self.kept.len().saturating_sub(1));
        if earlier == 0 {
            return Ok(());
        }
        let mut manifest = self.manifest.clone();
        manifest.kept.drain(..earlier);
        drop_floors(&mut manifest, self.kept[earlier..].iter());
        self.commit_manifest(manifest)?;
        let old: Vec<Kept> = self.kept.drain(..earlier).collect();
        self.drop_checkpoints(old);
        Ok(())
    }

    /// Discards, durably, everything after the checkpoint beginning `epoch`: later checkpoints, blocks not referenced
    /// by it, and later local log entries.
    ///
    /// Returns the newest remaining checkpoint. The caller must rebuild the live index from it: the store assumes that
    /// the index has just these blocks.
    ///
    /// # Errors
    /// [`StoreError::Failed`]; [`StoreError::Damaged`], [`StoreError::Io`] if the checkpoint can't be read.
    pub fn discard_beyond(&mut self, epoch: Epoch) -> Result<Option<CheckpointImage>, StoreError> {
        self.check_writable()?;
        let left = self.kept.partition_point(|kept| kept.entry.epoch <= epoch);
        let image = match self.kept[..left].last() {
            Some(kept) => Some(self.image(kept.entry.epoch)?),
            None => None,
        };
        // A new session: a recovery ignores this one's local log blocks. New blocks go to a new segment.
        let mut manifest = self.manifest.clone();
        manifest.session += 1;
        manifest.tail_session = manifest.session;
        manifest.kept.truncate(left);
        drop_floors(&mut manifest, self.kept[..left].iter());
        self.commit_manifest(manifest)?;
        self.active = None;
        self.local.clear();
        self.local_last = Ssn::ZERO;
        let live: BTreeSet<(u32, u64)> = image
            .iter()
            .flat_map(|image| &image.lanes)
            .flat_map(|lane| &lane.blocks)
            .map(|b| (b.segment, b.at))
            .collect();
        for (&number, segment) in &mut self.segments {
            let places: Vec<u64> = segment.blocks.iter().map(|stored| stored.at).collect();
            for at in places {
                segment.change(at, |stored| stored.is_live = live.contains(&(number, at)));
            }
        }
        let old = self.kept.split_off(left);
        self.drop_checkpoints(old);
        let numbers: Vec<u32> = self.segments.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.seal(number));
        Ok(image)
    }
}

/// Returns block locations: segment and offset.
fn places(blocks: &[Block]) -> impl Iterator<Item = (u32, u64)> {
    blocks.iter().map(|block| (block.segment, block.at))
}

impl Kept {
    /// Removes and returns the blocks made unnecessary by raised floors.
    pub(super) fn take_below(&mut self, floors: &BTreeMap<Rank, Ssn>) -> Vec<Block> {
        let covered = &self.covered;
        let is_below = |block: &mut Block| {
            let floor = floors.get(&block.lane).filter(|floor| covered.get(&block.lane).is_some_and(|of| of < floor));
            floor.is_some_and(|floor| block.last <= *floor)
        };
        self.blocks.extract_if(.., is_below).collect()
    }
}

/// Drops the floors reached by every kept checkpoint.
fn drop_floors<'a>(manifest: &mut Manifest, kept: impl Iterator<Item = &'a Kept> + Clone) {
    manifest
        .floors
        .retain(|lane, floor| kept.clone().any(|kept| kept.covered.get(lane).is_some_and(|covered| *covered < *floor)));
}
