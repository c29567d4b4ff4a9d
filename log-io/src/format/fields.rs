//! Parsing fixed-size entries from untrusted bytes.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// A parser over the remaining bytes.
///
/// Never allocates more than there are.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

/// The bytes end too early, or have impossible values.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_taken_in_order() {
        let bytes = [1, 2, 3, 4, 5, 6, 7];
        let mut fields = Fields::new(&bytes);
        assert!(matches!(fields.one::<[u8; 2]>(), Ok([1, 2])));
        assert!(matches!(fields.many::<[u8; 2]>(2), Ok([[3, 4], [5, 6]])));
        assert!(!fields.is_at_end());
        assert!(
            fields.bytes(2).is_err() && fields.bytes(u64::MAX).is_err() && fields.many::<[u8; 8]>(u32::MAX).is_err()
        );
        assert!(matches!(fields.bytes(1), Ok([7])));
        assert!(fields.is_at_end());
    }
}
