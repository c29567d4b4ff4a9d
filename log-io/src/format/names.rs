//! File names in a store's directory.

use crate::format::FILE_NUMBER_MAX;

/// The manifest's file name.
pub(crate) const MANIFEST: &str = "manifest";
/// Name of the reserve: a file to be removed when the disk is full.
pub(crate) const RESERVE: &str = "reserve";
/// Name of the file locked by the owner.
///
/// It holds the owner's process id, for error messages in other processes.
pub(crate) const LOCK_FILE: &str = "lock";
/// Name of the trial file, which exists only during the probe.
///
/// An existing one was left by a process that ended during its probe.
pub(crate) const PROBE_FILE: &str = "probe";

/// Returns a segment's file name.
pub(crate) fn segment_name(segment: u32) -> String {
    format!("segment-{segment:08}")
}

/// Returns a checkpoint file name.
pub(crate) fn checkpoint_name(number: u32) -> String {
    format!("checkpoint-{number:08}")
}

/// Returns the number in a name such as `prefix-00000001`.
pub(crate) fn file_number(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?.strip_prefix('-')?;
    let number = digits.parse().ok().filter(|number| *number <= FILE_NUMBER_MAX)?;
    (format!("{number:08}") == digits).then_some(number)
}

/// Returns `true` for the name of a store file, other than the lock.
pub(crate) fn is_of_a_store(name: &str) -> bool {
    name == MANIFEST || name == RESERVE || file_number(name, "segment").or(file_number(name, "checkpoint")).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_eight_digits_or_as_many_as_the_number_needs() {
        for number in [0, 1, 99_999_999, 100_000_000, FILE_NUMBER_MAX] {
            assert_eq!(file_number(&segment_name(number), "segment"), Some(number));
        }
        let others = [
            "segment-1",
            "segment-0000001",
            "segment-000000001",
            "segment-2147483649",
            "segment-99999999999",
            "segment-+0000001",
            "segment-0000000x",
            "segment-",
            "segment00000001",
            "checkpoint-00000001",
        ];
        assert!(others.iter().all(|name| file_number(name, "segment").is_none()));
    }

    #[test]
    fn the_names_of_numbered_files_have_eight_digits_or_more_without_a_sign() {
        for (name, number) in
            [("segment-00000001", 1), ("segment-12345678", 12_345_678), ("segment-123456789", 123_456_789)]
        {
            assert_eq!(file_number(name, "segment"), Some(number));
        }
        for name in
            ["segment-1", "segment-+0000001", "segment-000000001", "segment-", "segment00000001", "checkpoint-00000001"]
        {
            assert_eq!(file_number(name, "segment"), None, "{name}");
        }
    }
}
