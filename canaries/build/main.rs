//! Writes the modules in this crate: the rules from `counterfoil-protocols`, with the mistakes in `mistakes/*.toml`.
#![forbid(unsafe_code)]

mod mistakes;
mod place;

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use mistakes::Family;
use place::Edit;

/// Modules not built a second time: the root, `api`, which is shared, and `cluster`, which no rule uses.
const SHARED: [&str; 3] = ["lib", "api", "cluster"];
/// Absolute path of the rules' source directory, if it isn't the one in `counterfoil-protocols`: for tests with changed
/// sources.
const SOURCES: &str = "COUNTERFOIL_CANARIES_OF";
/// Lints allowed in the rules: they are checked in the original crate.
const ALLOWED: &str = "#[allow(missing_docs, unused, unreachable_pub, clippy::all)]";

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let sources = env::var_os(SOURCES).map_or_else(|| manifest.join("../protocols/src"), PathBuf::from);
    let listed = manifest.join("mistakes");
    tell_cargo(&format!("rerun-if-changed={}", sources.display()));
    tell_cargo(&format!("rerun-if-changed={}", listed.display()));
    tell_cargo(&format!("rerun-if-env-changed={SOURCES}"));

    let families = mistakes::read(&listed)?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("canary.rs"), mistakes::source(&families)?)?;
    let rules = out.join("rules");
    if rules.exists() {
        fs::remove_dir_all(&rules)?;
    }
    fs::write(out.join("rules.rs"), write_rules(&sources, &rules, by_file(&families))?)?;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "a build script's way to tell Cargo something")]
fn tell_cargo(what: &str) {
    println!("cargo::{what}");
}

/// Edits to a source, each with the name of its mistake.
type Edits<'a> = Vec<(&'a str, &'a Edit)>;

fn by_file(families: &[Family]) -> BTreeMap<&Path, Edits<'_>> {
    let mut edits: BTreeMap<&Path, Edits<'_>> = BTreeMap::new();
    for mistake in families.iter().flat_map(|family| &family.mistakes) {
        for edit in &mistake.edits {
            edits.entry(&edit.file).or_default().push((&mistake.name, edit));
        }
    }
    edits
}

/// Writes the sources for all rules, and returns their module declarations.
fn write_rules(sources: &Path, rules: &Path, mut edits: BTreeMap<&Path, Edits<'_>>) -> Outcome<String> {
    let root = read(&sources.join("lib.rs"))?;
    let mut modules = String::new();
    for (source, text) in read_sources(sources)? {
        let edits = edits.remove(source.as_path()).unwrap_or_default();
        let text = place::edited(&without_tests_and_comments(&text), &edits)
            .map_err(|error| format!("{}: {error}", source.display()))?;
        let name = source.file_stem().and_then(|stem| stem.to_str()).ok_or("a source isn't named in UTF-8")?;
        let is_root = source.components().count() == 1;
        // A module with a `#[path]` looks for its children in its own directory, so it goes to their directory.
        let target = if is_root { rules.join(name).join("mod.rs") } else { rules.join(&source) };
        fs::create_dir_all(target.parent().ok_or("a source has no directory")?)?;
        fs::write(&target, text)?;
        if is_root {
            let visibility = if root.contains(&format!("pub mod {name};")) { "pub " } else { "" };
            writeln!(modules, "{ALLOWED}\n#[path = {target:?}]\n{visibility}mod {name};")?;
        }
    }
    match edits.first_key_value() {
        None => Ok(modules),
        Some((source, edits)) => {
            Err(format!("{}, for {}: no rule has this source", source.display(), edits[0].0).into())
        }
    }
}

/// Returns the source without the rules' own tests, and without all comment lines, on which no mistake may depend.
fn without_tests_and_comments(source: &str) -> String {
    let lines: Vec<&str> = source.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    lines.join("\n").replace("#[cfg(test)]", "#[cfg(any())]")
}

fn read(path: &Path) -> Outcome<String> {
    Ok(fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?)
}

/// Returns the sources of the rules, and the path of each from `directory`.
fn read_sources(directory: &Path) -> Outcome<Vec<(PathBuf, String)>> {
    let is_shared = |path: &Path| path.file_stem().is_some_and(|stem| SHARED.iter().any(|shared| stem == *shared));
    let mut open: Vec<PathBuf> = entries(directory)?.into_iter().filter(|path| !is_shared(path)).collect();
    let mut sources = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(entries(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push((path.strip_prefix(directory)?.to_owned(), read(&path)?));
        }
    }
    sources.sort();
    Ok(sources)
}

/// Returns the paths in a directory, in order.
fn entries(directory: &Path) -> Outcome<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Outcome<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}
