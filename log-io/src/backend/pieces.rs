//! Writes gathered from several slices.

use std::io;

use crate::{FileId, StorageBackend};

/// Starts to write the pieces in order from offset `at` on, zero-padded to a multiple of 4,096.
///
/// Copies them into buffers.
pub(crate) fn write_pieces(
    backend: &mut dyn StorageBackend,
    file: FileId,
    mut at: u64,
    pieces: &[&[u8]],
) -> io::Result<()> {
    let mut left: usize = pieces.iter().map(|piece| piece.len()).sum();
    let mut pieces = pieces.iter().copied();
    let mut piece: &[u8] = &[];
    while left > 0 {
        let mut buffer = backend.buffer()?;
        let into = buffer.bytes_mut();
        let mut filled = 0;
        while filled < into.len() && filled < left {
            if piece.is_empty() {
                piece = pieces.next().unwrap_or_default();
                continue;
            }
            let now = piece.len().min(into.len() - filled);
            into[filled..filled + now].copy_from_slice(&piece[..now]);
            piece = &piece[now..];
            filled += now;
        }
        left -= filled;
        buffer.set_len(filled);
        let len = buffer.len() as u64;
        backend.write(file, at, buffer)?;
        at += len;
    }
    Ok(())
}
