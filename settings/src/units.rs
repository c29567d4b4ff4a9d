//! Sizes and durations as text.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Binary units, the largest first.
const UNITS: [(&str, usize); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Byte count as text, such as `64MiB`, `64 MiB` or `1000`.
///
/// ```
/// use counterfoil_settings::ByteSize;
///
/// let size: ByteSize = "64 MiB".parse()?;
/// assert_eq!((size.0, size.to_string()), (64 << 20, "64MiB".to_owned()));
/// # Ok::<(), counterfoil_settings::SizeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub usize);

/// Error for a text that is no [`ByteSize`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a whole number of bytes, optionally with the unit KiB, MiB or GiB")]
pub struct SizeError;

impl FromStr for ByteSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<ByteSize, SizeError> {
        let text = text.trim();
        let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let factor = match unit.trim_start() {
            "" => 1,
            unit => UNITS.iter().find(|(name, _)| *name == unit).ok_or(SizeError)?.1,
        };
        let number: usize = number.parse().map_err(|_| SizeError)?;
        number.checked_mul(factor).map(ByteSize).ok_or(SizeError)
    }
}

impl fmt::Display for ByteSize {
    /// Writes the exact number, in the largest unit that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, factor)| self.0 > 0 && self.0.is_multiple_of(*factor)) {
            Some((unit, factor)) if *factor > 1 => write!(f, "{}{unit}", self.0 / factor),
            _ => write!(f, "{}", self.0),
        }
    }
}

/// Positive duration as a number of seconds, such as `10` or `0.5`; at most [`u32::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seconds(pub Duration);

/// Error for a text that is no [`Seconds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a positive number of seconds")]
pub struct SecondsError;

impl FromStr for Seconds {
    type Err = SecondsError;

    fn from_str(text: &str) -> Result<Seconds, SecondsError> {
        let seconds = text.trim().parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let is_permitted = |seconds: &Duration| !seconds.is_zero() && seconds.as_secs() <= u32::MAX.into();
        seconds.filter(is_permitted).map(Seconds).ok_or(SecondsError)
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        for (text, bytes) in
            [("1000", 1000), ("7B", 7), ("64KiB", 64 << 10), ("64 MiB", 64 << 20), (" 3GiB ", 3 << 30), ("0", 0)]
        {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text:?}");
        }
        let largest = format!("{}", usize::MAX);
        for wrong in ["", "KiB", "-1", "+1", "1.5MiB", "1kb", "64 MB", "1 2", "99999999999GiB", &format!("{largest}0")]
        {
            assert_eq!(wrong.parse::<ByteSize>(), Err(SizeError), "{wrong:?}");
        }
    }

    #[test]
    fn a_size_is_printed_exactly_and_read_again() {
        for (bytes, text) in
            [(0, "0"), (1023, "1023"), (1 << 10, "1KiB"), (1 << 20 | 1 << 10, "1025KiB"), (8 << 30, "8GiB")]
        {
            assert_eq!(ByteSize(bytes).to_string(), text);
            assert_eq!(text.parse(), Ok(ByteSize(bytes)));
        }
    }

    #[test]
    fn durations_are_positive_numbers_of_seconds() {
        for (text, millis, printed) in [("10", 10_000, "10"), ("0.5", 500, "0.5"), (" 1e3", 1_000_000, "1000")] {
            assert_eq!(text.parse(), Ok(Seconds(Duration::from_millis(millis))), "{text:?}");
            assert_eq!(Seconds(Duration::from_millis(millis)).to_string(), printed);
        }
        for wrong in ["", "0", "-1", "10s", "never", "inf", "nan", "1e10"] {
            assert_eq!(wrong.parse::<Seconds>(), Err(SecondsError), "{wrong:?}");
        }
    }
}
