//! A hint: memory that was read from, and into which a device writes next, need not stay in this core's caches.

/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Asks for `bytes` to be moved out of the core's own caches. It changes nothing but the time that it takes until whoever reads a
/// block into this memory has it; a processor without such an instruction ignores it.
#[cfg(target_arch = "x86_64")]
pub(crate) fn demote(bytes: &[u8]) {
    for line in bytes.chunks(LINE_BYTES) {
        // SAFETY: the instruction is a hint about a line that is this slice's. It changes neither memory nor registers nor flags, doesn't
        // fault, and where the processor doesn't have it its code is that of an instruction that does nothing.
        unsafe {
            std::arch::asm!("cldemote [{}]", in(reg) line.as_ptr(), options(nostack, preserves_flags, readonly));
        }
    }
}

/// Nothing is known to help here.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn demote(_: &[u8]) {}
