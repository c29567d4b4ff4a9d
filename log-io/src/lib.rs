//! Counterfoil's durable tier: spilled records, checkpoints, and recovery after a power cut.
//!
//! A rank's [`Store`] is a private directory of *segments*. A segment holds *blocks*: runs of records of one lane in SSN
//! order, checksummed. A checkpoint is an index of blocks with everything else that a recovery needs; a manifest of two
//! slots lists the valid checkpoints. The files are reached through a [`StorageBackend`]: io_uring or pwrite, and in tests a simulated disk
//! that loses any subset of the bytes that were not synced.
#![warn(missing_docs)]

mod backend;
mod block;
mod block_buffer;
mod block_cursor;
mod buffer;
mod buffer_pool;
mod checkpoint_file;
mod chunk_table;
mod demote;
mod directory;
mod error;
mod fields;
mod file_reader;
mod files;
mod image;
mod lane_source;
mod listing;
mod manifest;
#[cfg(test)]
mod memory_file;
mod options;
mod pieces;
mod preallocate;
mod prefetch;
mod probe;
mod pwrite;
mod read_ahead;
mod reader;
mod ring;
mod scan;
mod segment;
mod store;
mod transfer;
mod uring;
mod vectored_write;

pub use backend::{BackendKind, FileId, ReadAt, StorageBackend};
pub use block::{Block, FORMAT_VERSION, LOCAL, RecordSource};
pub use block_buffer::BlockBuffer;
pub use block_cursor::BlockCursor;
pub use buffer::{Buffer, PAGE_BYTES};
pub use chunk_table::RecordPlace;
pub use directory::{Directory, DirectoryAccess, DirectoryError};
pub use error::StoreError;
pub use image::{CheckpointImage, LaneImage, LocalImage, LocalSource};
pub use lane_source::LaneSource;
pub use manifest::SlotState;
pub use options::{Access, StoreOptions};
pub use probe::{BackendChoice, BackendOptions, Probe, ProbeError};
pub use read_ahead::{Extent, ReadAhead, ReadAheadOptions};
pub use reader::StoreReader;
pub use scan::{
    BlockReport, Bound, CheckpointReport, Loss, ManifestReport, Repair, Report, SegmentReport, StoreView, Tail, repair,
    scan,
};
pub use store::{DiskUsage, Store};
pub use vectored_write::chunk_writes_max;
