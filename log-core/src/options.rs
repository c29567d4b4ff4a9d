//! Pool limits.

/// Bytes of the smallest block, and the unit of all sizes here: a page.
///
/// (In the loom models a chunk is full after two records.)
pub const BLOCK_BYTES_MIN: usize = if cfg!(counterfoil_loom) { 256 } else { 4096 };
/// Largest pool budget in bytes: 256 GiB.
///
/// A pool reserves about a hundred times its budget of address space.
pub const MEMORY_BYTES_MAX: usize = 256 << 30;
/// Bytes at the start of the space, for the file header.
pub(crate) const HEADER_BYTES: usize = BLOCK_BYTES_MIN;

/// Pool limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// Memory for chunks in bytes, all lanes together.
    ///
    /// Default 64 MiB, at most 256 GiB. A lane giving up a chunk to make room takes 4 KiB more until its chunk is free.
    pub memory_bytes_max: usize,
    /// Ordinary chunk size in bytes, a power of two of at least 4 KiB.
    ///
    /// Default 64 KiB. A lane starts with a 4 KiB chunk and doubles; a larger record gets its own chunk.
    pub chunk_bytes: usize,
    /// Bytes prefaulted at the start, in ordinary chunks.
    ///
    /// Default 256 KiB. One lane for each eight of these chunks begins with one, the others with a 4 KiB chunk.
    pub prefault_bytes: usize,
    /// Maximum number of open cursors on one lane.
    ///
    /// Default 8, at most 64.
    pub cursors_max: usize,
}

impl Default for PoolOptions {
    fn default() -> Self {
        PoolOptions { memory_bytes_max: 64 << 20, chunk_bytes: 64 << 10, prefault_bytes: 256 << 10, cursors_max: 8 }
    }
}

/// An option out of its limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option} = {value}: {rule}")]
pub struct OptionsError {
    /// The option's name.
    pub option: &'static str,
    /// Its value.
    pub value: usize,
    /// The rule broken.
    pub rule: std::borrow::Cow<'static, str>,
}
