//! Figures for a rank without a profile, from the messages remaining in its log.

use std::collections::BTreeMap;
use std::path::Path;

use counterfoil::{Rank, Ssn};
use counterfoil_log_io::{
    BackendChoice, Block, BlockBuffer, Directory, DirectoryAccess, DirectoryError, LOCAL, StoreError, StoreView, scan,
};
use counterfoil_profile::job::TAKEN_OVER;
use counterfoil_profile::{Channel, RANKS_MAX, RecordTag, Sizes};

/// Log contents.
#[derive(Debug, Default)]
pub(super) struct LogPart {
    /// Messages per destination.
    pub(super) logged: Vec<Channel>,
    /// Message sizes.
    pub(super) sizes: Sizes,
    /// Number of contributions to collective operations.
    pub(super) contributions: u64,
    /// True if there is a checkpoint; otherwise only spilled records are counted.
    pub(super) has_checkpoint: bool,
    /// True if a running process has the log open.
    pub(super) is_in_use: bool,
    /// True if `counterfoil run` took the log over from shared memory.
    pub(super) is_taken_over: bool,
}

/// Reads a rank's log.
///
/// # Errors
/// A description of the read error.
pub(super) fn read(dir: &Path) -> Result<LogPart, String> {
    let unreadable = |error: &dyn std::error::Error| format!("no profile, and its log can't be read: {error}");
    let opening = |error: StoreError| match error {
        StoreError::Missing => "no profile, and no log on disk yet".to_owned(),
        error => unreadable(&error),
    };
    let open = |access| Directory::open(dir, BackendChoice::Pwrite, access).map(|(backend, _)| backend);
    let (backend, is_in_use) = match open(DirectoryAccess::ReadOnly) {
        Err(DirectoryError::Locked { .. }) => (open(DirectoryAccess::Inspect), true),
        other => (other, false),
    };
    let mut backend = backend.map_err(|error| unreadable(&error))?;
    let report = scan(&mut *backend, &mut |_, _| {}).map_err(opening)?;
    let mut counting = Counting::default();
    let newest = match StoreView::new(&mut *backend) {
        Ok(mut view) => {
            let epoch = view.checkpoints().last().copied();
            epoch.map(|epoch| view.image(epoch)).transpose().map_err(|error| unreadable(&error))?
        }
        Err(_) => None,
    };
    counting.part.is_in_use = is_in_use;
    counting.part.has_checkpoint = newest.is_some();
    counting.part.is_taken_over = newest.iter().flat_map(|image| &image.tables).any(|(name, _)| name == TAKEN_OVER);
    // Without a checkpoint, or without a valid manifest, count all blocks.
    let mut view = StoreView::of_blocks(&mut *backend);
    match newest {
        Some(image) => {
            for lane in &image.lanes {
                // In overlapping blocks the later one counts.
                let mut end = lane.next;
                let mut parts: Vec<(&Block, Ssn)> = Vec::new();
                for block in lane.blocks.iter().rev() {
                    parts.push((block, end));
                    end = end.min(block.first);
                }
                for (block, end) in parts.into_iter().rev() {
                    counting.add(&mut view, block, end).map_err(|error| unreadable(&error))?;
                }
            }
        }
        None => {
            for found in report.segments.iter().flat_map(|segment| &segment.blocks) {
                counting.add(&mut view, &found.block, Ssn::MAX).map_err(|error| unreadable(&error))?;
            }
        }
    }
    Ok(counting.finish())
}

#[derive(Debug, Default)]
struct Counting {
    logged: BTreeMap<u32, Channel>,
    part: LogPart,
    buffer: BlockBuffer,
}

impl Counting {
    /// Counts a block's records with an SSN less than `end`.
    fn add(&mut self, view: &mut StoreView<'_>, block: &Block, end: Ssn) -> Result<(), StoreError> {
        let Rank(peer) = block.lane;
        if block.lane == LOCAL || peer >= RANKS_MAX {
            return Ok(());
        }
        view.read(block, &mut self.buffer)?;
        for record in self.buffer.records().filter(|record| record.ssn() < end) {
            if RecordTag::from_prefix(record.prefix()).is_some_and(RecordTag::is_contribution) {
                self.part.contributions += 1;
                continue;
            }
            let bytes = record.payload().len() as u64;
            let channel = self.logged.entry(peer).or_insert(Channel { peer, messages: 0, bytes: 0 });
            channel.messages += 1;
            channel.bytes += bytes;
            self.part.sizes.add(bytes);
        }
        Ok(())
    }

    fn finish(mut self) -> LogPart {
        self.part.logged = self.logged.into_values().collect();
        self.part
    }
}
