//! Inspection of a store without opening it: its contents and its damage.

mod loss;
mod repair;
mod segment;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use counterfoil_log_core::{Epoch, Rank, Ssn};

use crate::format::checkpoint_file::{self, Application, Context};
use crate::format::manifest::{FoundManifest, KeptCheckpoint, Manifest, SlotState, no_manifest};
use crate::format::names::{MANIFEST, checkpoint_name, file_number, segment_name};
use crate::store::listing;
use crate::{Block, CheckpointImage, ReadAt, StorageBackend, StoreError};
use segment::{BlockList, scan_segment};

pub use loss::{Bound, Loss};
pub use repair::{Repair, repair};
pub use view::StoreView;

/// Maximum blocks listed in a report; the others are only counted.
const BLOCKS_MAX: usize = 1 << 16;

/// The contents and the state of a store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The manifest's two slots.
    pub slots: [SlotState; 2],
    /// The newest whole slot; `None` if neither is whole.
    pub manifest: Option<ManifestReport>,
    /// The valid checkpoint files, oldest first.
    pub checkpoints: Vec<CheckpointReport>,
    /// The segments, by number.
    pub segments: Vec<SegmentReport>,
    /// Invalid checkpoint files, and segments without references from checkpoints.
    ///
    /// The next opening removes them, except segments with local log entries that it recovers. Empty if no manifest
    /// slot is whole, and without segments if a valid checkpoint can't be read, because they may be needed.
    pub left_over: Vec<String>,
    /// Entries with a store file's name that aren't regular files: name and type ("a symbolic link").
    ///
    /// The scan ignores them; opening the store for writing fails.
    pub not_files: Vec<(String, &'static str)>,
    /// Number of blocks omitted from the segments' lists, because they would get too long.
    pub blocks_left_out: u64,
}

/// The manifest contents.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ManifestReport {
    /// The store's rank.
    pub rank: Rank,
    /// Number of ranks in the job.
    pub ranks: u32,
    /// Number of manifest changes.
    pub sequence: u64,
    /// Number of sessions: openings for writing, and checkpoint discards.
    pub session: u64,
    /// For each lane, the SSN up to which records are unneeded, although a kept checkpoint may have them.
    pub floors: Vec<(Rank, Ssn)>,
}

/// A checkpoint file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// The file's name.
    pub file: String,
    /// The epoch begun by it.
    pub epoch: Epoch,
    /// Its length in bytes.
    pub bytes: u64,
    /// Numbers of its lanes, blocks and local log entries, or the read error.
    pub contents: Result<(usize, usize, usize), String>,
}

/// A segment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SegmentReport {
    /// The file's name.
    pub file: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// The session in which it was written, or the error reading the header.
    pub session: Result<u64, String>,
    /// End of the last block referenced by a kept checkpoint; 0 for none.
    pub covered: u64,
    /// Its blocks, by offset.
    pub blocks: Vec<BlockReport>,
    /// State of its end.
    pub tail: Tail,
    /// End of the last whole block.
    pub end: u64,
    /// Ranges (offset, bytes) after `covered`, neither whole blocks nor zeros.
    ///
    /// At most 1,024.
    pub torn: Vec<(u64, u64)>,
}

/// A block.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockReport {
    /// The block's entry.
    pub block: Block,
    /// True if a kept checkpoint refers to it.
    pub is_referenced: bool,
    /// Its damage, if any.
    pub damage: Option<&'static str>,
}

/// State of a segment's end, and of the blocks referenced by checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Whole blocks, then zeros or the end of the file.
    Clean,
    /// A torn write after the blocks referenced by checkpoints.
    ///
    /// No durable data is lost.
    Torn {
        /// Offset in the segment, in bytes.
        at: u64,
    },
    /// A block referenced by a kept checkpoint is damaged: the store can't be opened before a repair.
    Damaged {
        /// Offset in the segment, in bytes.
        at: u64,
    },
}

impl Report {
    /// Returns `true` if the store can be opened without a repair.
    pub fn is_whole(&self) -> bool {
        self.manifest.is_some()
            && self.checkpoints.iter().all(|checkpoint| checkpoint.contents.is_ok())
            && !self.segments.iter().any(|segment| matches!(segment.tail, Tail::Damaged { .. }))
    }
}

/// A report, with the data for a repair.
struct Scan {
    report: Report,
    manifest: Option<Manifest>,
    /// The store's file names.
    names: Vec<String>,
    /// The readable kept checkpoints, oldest first.
    images: Vec<(KeptCheckpoint, CheckpointImage, Context)>,
}

/// Verifies everything in a store, and changes nothing.
///
/// Calls `progress` with the bytes read so far and their total.
///
/// Works on damaged stores and on any directory. Its memory use is bounded by a checkpoint file without the program's
/// own bytes, the largest block, and a 65,536-block list.
///
/// # Errors
/// [`StoreError::Io`]; [`StoreError::Missing`] if there is no manifest.
pub fn scan(backend: &mut dyn StorageBackend, progress: &mut dyn FnMut(u64, u64)) -> Result<Report, StoreError> {
    Scan::new(backend, progress).map(|scan| scan.report)
}

impl Scan {
    fn new(backend: &mut dyn StorageBackend, progress: &mut dyn FnMut(u64, u64)) -> Result<Scan, StoreError> {
        let (names, not_files) = listing::list(backend)?;
        if !names.iter().any(|name| name == MANIFEST) {
            return Err(StoreError::Missing);
        }
        let FoundManifest { slots, newest } = FoundManifest::read(&*open(backend, MANIFEST)?)?;
        let no_manifest = no_manifest(slots, &names);
        if newest.is_none() && matches!(no_manifest, StoreError::Missing) {
            return Err(no_manifest);
        }
        let mut report = Report {
            slots,
            manifest: newest.as_ref().map(ManifestReport::new),
            checkpoints: Vec::new(),
            segments: Vec::new(),
            left_over: Vec::new(),
            not_files,
            blocks_left_out: 0,
        };
        let mut images = Vec::new();
        for entry in newest.iter().flat_map(|manifest| &manifest.kept) {
            let file = checkpoint_name(entry.number);
            let reader = match report.not_files.iter().find(|(name, _)| *name == file) {
                Some((_, what)) => Err(StoreError::NotAFile { file: file.clone(), what }),
                None => open(backend, &file),
            };
            let decoded = reader.and_then(|reader| checkpoint_file::decode(&*reader, entry, Application::Verify));
            let contents = match decoded {
                Ok((mut image, context)) => {
                    if let Some(manifest) = &newest {
                        crate::store::apply_floors(&mut image, &manifest.floors);
                    }
                    let blocks = image.lanes.iter().map(|lane| lane.blocks.len()).sum();
                    let counts = (image.lanes.len(), blocks, image.local.len());
                    images.push((*entry, image, context));
                    Ok(counts)
                }
                Err(error) => Err(error.finding()),
            };
            report.checkpoints.push(CheckpointReport { file, epoch: entry.epoch, bytes: entry.bytes, contents });
        }
        let mut referenced: BTreeMap<u32, Vec<Block>> = BTreeMap::new();
        for block in images.iter().flat_map(|(_, image, _)| &image.lanes).flat_map(|lane| &lane.blocks) {
            referenced.entry(block.segment).or_default().push(*block);
        }
        let covered = images.iter().flat_map(|(_, _, context)| &context.segments);
        let generations: BTreeMap<u32, u64> = covered.map(|covered| (covered.segment, covered.generation)).collect();
        let files: BTreeSet<u32> = names.iter().filter_map(|name| file_number(name, "segment")).collect();
        // Opened one at a time: a store may have more segments than the process may have open files.
        let open_segment = |backend: &mut dyn StorageBackend, number: u32| match files.contains(&number) {
            true => open(backend, &segment_name(number)).map(Some),
            false => Ok(None),
        };
        let mut sizes = Vec::new();
        for &number in files.iter().chain(referenced.keys().filter(|number| !files.contains(number))) {
            let file = open_segment(backend, number)?;
            let bytes = file.map_or(Ok(0), |file| file.len());
            sizes.push((number, bytes.map_err(StoreError::io("read the length of", &segment_name(number)))?));
        }
        let total = sizes.iter().map(|(_, bytes)| bytes).sum();
        let (mut done, mut room) = (0, BLOCKS_MAX);
        for (number, bytes) in sizes {
            let file = open_segment(backend, number)?;
            let mut blocks = referenced.remove(&number).unwrap_or_default();
            blocks.sort_unstable_by_key(|block| block.at);
            blocks.dedup();
            // An unreadable checkpoint may refer to the segment.
            if blocks.is_empty() && newest.as_ref().is_some_and(|manifest| manifest.kept.len() == images.len()) {
                report.left_over.push(segment_name(number));
            }
            let mut list = BlockList { blocks: Vec::new(), room: &mut room, left_out: &mut report.blocks_left_out };
            let mut inside = |at: u64| progress(done + at.min(bytes), total);
            let generation = generations.get(&number).copied().filter(|_| !blocks.is_empty());
            let expected = (number, generation);
            let segment = scan_segment(expected, file.as_deref(), bytes, &blocks, &mut list, &mut inside)?;
            report.segments.push(segment);
            done += bytes;
            progress(done, total);
        }
        let is_invalid = |name: &&String| {
            file_number(name, "checkpoint").is_some() && !report.checkpoints.iter().any(|kept| kept.file == **name)
        };
        if newest.is_some() {
            report.left_over.extend(names.iter().filter(is_invalid).cloned());
        }
        Ok(Scan { report, manifest: newest, names, images })
    }
}

impl ManifestReport {
    fn new(manifest: &Manifest) -> ManifestReport {
        ManifestReport {
            rank: manifest.rank,
            ranks: manifest.ranks,
            sequence: manifest.sequence,
            session: manifest.session,
            floors: manifest.floors.iter().map(|(&lane, &ssn)| (lane, ssn)).collect(),
        }
    }
}

fn open(backend: &mut dyn StorageBackend, name: &str) -> Result<std::sync::Arc<dyn ReadAt>, StoreError> {
    backend.reader(name).map_err(StoreError::io("open", name))
}
