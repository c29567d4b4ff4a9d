//! Counts with singular or plural nouns.

/// Formats, for example, `1 event` or `2 events`.
pub(crate) fn count(number: u64, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

/// Formats `1 schedule` or `2 schedules`.
pub(crate) fn schedules(number: u64) -> String {
    count(number, "schedule", "schedules")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        assert_eq!([0, 1, 2].map(schedules), ["0 schedules", "1 schedule", "2 schedules"]);
        assert_eq!(count(1, "process", "processes"), "1 process");
    }
}
