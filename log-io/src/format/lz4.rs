//! Compression of blocks.

/// True in a program built with the feature `lz4`.
pub(crate) const IS_BUILT: bool = cfg!(feature = "lz4");

/// Compresses `records` into `into`, which grows as needed; returns the length.
///
/// `None` without the feature, or if the records can't be compressed.
pub(crate) fn compress(records: &[u8], into: &mut Vec<u8>) -> Option<usize> {
    #[cfg(feature = "lz4")]
    {
        let most = lz4_flex::block::get_maximum_output_size(records.len());
        into.resize(most.max(into.len()), 0);
        lz4_flex::block::compress_into(records, into).ok()
    }
    #[cfg(not(feature = "lz4"))]
    {
        let _ = (records, into);
        None
    }
}

/// Expands `stored`; returns `true` if it fills `into`.
///
/// Always `false` without the feature.
pub(crate) fn decompress(stored: &[u8], into: &mut [u8]) -> bool {
    #[cfg(feature = "lz4")]
    {
        lz4_flex::block::decompress_into(stored, into).ok() == Some(into.len())
    }
    #[cfg(not(feature = "lz4"))]
    {
        let _ = (stored, into);
        false
    }
}
