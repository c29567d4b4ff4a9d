//! What a rank's log says where the rank left no profile: the messages that are still in it, and nothing of time.

use std::collections::BTreeMap;
use std::path::Path;

use counterfoil::store::{
    BackendChoice, Block, BlockBuffer, Directory, DirectoryAccess, DirectoryError, LOCAL, StoreError, StoreView, scan,
};
use counterfoil::{Rank, Ssn};
use counterfoil_profile::job::TAKEN_OVER;
use counterfoil_profile::{Channel, RANKS_MAX, RecordTag, Sizes};

/// What is in a log.
#[derive(Debug, Default)]
pub(super) struct LogPart {
    /// Messages, by destination.
    pub(super) logged: Vec<Channel>,
    /// How long they are.
    pub(super) sizes: Sizes,
    /// Records of what the rank gave to collective operations.
    pub(super) contributions: u64,
    /// Whether there is a checkpoint: without one there is only what was moved to disk.
    pub(super) has_checkpoint: bool,
    /// Whether the command took it over from shared memory.
    pub(super) is_taken_over: bool,
}

/// Reads a rank's log; says why where that can't be done.
pub(super) fn read(dir: &Path) -> Result<LogPart, String> {
    let says = |error: &dyn std::error::Error| format!("it left no profile, and its log can't be read: {error}");
    let opening = |error: StoreError| match error {
        StoreError::Missing => "it left no profile, and its log had not begun on disk".to_owned(),
        error => says(&error),
    };
    let open = |access| Directory::open(dir, BackendChoice::Pwrite, access).map(|(backend, _)| backend);
    let backend = match open(DirectoryAccess::ReadOnly) {
        // A living process has it.
        Err(DirectoryError::Locked { .. }) => open(DirectoryAccess::Look),
        other => other,
    };
    let mut backend = backend.map_err(|error| says(&error))?;
    let report = scan(&mut *backend, &mut |_, _| {}).map_err(opening)?;
    let mut counting = Counting::default();
    let newest = match StoreView::new(&mut *backend) {
        Ok(mut view) => {
            let epoch = view.checkpoints().last().copied();
            epoch.map(|epoch| view.image(epoch)).transpose().map_err(|error| says(&error))?
        }
        Err(_) => None,
    };
    counting.part.has_checkpoint = newest.is_some();
    counting.part.is_taken_over = newest.iter().flat_map(|image| &image.tables).any(|(name, _)| name == TAKEN_OVER);
    // Without a checkpoint, and where nothing says which one counts: all blocks that there are.
    let mut view = StoreView::of_blocks(&mut *backend);
    match newest {
        Some(image) => {
            for lane in &image.lanes {
                // Where two blocks overlap, the later one counts.
                let mut end = lane.next;
                let mut parts: Vec<(&Block, Ssn)> = Vec::new();
                for block in lane.blocks.iter().rev() {
                    parts.push((block, end));
                    end = end.min(block.first);
                }
                for (block, end) in parts.into_iter().rev() {
                    counting.add(&mut view, block, end).map_err(|error| says(&error))?;
                }
            }
        }
        None => {
            for found in report.segments.iter().flat_map(|segment| &segment.blocks) {
                counting.add(&mut view, &found.block, Ssn::MAX).map_err(|error| says(&error))?;
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
    /// Counts the records of a block below an SSN.
    fn add(&mut self, view: &mut StoreView<'_>, block: &Block, end: Ssn) -> Result<(), StoreError> {
        let Rank(peer) = block.lane;
        if block.lane == LOCAL || peer >= RANKS_MAX {
            return Ok(());
        }
        view.read(block, &mut self.buffer)?;
        for record in self.buffer.records().filter(|record| record.ssn() < end) {
            if RecordTag::of_record(record.prefix()).is_some_and(RecordTag::is_contribution) {
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
