//! The floor: the least work for any log.
//!
//! A header and a copy, into a ring that stays in the cache.

/// An endlessly overwritten byte ring: no budget, no reader, no acknowledgement.
pub struct Ring(Vec<u8>, usize);

impl Ring {
    /// Creates a ring with `bytes` bytes, all touched.
    pub fn new(bytes: usize) -> Ring {
        Ring(vec![1; bytes], 0)
    }

    /// Appends length, SSN and payload.
    #[inline]
    pub fn append(&mut self, ssn: u64, payload: &[u8]) {
        let len = (16 + payload.len()).next_multiple_of(8);
        let at = if self.1 + len > self.0.len() { 0 } else { self.1 };
        let slot = &mut self.0[at..at + 16 + payload.len()];
        slot[..8].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        slot[8..16].copy_from_slice(&ssn.to_le_bytes());
        slot[16..].copy_from_slice(payload);
        self.1 = at + len;
    }
}
