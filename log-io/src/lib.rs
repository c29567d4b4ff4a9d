//! Counterfoil's durable tier: spilled records, checkpoints, and recovery after a power cut.
//!
//! A rank's [`Store`] is a private directory of *segments*. A segment holds *blocks*: checksummed runs of one lane's
//! records in SSN order. A checkpoint is a block index with everything else needed for recovery; a manifest with two
//! slots lists the valid checkpoints. The files are reached through a [`StorageBackend`]: io_uring or pwrite, and in
//! tests a simulated disk, which loses any subset of the unsynced bytes.
#![warn(missing_docs)]

mod backend;
mod error;
mod format;
mod options;
mod read;
mod scan;
mod store;

pub use backend::buffer::{Buffer, PAGE_BYTES};
pub use backend::choice::{BackendChoice, BackendOptions, Probe, ProbeError};
pub use backend::directory::{Directory, DirectoryAccess, DirectoryError};
pub use backend::vectored_write::chunk_writes_max;
pub use backend::{BackendKind, FileId, ReadAt, StorageBackend};
pub use error::StoreError;
pub use format::FORMAT_VERSION;
pub use format::block::{Block, LOCAL, RecordSource};
pub use format::block_buffer::BlockBuffer;
pub use format::chunk_table::RecordPlace;
pub use format::image::{CheckpointImage, LaneImage, LocalImage, LocalSource};
pub use format::manifest::SlotState;
pub use options::{Access, StoreOptions};
pub use read::block_cursor::BlockCursor;
pub use read::read_ahead::{Extent, ReadAhead, ReadAheadOptions};
pub use read::reader::StoreReader;
pub use scan::{
    BlockReport, Bound, CheckpointReport, Loss, ManifestReport, Repair, Report, SegmentReport, StoreView, Tail, repair,
    scan,
};
pub use store::lane_source::LaneSource;
pub use store::{DiskUsage, Store};
