//! Looking at a store without opening it: what is in it, and what is wrong with it.

mod given_up;
mod repair;
mod segment;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use counterfoil_log_core::{Epoch, Rank, Ssn};

use crate::checkpoint_file::{self, Application, Context, checkpoint_name};
use crate::manifest::{FoundManifest, KeptCheckpoint, MANIFEST, Manifest, SlotState, no_manifest};
use crate::segment::{file_number, segment_name};
use crate::{Block, CheckpointImage, ReadAt, StorageBackend, StoreError, strays};
use segment::{BlockList, scan_segment};

pub use given_up::{Bound, GivenUp};
pub use repair::{Repair, repair};
pub use view::StoreView;

/// Blocks that a report lists; the others are only counted.
const BLOCKS_MAX: usize = 1 << 16;

/// What is in a store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The manifest's two slots.
    pub slots: [SlotState; 2],
    /// What the newest whole slot says; `None` where neither is whole.
    pub manifest: Option<ManifestReport>,
    /// The checkpoint files that count, oldest first.
    pub checkpoints: Vec<CheckpointReport>,
    /// The segments, by number.
    pub segments: Vec<SegmentReport>,
    /// Checkpoint files that don't count, and segments that nobody refers to: the next opening removes these, but for entries
    /// of the local log that it takes up. Empty where no slot of the manifest is whole, and without segments where a checkpoint
    /// that counts can't be read: nobody knows then.
    pub left_over: Vec<String>,
    /// Entries that have the name of one of the store's files and are none: the name, and what it is ("a symbolic link"). They
    /// are passed over; who opens the store to write is refused.
    pub not_files: Vec<(String, &'static str)>,
    /// Blocks that are not in the segments' lists, because these would get too long.
    pub blocks_left_out: u64,
}

/// What the manifest says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ManifestReport {
    /// Whose store it is.
    pub rank: Rank,
    /// Ranks of the job.
    pub ranks: u32,
    /// Counts the changes of the manifest.
    pub sequence: u64,
    /// Counts the openings, and the times that checkpoints were discarded.
    pub session: u64,
    /// Nothing up to here is needed, although a kept checkpoint may have it.
    pub floors: Vec<(Rank, Ssn)>,
}

/// A checkpoint file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// The file's name.
    pub file: String,
    /// The epoch that it begins.
    pub epoch: Epoch,
    /// Its length in bytes.
    pub bytes: u64,
    /// Lanes, blocks and entries of the local log that it has; what is wrong where it can't be read.
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
    /// The session that wrote it; what is wrong where its header can't be read.
    pub session: Result<u64, String>,
    /// The end of the last block that a kept checkpoint refers to; 0 where none does.
    pub covered: u64,
    /// Its blocks, in their order.
    pub blocks: Vec<BlockReport>,
    /// How it ends.
    pub tail: Tail,
    /// The end of the last whole block.
    pub end: u64,
    /// Beyond what is covered: where there is something else than whole blocks and zeros, as (place, bytes). At most 1,024.
    pub torn: Vec<(u64, u64)>,
}

/// A block.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockReport {
    /// Which block.
    pub block: Block,
    /// Whether a kept checkpoint refers to it.
    pub is_referenced: bool,
    /// What is wrong with it.
    pub damage: Option<&'static str>,
}

/// How a segment ends, and whether what checkpoints refer to is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Whole blocks, then zeros or the end of the file.
    Clean,
    /// Behind what checkpoints refer to, a write was cut off here. Nothing is lost that was durable for sure.
    Torn {
        /// Where in the segment.
        at: u64,
    },
    /// A block that a kept checkpoint refers to isn't whole: the store can't be opened before it is repaired.
    Damaged {
        /// Where in the segment.
        at: u64,
    },
}

impl Report {
    /// Whether the store can be opened as it is.
    pub fn is_whole(&self) -> bool {
        self.manifest.is_some()
            && self.checkpoints.iter().all(|checkpoint| checkpoint.contents.is_ok())
            && !self.segments.iter().any(|segment| matches!(segment.tail, Tail::Damaged { .. }))
    }
}

/// What was found, and what a repair needs of it.
struct Scan {
    report: Report,
    manifest: Option<Manifest>,
    /// The names of the store's files.
    names: Vec<String>,
    /// The kept checkpoints that can be read, oldest first.
    images: Vec<(KeptCheckpoint, CheckpointImage, Context)>,
}

/// Looks at everything in a store, and changes nothing. `progress` is told how many bytes were looked at, and of how many.
///
/// Works on damaged stores and on any directory. The memory that it needs is bounded by a checkpoint file without the
/// program's own bytes, the largest block, and a list of 65,536 blocks.
///
/// # Errors
/// [`StoreError::Io`]; [`StoreError::Missing`] where there is no manifest.
pub fn scan(backend: &mut dyn StorageBackend, progress: &mut dyn FnMut(u64, u64)) -> Result<Report, StoreError> {
    Scan::new(backend, progress).map(|scan| scan.report)
}

impl Scan {
    fn new(backend: &mut dyn StorageBackend, progress: &mut dyn FnMut(u64, u64)) -> Result<Scan, StoreError> {
        let (names, strays) = strays::names(backend)?;
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
            not_files: strays,
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
        let files: BTreeSet<u32> = names.iter().filter_map(|name| file_number(name, "segment")).collect();
        // Opened one at a time: a store may have more segments than a process may have files open.
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
            // A checkpoint that can't be read may refer to it.
            if blocks.is_empty() && newest.as_ref().is_some_and(|manifest| manifest.kept.len() == images.len()) {
                report.left_over.push(segment_name(number));
            }
            let mut list = BlockList { blocks: Vec::new(), room: &mut room, left_out: &mut report.blocks_left_out };
            let mut inside = |at: u64| progress(done + at.min(bytes), total);
            let segment = scan_segment(number, file.as_deref(), bytes, &blocks, &mut list, &mut inside)?;
            report.segments.push(segment);
            done += bytes;
            progress(done, total);
        }
        let counts = |name: &&String| {
            file_number(name, "checkpoint").is_some() && !report.checkpoints.iter().any(|kept| kept.file == **name)
        };
        if newest.is_some() {
            report.left_over.extend(names.iter().filter(counts).cloned());
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
