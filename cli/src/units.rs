//! Short numbers with units.

use std::collections::BTreeMap;

/// A number's quantity, which determines its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// `987`, `12.3k`, `4.56M`.
    Count,
    /// `987 B`, `12.3 KiB`.
    Bytes,
    /// Nanoseconds as `250 ns`, `1.5 ms`.
    Duration,
}

impl Unit {
    fn names(self) -> &'static [&'static str] {
        match self {
            Unit::Count => &["", "k", "M", "G", "T", "P", "E"],
            Unit::Bytes => &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"],
            Unit::Duration => &[" ns", " µs", " ms", " s", "·10³ s", "·10⁶ s"],
        }
    }

    /// Returns the factor between successive units.
    fn step(self) -> f64 {
        if self == Unit::Bytes { 1024.0 } else { 1000.0 }
    }

    /// Returns the exclusive upper limit for values in a unit.
    ///
    /// Counts below 10,000 are printed in full: four digits without a letter are as short as three with one.
    fn limit(self, unit: usize) -> f64 {
        if self == Unit::Count && unit == 0 { 10_000.0 } else { self.step() }
    }

    /// Returns the unit for an axis with the largest value `most`: its size and name.
    pub(crate) fn of_axis(self, most: f64) -> (f64, &'static str) {
        let scaled = Scaled::of(self, most);
        (self.step().powi(scaled.unit as i32), self.names()[scaled.unit])
    }
}

/// A number scaled to its unit.
struct Scaled {
    value: f64,
    /// Unit index.
    unit: usize,
    /// Maximum number of decimals, for three significant digits.
    digits: usize,
}

impl Scaled {
    fn of(unit: Unit, mut value: f64) -> Scaled {
        let (mut at, last) = (0, unit.names().len() - 1);
        // A value that would be rounded up to the next unit is in the next unit.
        while at < last && value >= unit.limit(at) - 0.5 {
            (value, at) = (value / unit.step(), at + 1);
        }
        let digits = match value {
            value if value >= 99.95 => 0,
            value if value >= 9.995 => 1,
            _ => 2,
        };
        Scaled { value, unit: at, digits }
    }

    /// Returns the number of decimals without trailing zeros.
    fn significant_decimals(&self) -> usize {
        let text = format!("{:.*}", self.digits, self.value);
        text.split_once('.').map_or(0, |(_, decimals)| decimals.trim_end_matches('0').len())
    }
}

/// Consistent format for the numbers in one picture.
///
/// Numbers with the same magnitude have the same number of decimals (`2.90 MiB`, `2.91 MiB`), and none has more than
/// one of them needs.
pub(crate) struct Numbers {
    unit: Unit,
    /// Decimals by unit and maximum number of decimals.
    digits: BTreeMap<(usize, usize), usize>,
}

impl Numbers {
    pub(crate) fn of(unit: Unit, numbers: impl IntoIterator<Item = u64>) -> Numbers {
        let mut digits = BTreeMap::new();
        for number in numbers {
            let scaled = Scaled::of(unit, number as f64);
            // Zero needs no decimals.
            if number > 0 {
                let most: &mut usize = digits.entry((scaled.unit, scaled.digits)).or_default();
                *most = scaled.significant_decimals().max(*most);
            }
        }
        Numbers { unit, digits }
    }

    pub(crate) fn text(&self, number: u64) -> String {
        if number == 0 {
            return "0".to_owned();
        }
        let scaled = Scaled::of(self.unit, number as f64);
        let digits =
            self.digits.get(&(scaled.unit, scaled.digits)).copied().unwrap_or_else(|| scaled.significant_decimals());
        format!("{:.digits$}{}", scaled.value, self.unit.names()[scaled.unit])
    }
}

/// Formats a number independently of others.
fn format_one(unit: Unit, value: f64) -> String {
    let scaled = Scaled::of(unit, value);
    format!("{:.*}{}", scaled.significant_decimals(), scaled.value, unit.names()[scaled.unit])
}

/// Formats bytes as `987 B`, `12.3 KiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    format_one(Unit::Bytes, bytes as f64)
}

/// Formats nanoseconds as `250 ns`, `1.5 ms`.
pub(crate) fn duration(ns: f64) -> String {
    format_one(Unit::Duration, ns)
}

/// Formats an axis tick.
pub(crate) fn tick(value: f64, name: &str) -> String {
    // Removes the rounding error of summed tenths.
    let value = (value * 1e6).round() / 1e6;
    if value == 0.0 { "0".to_owned() } else { format!("{value}{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_or_four_without_a_unit() {
        for (number, text) in [
            (0, "0"),
            (7, "7"),
            (999, "999"),
            (1234, "1234"),
            (9999, "9999"),
            (10_000, "10k"),
            (12_345, "12.3k"),
            (123_456, "123k"),
            (999_999, "1M"),
            (1_234_567, "1.23M"),
            (u64::MAX, "18.4E"),
        ] {
            assert_eq!(Numbers::of(Unit::Count, [number]).text(number), text, "{number}");
        }
        assert_eq!([0, 1023, 1024, 1536, 10 << 20].map(bytes), ["0 B", "1023 B", "1 KiB", "1.5 KiB", "10 MiB"]);
        assert_eq!([1.0, 1500.0, 2.5e6, 3.0e9].map(duration), ["1 ns", "1.5 µs", "2.5 ms", "3 s"]);
    }

    #[test]
    fn numbers_of_one_magnitude_have_equally_many_decimals() {
        let texts = |unit, numbers: &[u64]| -> Vec<String> {
            let all = Numbers::of(unit, numbers.iter().copied());
            numbers.iter().map(|number| all.text(*number)).collect()
        };
        assert_eq!(texts(Unit::Count, &[0, 7, 29_000, 29_100, 3_000_000]), ["0", "7", "29.0k", "29.1k", "3M"]);
        assert_eq!(texts(Unit::Count, &[25_000, 50_000, 100_000]), ["25k", "50k", "100k"]);
        assert_eq!(texts(Unit::Count, &[2_910_000, 2_900_000]), ["2.91M", "2.90M"]);
        assert_eq!(texts(Unit::Bytes, &[0, 1 << 10, 3 << 9, 1 << 20]), ["0", "1.0 KiB", "1.5 KiB", "1 MiB"]);
    }

    #[test]
    fn an_axis_has_one_unit_and_a_bare_zero() {
        assert_eq!(Unit::Bytes.of_axis(1.5 * 1024.0), (1024.0, " KiB"));
        assert_eq!(Unit::Count.of_axis(9999.0), (1.0, ""));
        assert_eq!(Unit::Count.of_axis(25_000.0), (1000.0, "k"));
        assert_eq!(Unit::Duration.of_axis(1.2e9), (1e9, " s"));
        assert_eq!([0.0, 0.1 + 0.2, 1.0].map(|value| tick(value, " GiB")), ["0", "0.3 GiB", "1 GiB"]);
    }
}
