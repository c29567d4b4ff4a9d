//! Numbers as they stand in pictures: short.

/// `987`, `12.3k`, `4.56M`.
pub(super) fn count(count: u64) -> String {
    short(count as f64, 1000.0, &["", "k", "M", "G", "T", "P", "E"])
}

/// `987 B`, `12.3 KiB`.
pub(super) fn bytes(bytes: u64) -> String {
    short(bytes as f64, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
}

/// Of nanoseconds: `250 ns`, `1.5 ms`.
pub(in crate::report) fn duration(ns: f64) -> String {
    short(ns, 1000.0, &[" ns", " µs", " ms", " s", "·10³ s", "·10⁶ s"])
}

/// Three digits, and no zeros behind a point.
fn short(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    // What would be rounded up to the next unit has it.
    while value >= step - 0.5 {
        let Some(next) = units.next() else { break };
        (value, unit) = (value / step, next);
    }
    let digits = match value {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        for (number, text) in [
            (0, "0"),
            (7, "7"),
            (999, "999"),
            (1000, "1k"),
            (1234, "1.23k"),
            (12_345, "12.3k"),
            (123_456, "123k"),
            (999_999, "1M"),
            (u64::MAX, "18.4E"),
        ] {
            assert_eq!(count(number), text, "{number}");
        }
        assert_eq!([0, 1023, 1024, 1536, 10 << 20].map(bytes), ["0 B", "1023 B", "1 KiB", "1.5 KiB", "10 MiB"]);
        assert_eq!([1.0, 1500.0, 2.5e6, 3.0e9].map(duration), ["1 ns", "1.5 µs", "2.5 ms", "3 s"]);
    }
}
