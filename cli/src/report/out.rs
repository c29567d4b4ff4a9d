//! Where the page and its pictures go.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::pictures::Picture;

/// The page's name in a folder.
const PAGE: &str = "report.html";

/// Why nothing can be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum OutError {
    #[error("cannot make the folder {}: {source}; --out names another one", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}; --out names another place", path.display())]
    File { path: PathBuf, source: io::Error },
}

/// A folder, and what the files in it are called.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    folder: PathBuf,
    page: PathBuf,
    /// In front of the pictures' names.
    prefix: String,
}

impl Place {
    /// A file that ends with `.html`, with pictures beside it that begin with its name; or a folder.
    pub(super) fn new(asked: PathBuf) -> Place {
        let is_page = asked.extension().is_some_and(|extension| extension == "html" || extension == "htm");
        if !is_page || asked.is_dir() {
            return Place { page: asked.join(PAGE), folder: asked, prefix: String::new() };
        }
        let folder = asked.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let stem = asked.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        Place { folder: folder.to_owned(), page: asked, prefix: format!("{stem}-") }
    }

    /// Writes everything; gives the files, the page first.
    pub(super) fn write(&self, page: &str, pictures: &[(Picture, String)]) -> Result<Vec<PathBuf>, OutError> {
        fs::create_dir_all(&self.folder).map_err(|source| OutError::Folder { path: self.folder.clone(), source })?;
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

fn write(path: &Path, text: &str) -> Result<(), OutError> {
    fs::write(path, text).map_err(|source| OutError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_ends_with_html_is_the_page_and_any_other_a_folder() {
        let place = |folder: &str, page: &str, prefix: &str| Place {
            folder: folder.into(),
            page: page.into(),
            prefix: prefix.to_owned(),
        };
        assert_eq!(Place::new("a/b".into()), place("a/b", "a/b/report.html", ""));
        assert_eq!(Place::new("a/run-7.html".into()), place("a", "a/run-7.html", "run-7-"));
        assert_eq!(Place::new("x.html".into()), place(".", "x.html", "x-"));
        let folder = tempfile::tempdir().unwrap();
        let named = folder.path().join("y.html");
        fs::create_dir(&named).unwrap();
        assert_eq!(Place::new(named.clone()).page, named.join(PAGE));
    }
}
