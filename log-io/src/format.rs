//! Numbers of the format on disk, which docs/book/src/reference/formats.md describes.

pub(crate) mod block;
pub(crate) mod block_buffer;
pub(crate) mod checkpoint_file;
pub(crate) mod chunk_table;
pub(crate) mod fields;
pub(crate) mod image;
pub(crate) mod manifest;
pub(crate) mod names;
pub(crate) mod segment;

use crate::PAGE_BYTES;

/// Format version of blocks, segments, checkpoint files and manifests.
pub const FORMAT_VERSION: u32 = 1;

/// Bytes of a block's header.
pub(crate) const HEADER_BYTES: usize = 96;
/// Bytes of a chunk's entry in the table of its block.
pub(crate) const ENTRY_BYTES: usize = 32;
/// Chunks of a block, at most: header and table take one page.
pub(crate) const CHUNKS_MAX: usize = (PAGE_BYTES - HEADER_BYTES) / ENTRY_BYTES;
/// Bytes of a chunk's record with an empty body.
pub(crate) const RECORD_BYTES_MIN: usize = 16;
/// Largest value of `block_bytes`.
pub(crate) const BLOCK_BYTES_MAX: usize = 16 << 20;

/// Offset of the first block in a segment.
pub(crate) const FIRST_BLOCK: u64 = PAGE_BYTES as u64;
/// Limit of the numbers of segments and checkpoint files: more than a disk has had.
pub(crate) const FILE_NUMBER_MAX: u32 = 1 << 31;

/// Most checkpoints that fit into a manifest.
pub(crate) const CHECKPOINTS_KEPT_MAX: usize = 64;
/// Limit of the sessions of a store, and of the changes of its manifest: more than there is time for.
pub(crate) const SESSIONS_MAX: u64 = 1 << 62;
