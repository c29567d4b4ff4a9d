//! Handles made by this library: numbers in place of the MPI's own requests, messages and groups.
//!
//! An MPI handle is a pointer (Open MPI) or an `int` (MPICH). Programs pass these handles to MPI only, so any value
//! unused by the MPI itself serves.

use std::mem::size_of;

pub(crate) use counterfoil_mpi_core::arguments::bits;

/// First value.
///
/// As an `int` it is no such handle in MPICH; as a pointer it is below a library's allocations.
const FIRST: usize = 0x6000_0000;
/// Number of values.
const COUNT: usize = 1 << 28;

/// Returns the handle with a number.
pub(crate) fn of_number<H: Copy>(number: u32) -> H {
    let word = FIRST + number as usize % COUNT;
    assert!(size_of::<H>() <= size_of::<usize>(), "a handle is a pointer or an int");
    // SAFETY: a handle is an integer or a pointer of at most this size, for which any bits are valid. The machine is
    // little-endian, so the lower bytes come first.
    unsafe { std::mem::transmute_copy(&word) }
}

/// Returns the number of one of this library's handles.
pub(crate) fn number_of<H: Copy>(handle: H) -> Option<u32> {
    let number = bits(handle).checked_sub(FIRST).filter(|number| *number < COUNT)?;
    u32::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_has_its_number() {
        for number in [0, 1, 77, (1 << 28) - 1] {
            assert_eq!(number_of(of_number::<i32>(number)), Some(number));
            assert_eq!(number_of(of_number::<*mut u8>(number)), Some(number));
        }
        assert_eq!(number_of(std::ptr::null_mut::<u8>()), None);
        assert_eq!(number_of(0x2c00_0000_i32), None);
    }
}
