//! Why a rank can't log: text in a file of its own, for `counterfoil run` to quote at the end.

use std::path::Path;

use crate::file::{self, ProfileError};

/// How the name of a rank's file ends, behind `rank-N`.
pub const END: &str = ".refused";

/// Writes it into a job's directory.
///
/// # Errors
/// [`ProfileError::Write`].
pub fn write(dir: &Path, rank: u32, why: &str) -> Result<(), ProfileError> {
    file::write_text(&dir.join(format!("rank-{rank}{END}")), why.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_reason_is_there_as_a_whole_and_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        for why in ["the disk is full", "no"] {
            write(dir.path(), 3, why).unwrap();
            assert_eq!(fs::read_to_string(dir.path().join("rank-3.refused")).unwrap(), why);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(matches!(write(&dir.path().join("none"), 3, "no"), Err(ProfileError::Write { .. })));
    }
}
