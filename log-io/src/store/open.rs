//! Opening a store: recovery.

use std::collections::{BTreeMap, BTreeSet};

use counterfoil_log_core::{Epoch, Ssn};

use super::{Store, apply_floors, random_seed};
use crate::format::FIRST_BLOCK;
use crate::format::block::LOCAL;
use crate::format::checkpoint_file::{self, Application, CoveredSegment};
use crate::format::manifest::{FoundManifest, slot_bytes};
use crate::format::names::{MANIFEST, RESERVE, checkpoint_name, file_number, segment_name};
use crate::format::segment::{Found, Segment, SegmentHeader, SegmentWalk};
use crate::read::reader::OpenSegment;
use crate::store::listing;
use crate::{
    Access, Block, BlockBuffer, BlockCursor, CheckpointImage, LocalImage, StorageBackend, StoreError, StoreOptions,
};

/// Segment file headers, or their read errors, by number.
type Headers = BTreeMap<u32, Result<SegmentHeader, StoreError>>;

/// A recovered local log block.
struct LocalBlock {
    session: u64,
    block: Block,
    entries: Vec<LocalImage>,
}

impl Store {
    /// Opens a store, and returns the newest kept checkpoint.
    ///
    /// Reads and verifies every block referenced by a kept checkpoint. The image includes the local log entries
    /// appended since; if there are such entries and no checkpoint, the image has epoch 0. Returns `None` if the store
    /// is empty.
    ///
    /// [`Access::ReadWrite`] starts a new session and removes unreferenced files. The store assumes that the live index
    /// has just the blocks in the image.
    ///
    /// # Errors
    /// [`StoreError::Missing`]; [`StoreError::OtherRank`], [`StoreError::Version`], [`StoreError::Damaged`],
    /// [`StoreError::NotAFile`]: nothing was changed. [`StoreError::TooManyFiles`]; [`StoreError::DiskFull`],
    /// [`StoreError::Failed`], [`StoreError::Io`].
    pub fn open(
        mut backend: Box<dyn StorageBackend>,
        options: StoreOptions,
        access: Access,
    ) -> Result<(Store, Option<CheckpointImage>), StoreError> {
        options.validate()?;
        let names = listing::files_for(&mut *backend, access)?;
        if !names.iter().any(|name| name == MANIFEST) {
            return Err(StoreError::Missing);
        }
        let reader = backend.reader(MANIFEST).map_err(StoreError::io("open", MANIFEST))?;
        let found = FoundManifest::read(&*reader)?;
        let first_slot = found.first_to_write();
        let manifest = found.newest(&names)?;
        if (manifest.rank, manifest.ranks) != (options.rank, options.ranks) {
            return Err(StoreError::OtherRank { rank: manifest.rank.0, ranks: manifest.ranks });
        }
        if reader.len().map_err(StoreError::io("read the length of", MANIFEST))? != 2 * slot_bytes(manifest.ranks) {
            return Err(StoreError::damaged(MANIFEST, 0, "its length isn't that of two slots"));
        }
        let seed = options.seed.unwrap_or_else(random_seed);
        let mut store = Store::new(backend, options, access, manifest, seed);
        store.first_slot = first_slot;
        let numbers = names.iter().filter_map(|name| file_number(name, "segment").or(file_number(name, "checkpoint")));
        store.next_number = numbers.max().unwrap_or(0).saturating_add(1);
        let (image, covered) = store.load_checkpoints()?;
        let mut headers = store.load_headers(&names)?;
        store.load_segments(&mut headers, &covered)?;
        store.verify_blocks()?;
        let known = image.as_ref().and_then(|image| image.local.last()).map_or(Ssn::ZERO, |entry| entry.ssn);
        let (mut tail, tail_segments) = store.find_tail(&headers)?;
        tail.retain(|entry| entry.ssn > known);
        store.segments.values_mut().for_each(Segment::add_gaps);
        if access == Access::ReadWrite {
            store.begin_session(&names, &headers, &tail_segments)?;
        }
        let image = match image {
            None if tail.is_empty() => None,
            image => {
                let mut image = image.unwrap_or_default();
                image.local.append(&mut tail);
                Some(image)
            }
        };
        Ok((store, image))
    }

    /// [Opens](Self::open) the directory's store for writing, or [creates](Self::create) it if it doesn't exist or its
    /// creation wasn't finished.
    ///
    /// # Errors
    /// Errors of both.
    pub fn open_or_create(
        mut backend: Box<dyn StorageBackend>,
        options: StoreOptions,
    ) -> Result<(Store, Option<CheckpointImage>), StoreError> {
        let names = listing::files_for(&mut *backend, Access::ReadWrite)?;
        let mut begun = names.iter().any(|name| name == MANIFEST);
        if begun {
            let reader = backend.reader(MANIFEST).map_err(StoreError::io("open", MANIFEST))?;
            begun = !FoundManifest::read(&*reader)?.is_unfinished(&names);
        }
        if begun {
            Store::open(backend, options, Access::ReadWrite)
        } else {
            Ok((Store::create(backend, options)?, None))
        }
    }

    /// Reads the kept checkpoints.
    ///
    /// Returns the newest image, and the segments referenced by the checkpoints.
    fn load_checkpoints(&mut self) -> Result<(Option<CheckpointImage>, Vec<CoveredSegment>), StoreError> {
        let (mut newest, mut covered) = (None, Vec::new());
        let mut epoch = Epoch(0);
        let newest_number = self.manifest.kept.last().map(|entry| entry.number);
        for entry in self.manifest.kept.clone() {
            let name = checkpoint_name(entry.number);
            let file = self.backend.reader(&name).map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => {
                    StoreError::damaged(&name, 0, "the manifest has it, and it isn't there")
                }
                _ => StoreError::io("open", &name)(error),
            })?;
            let is_newest = newest_number == Some(entry.number);
            let application = if is_newest { Application::Read } else { Application::Verify };
            let (mut image, mut context) = checkpoint_file::decode(&*file, &entry, application)?;
            let of = (context.store, context.rank, context.ranks);
            if of != (self.manifest.store, self.manifest.rank, self.manifest.ranks) || image.epoch <= epoch {
                return Err(StoreError::damaged(&name, 0, "it isn't one of this store, or out of order"));
            }
            epoch = image.epoch;
            self.next_number = self.next_number.max(context.written.next_number);
            let mut kept = self.open_kept(entry, &image, &context)?;
            kept.take_below(&self.manifest.floors);
            self.kept.push(kept);
            apply_floors(&mut image, &self.manifest.floors);
            covered.append(&mut context.segments);
            newest = Some(image);
        }
        Ok((newest, covered))
    }

    fn load_headers(&mut self, names: &[String]) -> Result<Headers, StoreError> {
        let mut headers = Headers::new();
        for number in names.iter().filter_map(|name| file_number(name, "segment")) {
            let name = segment_name(number);
            let file = self.backend.reader(&name).map_err(StoreError::io("open", &name))?;
            let header = match SegmentHeader::read(&*file, number) {
                Err(error @ StoreError::Io { .. }) => return Err(error),
                Ok(header) if header.store.get() != self.manifest.store => {
                    Err(StoreError::damaged(&name, 16, "the segment is one of another store"))
                }
                header => header,
            };
            if let Ok(header) = &header {
                self.reader.insert(number, OpenSegment { file, generation: header.generation.get() });
            }
            headers.insert(number, header);
        }
        Ok(headers)
    }

    /// Registers the blocks referenced by checkpoints, and their segments.
    fn load_segments(&mut self, headers: &mut Headers, covered: &[CoveredSegment]) -> Result<(), StoreError> {
        let needed = self.kept.iter().flat_map(|kept| &kept.blocks).map(|block| block.segment);
        let needed: BTreeSet<u32> = needed.collect();
        for CoveredSegment { segment: number, generation, .. } in covered {
            if !needed.contains(number) {
                continue;
            }
            let name = segment_name(*number);
            if let Some(known) = self.segments.get(number) {
                if known.generation != *generation {
                    return Err(StoreError::damaged(&name, 32, "it isn't the segment that the checkpoint refers to"));
                }
                continue;
            }
            let header = match headers.get(number) {
                Some(Ok(header)) if header.generation.get() == *generation => *header,
                Some(Ok(_)) => {
                    return Err(StoreError::damaged(&name, 32, "it isn't the segment that the checkpoint refers to"));
                }
                Some(Err(_)) => {
                    let error = headers.remove(number).and_then(Result::err);
                    return Err(error.unwrap_or_else(|| StoreError::damaged(&name, 0, "the segment's header is wrong")));
                }
                None => return Err(StoreError::damaged(&name, 0, "a checkpoint refers to it, and it isn't there")),
            };
            let open = self.reader.segment(*number)?;
            let bytes = open.file.len().map_err(StoreError::io("read the length of", &name))?;
            self.segments.insert(*number, Segment::new(*generation, header.session.get(), bytes, FIRST_BLOCK));
        }
        for (index, kept) in self.kept.iter().enumerate() {
            let is_newest = index + 1 == self.kept.len();
            for block in &kept.blocks {
                let name = segment_name(block.segment);
                let Some(segment) = self.segments.get_mut(&block.segment) else {
                    return Err(StoreError::damaged(
                        &name,
                        block.at,
                        "a checkpoint refers to it without its generation",
                    ));
                };
                segment.add(block);
                segment.change(block.at, |stored| {
                    stored.checkpoints += 1;
                    stored.is_live |= is_newest;
                });
            }
        }
        Ok(())
    }

    fn verify_blocks(&mut self) -> Result<(), StoreError> {
        let mut blocks: Vec<Block> = self.kept.iter().flat_map(|kept| kept.blocks.iter().copied()).collect();
        blocks.sort_unstable_by_key(|block| (block.segment, block.at));
        blocks.dedup();
        let mut cursor = BlockCursor::new(self.reader(), blocks);
        let mut buffer = BlockBuffer::default();
        while cursor.next(&mut buffer)? {}
        Ok(())
    }

    /// Returns the local log entries appended after the newest checkpoint, in order, and their segments.
    ///
    /// Each block names the block that it follows. A session continues where the previous one ended, so a leftover
    /// block of an earlier session never follows one of a later session.
    fn find_tail(&mut self, headers: &Headers) -> Result<(Vec<LocalImage>, BTreeSet<u32>), StoreError> {
        let mut found = self.find_local_blocks(headers)?;
        let (mut tail, mut segments) = (Vec::new(), BTreeSet::new());
        let mut session = 0;
        while let Some(next) = found.remove(&self.local_last) {
            let Some(next) = next.into_iter().filter(|next| next.session >= session).min_by_key(|next| next.session)
            else {
                break;
            };
            let (number, at) = (next.block.segment, next.block.at);
            if !self.segments.contains_key(&number) {
                let open = self.reader.segment(number)?;
                let name = segment_name(number);
                let bytes = open.file.len().map_err(StoreError::io("read the length of", &name))?;
                self.segments.insert(number, Segment::new(open.generation, next.session, bytes, FIRST_BLOCK));
            }
            let segment = self.segments.get_mut(&number).expect("it was just put there");
            segment.add(&next.block);
            segment.change(at, |stored| stored.is_live = true);
            session = next.session;
            self.local.push((number, at));
            self.local_last = next.block.last;
            segments.insert(number);
            tail.extend(next.entries);
        }
        Ok((tail, segments))
    }

    /// Returns the whole local log blocks written after the newest checkpoint, by the SSN that they follow.
    fn find_local_blocks(&self, headers: &Headers) -> Result<BTreeMap<Ssn, Vec<LocalBlock>>, StoreError> {
        let newest = self.kept.last();
        let mut found: BTreeMap<Ssn, Vec<LocalBlock>> = BTreeMap::new();
        let mut buffer = BlockBuffer::default();
        for (&number, header) in headers {
            let Ok(header) = header else { continue };
            let session = header.session.get();
            let from = match newest.filter(|newest| newest.session == session).map(|newest| newest.written) {
                _ if session < self.manifest.tail_session || session > self.manifest.session => continue,
                Some(written) if number == written.segment => written.end,
                Some(written) if number < written.next_number => continue,
                _ => FIRST_BLOCK,
            };
            let open = self.reader.segment(number)?;
            let mut walk = SegmentWalk::new(&*open.file, *header, from)?;
            while let Some(next) = walk.next()? {
                let Found::Block(block) = next else { continue };
                if block.lane.get() != LOCAL.0 || block.first.get() <= block.after.get() {
                    continue;
                }
                match walk.read(&block, &mut buffer) {
                    Ok(()) => {}
                    // Torn by a power cut before it was synced.
                    Err(StoreError::Damaged { .. }) => continue,
                    Err(error) => return Err(error),
                }
                let entries: Option<Vec<_>> = buffer.records().map(|record| LocalImage::from_record(&record)).collect();
                let Some(entries) = entries else { continue };
                let after = Ssn(block.after.get());
                found.entry(after).or_default().push(LocalBlock { session, block: block.block(), entries });
            }
        }
        Ok(found)
    }

    /// Starts a new session: changes the manifest, and removes unreferenced files.
    ///
    /// Needs no free space on disk.
    fn begin_session(&mut self, names: &[String], headers: &Headers, tail: &BTreeSet<u32>) -> Result<(), StoreError> {
        if names.iter().any(|name| name == RESERVE) {
            let reader = self.backend.reader(RESERVE).map_err(StoreError::io("open", RESERVE))?;
            self.reserve_bytes = reader.len().map_err(StoreError::io("read the length of", RESERVE))?;
        }
        // After a process ended, its unsynced writes can still be read. They are synced, because the new session
        // depends on them.
        for &number in tail {
            let name = segment_name(number);
            let file = self.backend.open(&name).map_err(StoreError::io("open", &name))?;
            self.sync_file(file, &name)?;
            self.backend.close(file);
        }
        if !tail.is_empty() {
            self.sync_dir()?;
        }
        // A session with an unwritten manifest may have left segments: its number isn't reused.
        let sessions = headers.values().filter_map(|header| header.as_ref().ok()).map(|header| header.session.get());
        let mut manifest = self.manifest.clone();
        manifest.session = sessions.max().unwrap_or(0).max(manifest.session) + 1;
        self.commit_manifest(manifest)?;
        for name in names {
            let is_left_over = file_number(name, "segment").is_some_and(|number| !self.segments.contains_key(&number))
                || file_number(name, "checkpoint")
                    .is_some_and(|number| !self.kept.iter().any(|kept| kept.entry.number == number));
            if is_left_over {
                // If it can't be removed now, the next opening tries again.
                let _ = self.backend.remove(name);
                file_number(name, "segment").into_iter().for_each(|number| self.reader.remove(number));
            }
        }
        self.trim_old_segments();
        self.make_reserve_if_possible();
        Ok(())
    }

    /// Truncates segments from earlier sessions after their last block, and punches mostly dead ones.
    fn trim_old_segments(&mut self) {
        let session = self.manifest.session;
        let old: Vec<u32> =
            self.segments.iter().filter(|(_, of)| of.session < session).map(|(&number, _)| number).collect();
        for number in old {
            let segment = &self.segments[&number];
            let (bytes, end) = (segment.bytes, segment.end);
            if end < bytes {
                let Ok(file) = self.backend.open(&segment_name(number)) else { continue };
                if self.backend.truncate(file, end).is_ok() {
                    self.segments.get_mut(&number).expect("it is in the list").bytes = end;
                }
                self.backend.close(file);
            }
            self.reclaim(number);
        }
    }
}
