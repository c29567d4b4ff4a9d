//! Reason why a rank can't log: a text file quoted by `counterfoil run` when the job ends.

use std::path::{Path, PathBuf};

use crate::file::{self, ProfileError};

/// File name suffix, after `rank-N`.
const SUFFIX: &str = ".refused";

/// Writes a rank's reason into a job directory.
///
/// # Errors
/// [`ProfileError::Write`].
pub fn write(dir: &Path, rank: u32, why: &str) -> Result<(), ProfileError> {
    file::write_text(&path(dir, rank), why.as_bytes())
}

/// Removes a rank's reason, if there is one: it logs now.
pub fn withdraw(dir: &Path, rank: u32) {
    // Without a file there is nothing to remove; one that can't be removed only leaves a wrong line in the summary.
    let _ = std::fs::remove_file(path(dir, rank));
}

/// Reads the reasons from all ranks unable to log, ascending by rank.
pub fn read_all(dir: &Path) -> Vec<(u32, String)> {
    let texts = file::of_ranks(dir, SUFFIX).into_iter();
    texts.map(|(rank, text)| (rank, String::from_utf8_lossy(&text).into_owned())).collect()
}

fn path(dir: &Path, rank: u32) -> PathBuf {
    file::path_of_rank(dir, rank, SUFFIX)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_reason_is_written_whole_and_leaves_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        for why in ["the disk is full", "no"] {
            write(dir.path(), 3, why).unwrap();
            assert_eq!(fs::read_to_string(dir.path().join("rank-3.refused")).unwrap(), why);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        for _ in 0..2 {
            withdraw(dir.path(), 3);
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        }
        for (rank, why) in [(10, "no"), (2, "the disk is full")] {
            write(dir.path(), rank, why).unwrap();
        }
        assert_eq!(read_all(dir.path()), [(2, "the disk is full".to_owned()), (10, "no".to_owned())]);
        assert!(matches!(write(&dir.path().join("none"), 3, "no"), Err(ProfileError::Write { .. })));
    }
}
