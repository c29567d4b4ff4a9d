//! Disk format constants; see docs/book/src/reference/formats.md.

pub(crate) mod block;
pub(crate) mod block_buffer;
pub(crate) mod checkpoint_file;
pub(crate) mod chunk_table;
pub(crate) mod fields;
pub(crate) mod image;
pub(crate) mod lz4;
pub(crate) mod manifest;
pub(crate) mod names;
pub(crate) mod segment;

use crate::PAGE_BYTES;

/// Format version for blocks, segments, checkpoint files and manifests.
pub const FORMAT_VERSION: u32 = 1;

/// Block header size in bytes.
pub(crate) const HEADER_BYTES: usize = 96;
/// Size of a chunk's entry in the block's table, in bytes.
pub(crate) const ENTRY_BYTES: usize = 32;
/// Maximum chunks in a block: header and table take one page.
pub(crate) const CHUNKS_MAX: usize = (PAGE_BYTES - HEADER_BYTES) / ENTRY_BYTES;
/// Size of a chunk's record with an empty body, in bytes.
pub(crate) const RECORD_BYTES_MIN: usize = 16;
/// Maximum `block_bytes`.
pub(crate) const BLOCK_BYTES_MAX: usize = 16 << 20;

/// Offset of the first block in a segment.
pub(crate) const FIRST_BLOCK: u64 = PAGE_BYTES as u64;
/// Limit for segment and checkpoint file numbers: more than any disk has had.
pub(crate) const FILE_NUMBER_MAX: u32 = 1 << 31;

/// Maximum checkpoints in a manifest.
pub(crate) const CHECKPOINTS_KEPT_MAX: usize = 64;
/// Limit for sessions and for manifest changes: more than there is time for.
pub(crate) const SESSIONS_MAX: u64 = 1 << 62;
