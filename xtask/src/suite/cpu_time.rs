//! Child processes' CPU time, as reported by Linux.

use std::fs;
use std::time::Duration;

/// Clock tick of `/proc` (`USER_HZ`): 100 per second on all supported architectures.
const TICK: Duration = Duration::from_millis(10);

/// Returns the user and system time of all ended children and their descendants.
///
/// `None` without `/proc`.
pub(super) fn of_children() -> Option<Duration> {
    parse_stat(&fs::read_to_string("/proc/self/stat").ok()?)
}

/// Sums `cutime` and `cstime`, fields 16 and 17 of proc(5).
///
/// The name in field 2 may contain spaces and parentheses.
fn parse_stat(stat: &str) -> Option<Duration> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(13);
    let ticks = fields.next()?.parse::<u32>().ok()?.checked_add(fields.next()?.parse().ok()?)?;
    TICK.checked_mul(ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_skipped() {
        let stat = "7 (a) (b c) S 1 7 7 0 -1 4194304 1 2 3 4 10 20 150 50 20 0 1 0 99";
        assert_eq!(parse_stat(stat), Some(Duration::from_secs(2)));
        assert_eq!(parse_stat("7 (short) S 1"), None);
    }
}
