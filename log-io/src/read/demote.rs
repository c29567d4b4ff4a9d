//! CLDEMOTE: a hint to move memory, about to be written by a device, out of this core's caches.

/// Cache line size in bytes.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Hints that `bytes` may move out of the core's own caches, for a faster device read into them.
///
/// A processor without the instruction ignores it.
#[cfg(target_arch = "x86_64")]
pub(crate) fn demote(bytes: &[u8]) {
    for line in bytes.chunks(LINE_BYTES) {
        // SAFETY: the instruction is a hint about a line in this slice. It changes neither memory nor registers nor
        // flags and doesn't fault; a processor without it decodes it as a no-op.
        unsafe {
            std::arch::asm!("cldemote [{}]", in(reg) line.as_ptr(), options(nostack, preserves_flags, readonly));
        }
    }
}

/// Does nothing: this processor has no known hint.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn demote(_: &[u8]) {}
