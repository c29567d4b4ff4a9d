//! Builds a copy of the workspace with the changes.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use super::list::Mutant;
use super::switch::{self, Id, Switched};
use crate::workspace::{TaskError, Workspace, command_line};

/// A test program in the copy.
#[derive(Clone, Debug)]
pub(super) struct TestProgram {
    pub(super) path: PathBuf,
    /// Package directory, in which cargo runs the program.
    pub(super) folder: PathBuf,
    pub(super) package: String,
}

/// Result of building the changes.
#[derive(Debug, Default)]
pub(super) struct Built {
    pub(super) programs: Vec<TestProgram>,
    /// Changes rejected by the compiler.
    pub(super) unviable: BTreeSet<Id>,
    /// Changes that a switch can't make.
    pub(super) left_out: BTreeSet<Id>,
}

/// Copies the workspace to `folder`, applies the changes to the crate with root file `library`, and builds the tests in
/// `packages`.
///
/// Changes rejected by the compiler are left out, a round at a time, until the rest compiles.
pub(super) fn build(
    workspace: &Workspace,
    folder: &Path,
    library: &Path,
    packages: &[String],
    mutants: &[Mutant],
) -> Result<Built, TaskError> {
    let root = folder.join("tree");
    if root.exists() {
        fs::remove_dir_all(&root).map_err(TaskError::file(&root))?;
    }
    copy(workspace.root(), &root, workspace.target()).map_err(TaskError::file(&root))?;
    let mut built = Built::default();
    loop {
        let mut files = Vec::new();
        for (file, mut changes) in switch::by_file(mutants, library) {
            changes.retain(|(id, _)| !built.unviable.contains(id));
            let original = workspace.root().join(file);
            let source = fs::read_to_string(&original).map_err(TaskError::file(&original))?;
            let switched = switch::switch(&source, &changes).map_err(|error| TaskError::Output {
                program: format!("parse {}", original.display()),
                reason: error.to_string(),
            })?;
            built.left_out.extend(&switched.left_out);
            let path = root.join(file);
            fs::write(&path, &switched.text).map_err(TaskError::file(&path))?;
            files.push((file.to_owned(), switched));
        }
        add_module(&root, library, mutants.len())?;
        let refused = compile(workspace, &root, folder, packages, &files, &mut built)?;
        if refused.is_empty() {
            let sources = sources(&built.programs);
            let is_built = |mutant: &Mutant| sources.contains(mutant.file.as_path());
            built.left_out.extend((0..mutants.len()).filter(|id| !is_built(&mutants[*id])));
            return Ok(built);
        }
        eprintln!("{} more changes don't compile", refused.len());
        built.unviable.extend(refused);
    }
}

/// Adds the module to the library.
fn add_module(root: &Path, library: &Path, changes: usize) -> Result<(), TaskError> {
    let path = root.join(library.with_file_name("mutation_switch.rs"));
    fs::write(&path, switch::module(changes)).map_err(TaskError::file(&path))?;
    // Changes in this file itself are made before its end.
    let path = root.join(library);
    let declaration = "\n#[doc(hidden)]\npub mod mutation_switch;\n";
    let mut file = fs::File::options().append(true).open(&path).map_err(TaskError::file(&path))?;
    file.write_all(declaration.as_bytes()).map_err(TaskError::file(&path))
}

/// Builds the tests.
///
/// Returns the changes reported in compiler messages.
fn compile(
    workspace: &Workspace,
    root: &Path,
    folder: &Path,
    packages: &[String],
    files: &[(PathBuf, Switched)],
    built: &mut Built,
) -> Result<BTreeSet<Id>, TaskError> {
    let mut command = workspace.cargo(["test", "--no-run", "--tests", "--message-format", "json"]);
    command.args(packages.iter().flat_map(|package| ["--package", package]));
    command.current_dir(root).env("CARGO_TARGET_DIR", folder.join("build"));
    // Mistakes are planted in the original rules.
    command.env("COUNTERFOIL_CANARIES_OF", workspace.root().join("protocols/src"));
    // A changed program has warnings absent from the source.
    command.env("RUSTFLAGS", "--cap-lints=warn -Awarnings").stderr(Stdio::null());
    let line = command_line(&command);
    let output = command.output().map_err(|source| TaskError::Start { program: line.clone(), source })?;
    let mut refused = BTreeSet::new();
    let mut unknown = Vec::new();
    built.programs.clear();
    for message in
        output.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok())
    {
        match message["reason"].as_str() {
            Some("compiler-artifact") if message["profile"]["test"] == true => {
                built.programs.extend(program(&message));
            }
            Some("compiler-message") if message["message"]["level"] == "error" => {
                let changes = changes_of(&message["message"], files);
                if changes.is_empty() {
                    unknown.push(message["message"]["rendered"].as_str().unwrap_or_default().to_owned());
                }
                refused.extend(changes);
            }
            _ => {}
        }
    }
    if output.status.success() || !refused.is_empty() {
        return Ok(refused);
    }
    Err(TaskError::Output { program: line, reason: format!("errors outside of the changes:\n{}", unknown.join("\n")) })
}

/// Returns the programs' source files, relative to the workspace root, where cargo runs the compiler.
fn sources(programs: &[TestProgram]) -> BTreeSet<PathBuf> {
    let texts = programs.iter().filter_map(|program| fs::read_to_string(program.path.with_extension("d")).ok());
    let line = |text: String| text.lines().next().map(str::to_owned).unwrap_or_default();
    texts.flat_map(|text| line(text).split(' ').skip(1).map(PathBuf::from).collect::<Vec<_>>()).collect()
}

fn program(artifact: &Value) -> Option<TestProgram> {
    let path = artifact["executable"].as_str()?.into();
    let folder = Path::new(artifact["manifest_path"].as_str()?).parent()?.to_owned();
    // `path+file:///…/gc#counterfoil-gc@0.1.0`
    let package = artifact["package_id"].as_str()?.rsplit(['#', '/']).next()?.split('@').next()?.to_owned();
    Some(TestProgram { path, folder, package })
}

/// Returns the changes that caused an error: those with one of its spans in their text, or else those in the smallest
/// expression around one.
fn changes_of(error: &Value, files: &[(PathBuf, Switched)]) -> BTreeSet<Id> {
    let mut groups: Vec<&[Id]> = Vec::new();
    let children = error["children"].as_array().into_iter().flatten();
    for message in std::iter::once(error).chain(children) {
        for span in message["spans"].as_array().into_iter().flatten() {
            let number = |field: &str| span[field].as_u64().and_then(|number| usize::try_from(number).ok());
            let (Some(name), Some(start), Some(end)) =
                (span["file_name"].as_str(), number("byte_start"), number("byte_end"))
            else {
                continue;
            };
            let file = files.iter().find(|(file, _)| Path::new(name).ends_with(file));
            groups.extend(file.map(|(_, switched)| switched.changes_at(&(start..end))));
        }
    }
    // A change's text has one number; an expression may have several.
    let single = groups.iter().filter(|ids| ids.len() == 1).min_by_key(|ids| ids[0]);
    let smallest = single.or_else(|| groups.iter().filter(|ids| !ids.is_empty()).min_by_key(|ids| ids.len()));
    smallest.map(|ids| ids.iter().copied().collect()).unwrap_or_default()
}

/// Copies a folder, without hidden files and `target`.
fn copy(from: &Path, to: &Path, target: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let is_hidden = name.as_encoded_bytes().starts_with(b".") && name != ".cargo";
        if is_hidden || path == target || name == "target" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            copy(&path, &to.join(name), target)?;
        } else {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}
