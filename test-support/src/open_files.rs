//! Open files in this process.

use std::path::Path;

/// An open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFile {
    /// Its name; ends with ` (deleted)` after its removal.
    pub name: String,
    /// It is open for writing.
    pub is_written: bool,
}

/// Returns the open files in a directory not used by another test.
///
/// # Panics
/// Without `/proc`.
pub fn open_files(directory: &Path) -> Vec<OpenFile> {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("a list of descriptors").flatten();
    let files = descriptors.filter_map(|descriptor| {
        // Other threads close theirs.
        let file = std::fs::read_link(descriptor.path()).ok().filter(|file| file.parent() == Some(directory))?;
        let info = std::fs::read_to_string(Path::new("/proc/self/fdinfo").join(descriptor.file_name())).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("flags").trim();
        let is_written = u32::from_str_radix(flags, 8).expect("an octal number") & 3 != 0;
        Some(OpenFile { name: file.file_name()?.to_string_lossy().into_owned(), is_written })
    });
    files.collect()
}
