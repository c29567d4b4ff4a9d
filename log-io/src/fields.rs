//! Reading counted entries from bytes that may be anything.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// What is left to be read. Nothing is ever allocated for more than there is.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

/// The bytes end, or say something impossible.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Malformed;

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Fields<'a> {
        Fields { rest: bytes }
    }

    pub(crate) fn one<T: FromBytes + Immutable + KnownLayout + Unaligned>(&mut self) -> Result<&'a T, Malformed> {
        let (one, rest) = T::ref_from_prefix(self.rest).map_err(|_| Malformed)?;
        self.rest = rest;
        Ok(one)
    }

    pub(crate) fn many<T: FromBytes + Immutable + Unaligned>(&mut self, count: u32) -> Result<&'a [T], Malformed> {
        let bytes = (count as usize).checked_mul(size_of::<T>()).ok_or(Malformed)?;
        <[T]>::ref_from_bytes(self.bytes(bytes as u64)?).map_err(|_| Malformed)
    }

    pub(crate) fn bytes(&mut self, len: u64) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(len).map_err(|_| Malformed)?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Nothing may be left.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.is_at_end() { Ok(()) } else { Err(Malformed) }
    }
}
