//! `cargo xtask book`: builds the book as web pages after checking all links.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;

use crate::suite::links;
use crate::workspace::{TaskError, Workspace, run_checked};

/// mdBook version to install if none is found.
const MDBOOK: &str = "0.5.4";

/// Options for `cargo xtask book`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Open it in a browser
    #[arg(long)]
    open: bool,
}

/// Checks the links and builds the book.
///
/// Returns `true` if no link is broken.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    let checked = links::check(workspace);
    if let Err(broken) = &checked {
        println!("broken links:\n{broken}");
    }
    let pages = workspace.target().join("book");
    let mut command = Command::new(find_or_install(workspace)?);
    command.arg("build").arg(workspace.root().join("docs/book")).arg("--dest-dir").arg(&pages);
    if options.open {
        command.arg("--open");
    }
    run_checked(&mut command)?;
    println!("{}", pages.join("index.html").display());
    Ok(checked.is_ok())
}

/// Returns the mdBook in PATH, or else the one below the target directory, compiling it first if missing.
fn find_or_install(workspace: &Workspace) -> Result<PathBuf, TaskError> {
    let in_path = PathBuf::from("mdbook");
    let is_there = Command::new(&in_path).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if is_there {
        return Ok(in_path);
    }
    let root = workspace.target().join("mdbook");
    let installed = root.join("bin/mdbook");
    if !installed.exists() {
        println!("compiling mdBook {MDBOOK} into {}", root.display());
        let arguments = ["install", "mdbook", "--locked", "--version", MDBOOK, "--root"];
        run_checked(workspace.cargo(arguments).arg(&root))?;
    }
    Ok(installed)
}
