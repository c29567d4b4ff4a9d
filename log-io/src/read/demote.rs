//! CLDEMOTE: a hint that memory, into which a device writes next, need not stay in this core's caches.

/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Hints that `bytes` may move out of the core's own caches, so that the next read from a device into them is faster. A
/// processor without the instruction ignores it.
#[cfg(target_arch = "x86_64")]
pub(crate) fn demote(bytes: &[u8]) {
    for line in bytes.chunks(LINE_BYTES) {
        // SAFETY: the instruction is a hint about a line of this slice. It changes neither memory nor registers nor
        // flags and doesn't fault; a processor that lacks it decodes it as a no-op.
        unsafe {
            std::arch::asm!("cldemote [{}]", in(reg) line.as_ptr(), options(nostack, preserves_flags, readonly));
        }
    }
}

/// Does nothing: no such hint is known for this processor.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn demote(_: &[u8]) {}
