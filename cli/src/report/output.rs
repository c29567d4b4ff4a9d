//! Report output files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::pictures::Picture;

/// Name of the page in an output folder.
const PAGE: &str = "report.html";

/// Error while writing the output.
#[derive(Debug, thiserror::Error)]
pub(super) enum OutputError {
    #[error("cannot create the folder {}: {source}; choose another one with --out", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}; choose another path with --out", path.display())]
    File { path: PathBuf, source: io::Error },
}

/// Paths of the page and the pictures.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutputFiles {
    folder: PathBuf,
    page: PathBuf,
    /// Prefix for the pictures' names.
    prefix: String,
}

impl OutputFiles {
    /// Takes a folder, or a file ending in `.html`; its stem prefixes the pictures' names.
    pub(super) fn new(path: PathBuf) -> OutputFiles {
        let is_page = path.extension().is_some_and(|extension| extension == "html" || extension == "htm");
        if !is_page || path.is_dir() {
            return OutputFiles { page: path.join(PAGE), folder: path, prefix: String::new() };
        }
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        OutputFiles { folder: folder.to_owned(), page: path, prefix: format!("{stem}-") }
    }

    /// Writes all files; returns their paths, the page first.
    pub(super) fn write(&self, page: &str, pictures: &[(Picture, String)]) -> Result<Vec<PathBuf>, OutputError> {
        fs::create_dir_all(&self.folder).map_err(|source| OutputError::Folder { path: self.folder.clone(), source })?;
        let mut files = vec![self.page.clone()];
        write(&self.page, page)?;
        for (picture, svg) in pictures {
            let path = self.folder.join(format!("{}{}.svg", self.prefix, picture.name()));
            write(&path, svg)?;
            files.push(path);
        }
        Ok(files)
    }
}

fn write(path: &Path, text: &str) -> Result<(), OutputError> {
    fs::write(path, text).map_err(|source| OutputError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_ending_in_html_is_the_page_and_any_other_a_folder() {
        let files = |folder: &str, page: &str, prefix: &str| OutputFiles {
            folder: folder.into(),
            page: page.into(),
            prefix: prefix.to_owned(),
        };
        assert_eq!(OutputFiles::new("a/b".into()), files("a/b", "a/b/report.html", ""));
        assert_eq!(OutputFiles::new("a/run-7.html".into()), files("a", "a/run-7.html", "run-7-"));
        assert_eq!(OutputFiles::new("x.html".into()), files(".", "x.html", "x-"));
        let folder = tempfile::tempdir().unwrap();
        let named = folder.path().join("y.html");
        fs::create_dir(&named).unwrap();
        assert_eq!(OutputFiles::new(named.clone()).page, named.join(PAGE));
    }
}
