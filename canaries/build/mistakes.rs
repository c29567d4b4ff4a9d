//! The list of mistakes, and the source for the enumeration of their names.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::place::Edit;
use super::{Outcome, entries};

/// A mistakes file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Family {
    /// Name of the file.
    #[serde(skip)]
    name: String,
    /// Names of the rules to which its mistakes apply.
    rules: Vec<String>,
    /// Simulator mistakes without effect under these rules.
    without_effect: Vec<String>,
    #[serde(rename = "mistake")]
    pub(super) mistakes: Vec<Mistake>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mistake {
    /// A variant's name.
    pub(super) name: String,
    /// The wrong behaviour, and its place in the paper.
    doc: String,
    /// Rules to which it applies, if not all in its file.
    rules: Option<Vec<String>>,
    #[serde(rename = "edit")]
    pub(super) edits: Vec<Edit>,
}

impl Mistake {
    /// Checks that something depends on this mistake being planted, and nothing on another one.
    fn check(&self) -> Result<(), String> {
        let own = format!("planted!({})", self.name);
        let withs = || self.edits.iter().filter_map(|edit| edit.with.as_deref());
        if withs().any(|with| with.matches("planted!(").count() != with.matches(&own).count()) {
            return Err(format!("{}: `with` tests whether another mistake is planted", self.name));
        }
        if self.edits.iter().all(|edit| edit.wrong.is_none()) && !withs().any(|with| with.contains(&own)) {
            return Err(format!("{}: no edit has `wrong`, or tests {own}", self.name));
        }
        Ok(())
    }
}

/// Reads the files of a directory.
pub(super) fn read(directory: &Path) -> Outcome<Vec<Family>> {
    let read = |path: PathBuf| -> Outcome<Family> {
        let wrong = |error: String| format!("{}: {error}", path.display());
        let family: Family = toml::from_str(&super::read(&path)?).map_err(|error| wrong(error.to_string()))?;
        family.mistakes.iter().try_for_each(Mistake::check).map_err(wrong)?;
        let name = path.file_stem().and_then(|stem| stem.to_str()).ok_or("a file of mistakes isn't named in UTF-8")?;
        Ok(Family { name: name.to_owned(), ..family })
    };
    let is_list = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "toml");
    entries(directory)?.into_iter().filter(is_list).map(read).collect()
}

/// Returns the source for `Canary`, its list `ALL`, the table `ABOUT` in the same order, and the table `FAMILIES`.
pub(super) fn source(families: &[Family]) -> Outcome<String> {
    let (mut variants, mut all, mut about, mut count) = (String::new(), String::new(), String::new(), 0);
    let mut of_families = String::new();
    for family in families {
        let Family { rules, without_effect, .. } = family;
        writeln!(of_families, "    Family {{ rules: &{rules:?}, without_effect: &{without_effect:?} }},")?;
        for Mistake { name, doc, rules, .. } in &family.mistakes {
            let rules = rules.as_ref().unwrap_or(&family.rules);
            writeln!(variants, "    /// {doc}\n    {name},")?;
            writeln!(all, "        Canary::{name},")?;
            writeln!(
                about,
                "    About {{ name: {name:?}, family: {:?}, rules: &{rules:?}, description: {doc:?} }},",
                family.name
            )?;
            count += 1;
        }
    }
    Ok(format!(
        "/// Mistake that can be planted in a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Canary {{
{variants}}}

impl Canary {{
    /// All mistakes.
    pub const ALL: [Canary; {count}] = [
{all}    ];
}}

const ABOUT: [About; {count}] = [
{about}];

const FAMILIES: [Family; {}] = [
{of_families}];
",
        families.len()
    ))
}
