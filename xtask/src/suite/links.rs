//! Checks the documentation's links and the files named in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use super::files::find_files;
use crate::workspace::Workspace;

/// Directory of the book's chapters.
///
/// A link leaves it for another site only.
const BOOK: &str = "docs/book/src";
/// Extensions of files that inline code may name.
const NAMED: [&str; 9] = ["rs", "md", "toml", "txt", "c", "h", "f90", "py", "svg"];

/// Checks the tree's Markdown files.
///
/// # Errors
/// Each link without a target, and each named file that doesn't exist; or a file that can't be read.
pub(crate) fn check(workspace: &Workspace) -> Result<(), String> {
    let root = workspace.root();
    let mut paths = Vec::new();
    find_files(root, "md", &mut paths)?;
    let mut documents = BTreeMap::new();
    for path in &paths {
        let shown = path.strip_prefix(root).unwrap_or(path);
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", shown.display()))?;
        documents.insert(shown.to_owned(), Document::parse(&text));
    }
    println!("checked {} files", documents.len());
    let exists = |path: &Path| root.join(path).exists();
    let broken: Vec<String> = documents.iter().flat_map(|(path, of)| of.broken(path, &documents, exists)).collect();
    if broken.is_empty() { Ok(()) } else { Err(broken.join("\n")) }
}

/// A Markdown file.
#[derive(Debug, Default)]
struct Document {
    /// Heading anchors.
    anchors: BTreeSet<String>,
    /// Link and picture targets.
    links: Vec<String>,
    /// Inline code.
    code: Vec<String>,
}

impl Document {
    fn parse(text: &str) -> Document {
        let mut document = Document::default();
        let mut heading: Option<String> = None;
        for event in Parser::new_ext(text, pulldown_cmark::Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => document.add_heading(&heading.take().unwrap_or_default()),
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    document.links.push(dest_url.to_string());
                }
                Event::Code(code) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&code);
                    }
                    document.code.push(code.to_string());
                }
                Event::Text(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                _ => {}
            }
        }
        document
    }

    /// Adds a heading's anchor; a second heading with the same text gets a number.
    fn add_heading(&mut self, heading: &str) {
        let anchor = anchor_of(heading);
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone()).chain(numbered).find(|anchor| !self.anchors.contains(anchor));
        self.anchors.extend(free);
    }

    /// Returns a line for each link without a target, and for each named file that doesn't exist.
    fn broken(
        &self,
        path: &Path,
        documents: &BTreeMap<PathBuf, Document>,
        exists: impl Fn(&Path) -> bool,
    ) -> Vec<String> {
        let mut broken = Vec::new();
        for link in self.links.iter().filter(|link| !is_of_another_site(link)) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.to_owned() } else { resolve(path, file) };
            let leaves_book = path.starts_with(BOOK) && !target.starts_with(BOOK);
            let has_anchor = anchor.is_empty() || documents.get(&target).is_none_or(|of| of.anchors.contains(anchor));
            if !exists(&target) || leaves_book || !has_anchor {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
        let missing = self.code.iter().map(Path::new).filter(|code| names_file(code, &exists) && !exists(code));
        broken.extend(missing.map(|code| format!("{}: `{}`", path.display(), code.display())));
        broken
    }
}

fn is_of_another_site(link: &str) -> bool {
    link.contains("://") || link.starts_with("mailto:")
}

/// Returns a heading's anchor in the form used by GitHub and mdBook.
fn anchor_of(heading: &str) -> String {
    let kept = heading.chars().filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|char| if char == ' ' { '-' } else { char }).collect()
}

/// Returns the target file of a link in another one, relative to the root.
fn resolve(from: &Path, link: &str) -> PathBuf {
    let mut target = from.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => _ = target.pop(),
            Component::Normal(name) => target.push(name),
            _ => {}
        }
    }
    target
}

/// Returns `true` if inline code is the path of a file in one of the root's directories.
fn names_file(code: &Path, exists: impl Fn(&Path) -> bool) -> bool {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '/' | '.' | '-' | '_');
    let ending = code.extension().unwrap_or_default();
    let mut parts = code.components();
    let first = parts.next().filter(|_| parts.next().is_some());
    code.to_string_lossy().chars().all(is_plain)
        && NAMED.iter().any(|named| ending == *named)
        && first.is_some_and(|first| matches!(first, Component::Normal(_)) && exists(first.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(files: &[(&str, &str)]) -> Vec<String> {
        let documents: BTreeMap<PathBuf, Document> =
            files.iter().map(|(path, text)| (PathBuf::from(path), Document::parse(text))).collect();
        let exists = |path: &Path| documents.keys().any(|of| of.starts_with(path));
        documents.iter().flat_map(|(path, of)| of.broken(path, &documents, exists)).collect()
    }

    #[test]
    fn links_to_files_and_headings_are_found() {
        let target = "# Some `code`, and more\n## Twice\n## Twice\n";
        let links =
            "[a](b/target.md) [b](b/target.md#some-code-and-more) [c](b/target.md#twice-1) [d](#here)\n# Here\n";
        assert_eq!(broken(&[("b/target.md", target), ("from.md", links)]), [""; 0]);
        let links = "[a](target.md) [b](b/target.md#other) ![c](b/none.svg) [d](#there) [e](https://a.b/c.md)";
        let found = broken(&[("b/target.md", target), ("from.md", links)]);
        assert_eq!(
            found,
            ["from.md: target.md", "from.md: b/target.md#other", "from.md: b/none.svg", "from.md: #there"]
        );
    }

    #[test]
    fn a_link_out_of_the_book_is_broken_and_named_files_must_exist() {
        let chapter = "[a](../../../README.md) `docs/lab/none.md` `README.md` `docs/{b}.rs` `src/lib.rs` `docs/book/src/chapter.md`";
        let found = broken(&[("README.md", ""), ("docs/book/src/chapter.md", chapter)]);
        assert_eq!(
            found,
            ["docs/book/src/chapter.md: ../../../README.md", "docs/book/src/chapter.md: `docs/lab/none.md`"]
        );
    }
}
