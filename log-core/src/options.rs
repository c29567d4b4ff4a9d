//! Limits of a pool.

/// Bytes of the smallest block, and the unit of all sizes here: a page. (In the loom models a chunk is full after two
/// records.)
pub const BLOCK_BYTES_MIN: usize = if cfg!(counterfoil_loom) { 256 } else { 4096 };
/// Largest budget of one pool in bytes: 256 GiB. The address space that a pool reserves is about a hundred times its
/// budget.
pub const MEMORY_BYTES_MAX: usize = 256 << 30;
/// Bytes at the start of the space that hold the file header.
pub(crate) const HEADER_BYTES: usize = BLOCK_BYTES_MIN;

/// Limits of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// Bytes of memory for chunks, all lanes together. Default 64 MiB, at most 256 GiB. A lane that gives up a chunk to
    /// make room takes 4 KiB more until its chunk is free.
    pub memory_bytes_max: usize,
    /// Bytes of an ordinary chunk, a power of two of at least 4 KiB. Default 64 KiB. A lane starts with a chunk of
    /// 4 KiB and doubles; a record that is larger gets a chunk of its own.
    pub chunk_bytes: usize,
    /// Bytes that are prefaulted at the start, in ordinary chunks. Default 256 KiB. One lane for each eight of
    /// these chunks begins with one, the others with a chunk of 4 KiB.
    pub prefault_bytes: usize,
    /// Cursors that may be open on one lane at a time. Default 8, at most 64.
    pub cursors_max: usize,
}

impl Default for PoolOptions {
    fn default() -> Self {
        PoolOptions { memory_bytes_max: 64 << 20, chunk_bytes: 64 << 10, prefault_bytes: 256 << 10, cursors_max: 8 }
    }
}

/// An option that is out of its limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option} = {value}: {rule}")]
pub struct OptionsError {
    /// Name of the option.
    pub option: &'static str,
    /// Its value.
    pub value: usize,
    /// The rule that it breaks.
    pub rule: std::borrow::Cow<'static, str>,
}
