//! Reason why a rank can't log: a text file that `counterfoil run` quotes when the job ends.

use std::path::Path;

use crate::file::{self, ProfileError};

/// File name suffix, after `rank-N`.
pub const SUFFIX: &str = ".refused";

/// Writes a rank's reason into a job's directory.
///
/// # Errors
/// [`ProfileError::Write`].
pub fn write(dir: &Path, rank: u32, why: &str) -> Result<(), ProfileError> {
    file::write_text(&dir.join(format!("rank-{rank}{SUFFIX}")), why.as_bytes())
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
        assert!(matches!(write(&dir.path().join("none"), 3, "no"), Err(ProfileError::Write { .. })));
    }
}
