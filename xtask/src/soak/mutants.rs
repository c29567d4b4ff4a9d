//! `cargo xtask soak mutants`: changes one thing at a time in a crate, and counts the changes found by its tests.
//!
//! cargo-mutants lists the changes. All are compiled into one program, an environment variable selects one of them, and
//! the tests that reach it judge it: minutes, where a build for each change takes days.

mod judge;
mod list;
mod switch;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;

use self::judge::Fate;
use self::list::Mutant;
use self::switch::Id;
use crate::table::Table;
use crate::workspace::{Package, TaskError, Workspace};

/// Required share of changes found.
const CAUGHT_MIN: f64 = 0.95;

/// Options for `cargo xtask soak mutants`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Crate to change: protocols, ack-piggyback, gc, log-io, log-core or another one with a library
    #[arg(short, long)]
    package: String,
    /// Judge by this crate's tests too, and those of the changed one; repeatable
    #[arg(long = "tests-of", value_name = "PACKAGE")]
    tests_of: Vec<String>,
    /// Only the changes in files with a matching path: `**/recovery/*.rs`
    #[arg(long, value_name = "GLOB")]
    file: Option<String>,
    /// Every Nth change, from number K on, from 0: `0/8`
    #[arg(long, value_name = "K/N", default_value = "0/1")]
    shard: Shard,
    /// Judge only the changes that the last report of this package has as not found, and add the result to it
    #[arg(long, conflicts_with_all = ["file", "shard"])]
    again: bool,
    /// Size of the tests' campaigns, in percent of the usual size
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    campaign_percent: u32,
    /// Number of tests at a time [default: number of cores]
    #[arg(long)]
    jobs: Option<NonZero<usize>>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// Part of the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shard {
    first: usize,
    step: usize,
}

impl FromStr for Shard {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, step) = text.split_once('/').ok_or("K/N is two numbers with a slash")?;
        match (first.parse(), step.parse()) {
            (Ok(first), Ok(step)) if first < step => Ok(Shard { first, step }),
            _ => Err("K/N is two numbers, and K is less than N"),
        }
    }
}

/// Number of changes by fate, and the names of those not found by any test.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Outcome {
    found: usize,
    timed_out: usize,
    /// The change doesn't compile.
    unviable: usize,
    /// Changes in constants, in other configurations, or of a kind unsupported by a switch.
    left_out: usize,
    not_found: Vec<String>,
    not_reached: Vec<String>,
}

impl Outcome {
    /// Reads a package's last report.
    fn read(report: &Path) -> Result<Outcome, TaskError> {
        let text = fs::read_to_string(report).map_err(TaskError::file(report))?;
        serde_json::from_str(&text).map_err(|error| TaskError::file(report)(error.into()))
    }

    fn add(&mut self, mutants: &[Mutant], fates: &BTreeMap<Id, Fate>, unviable: &BTreeSet<Id>) {
        self.unviable += unviable.len();
        for (id, mutant) in mutants.iter().enumerate().filter(|(id, _)| !unviable.contains(id)) {
            match fates.get(&id) {
                Some(Fate::Found) => self.found += 1,
                Some(Fate::TimedOut) => self.timed_out += 1,
                Some(Fate::NotFound) => self.not_found.push(mutant.name.clone()),
                Some(Fate::NotReached) => self.not_reached.push(mutant.name.clone()),
                None => self.left_out += 1,
            }
        }
    }

    /// Returns the share of applied changes that were found; 0 if none was applied.
    fn share(&self) -> f64 {
        let found = self.found + self.timed_out;
        let all = found + self.not_found.len() + self.not_reached.len();
        if all == 0 { 0.0 } else { found as f64 / all as f64 }
    }
}

/// Locks the folder, waiting for another run: only one uses it at a time.
fn lock(path: &Path) -> Result<File, TaskError> {
    let file = File::create(path).map_err(TaskError::file(path))?;
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        eprintln!("waiting for another run");
        file.lock().map_err(TaskError::file(path))?;
    }
    Ok(file)
}

/// Judges the changes.
///
/// Returns `true` if enough of them were found.
///
/// # Errors
/// [`TaskError::Missing`] without cargo-mutants, [`TaskError::NoPackage`] for a crate without a library, and
/// [`TaskError::Output`] for tests that fail without a change.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    let (package, library) = find(workspace, &options.package)?;
    let mut packages = vec![package.clone()];
    for name in &options.tests_of {
        packages.push(find(workspace, name)?.0);
    }
    let Shard { first, step } = options.shard;
    let folder = workspace.target().join("soak").join("mutants");
    fs::create_dir_all(&folder).map_err(TaskError::file(&folder))?;
    let _lock = lock(&folder.join("lock"))?;
    let report = folder.join(format!("{package}.json"));
    let mut outcome = if options.again { Outcome::read(&report)? } else { Outcome::default() };
    let mutants = list::list(workspace, &package, options.file.as_deref())?;
    let mut mutants: Vec<_> = mutants.into_iter().skip(first).step_by(step).collect();
    if options.again {
        let mut names: BTreeSet<_> = outcome.not_found.drain(..).chain(outcome.not_reached.drain(..)).collect();
        mutants.retain(|mutant| names.remove(&mutant.name));
        if !names.is_empty() {
            eprintln!("{} changes of the report are not in the source any more, and stay not found", names.len());
        }
        outcome.not_found.extend(names);
    }
    eprintln!("{} changes of {package}", mutants.len());
    let built = tree::build(workspace, &folder, &library, &packages, &mutants)?;
    let made: Vec<_> =
        (0..mutants.len()).filter(|id| !built.unviable.contains(id) && !built.left_out.contains(id)).collect();
    let jobs = options.jobs.or(thread::available_parallelism().ok()).map_or(1, NonZero::get);
    let scratch = folder.join("scratch");
    let campaign_percent = options.campaign_percent;
    let tests = judge::Tests { programs: &built.programs, package: &package, scratch: &scratch, campaign_percent };
    let fates = judge::judge(&tests, &made, jobs)?;
    // Files that a test couldn't remove don't change the result.
    let _ = fs::remove_dir_all(&scratch);
    outcome.add(&mutants, &fates, &built.unviable);
    let text = serde_json::to_string_pretty(&outcome).map_err(|error| TaskError::file(&report)(error.into()))?;
    fs::write(&report, text).map_err(TaskError::file(&report))?;
    Ok(print_report(options, &package, &outcome))
}

/// Returns a package's name, which may be given without its prefix, and its library's root file.
fn find(workspace: &Workspace, name: &str) -> Result<(String, PathBuf), TaskError> {
    let library_of = |package: &Package| Some((package.name.clone(), package.library.clone()?));
    workspace.package(name).and_then(library_of).ok_or_else(|| {
        let known: Vec<_> = workspace.packages().iter().filter_map(library_of).map(|(name, _)| name).collect();
        TaskError::NoPackage { name: name.to_owned(), known: known.join(", ") }
    })
}

/// Prints the table or the JSON object.
///
/// Returns `true` if enough changes were found.
fn print_report(options: &Options, package: &str, outcome: &Outcome) -> bool {
    let Outcome { found, timed_out, unviable, left_out, not_found, not_reached } = outcome;
    let passed = outcome.share() >= CAUGHT_MIN;
    if options.json {
        println!("{}", json!({ "package": package, "passed": passed, "share": outcome.share(), "outcome": outcome }));
        return passed;
    }
    let mut table =
        Table::new(["package", "found", "timeouts", "not found", "not reached", "don't compile", "not made", "share"]);
    table.row([
        package.to_owned(),
        found.to_string(),
        timed_out.to_string(),
        not_found.len().to_string(),
        not_reached.len().to_string(),
        unviable.to_string(),
        left_out.to_string(),
        format!("{:.1} %", 100.0 * outcome.share()),
    ]);
    println!("\n{table}");
    not_found.iter().for_each(|name| println!("not found: {name}"));
    not_reached.iter().for_each(|name| println!("not reached by a test: {name}"));
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_counted_and_survivors_named() {
        let mutants = ["a", "b", "c", "d", "e", "f"].map(|name| Mutant {
            name: name.to_owned(),
            file: "src/lib.rs".into(),
            genre: "FnValue".to_owned(),
            start: (1, 1),
            replacement: "0".to_owned(),
        });
        let fates = [Fate::Found, Fate::TimedOut, Fate::NotFound, Fate::NotReached].into_iter().enumerate().collect();
        let mut outcome = Outcome { found: 2, ..Outcome::default() };
        outcome.add(&mutants, &fates, &BTreeSet::from([4]));
        let (not_found, not_reached) = (vec!["c".to_owned()], vec!["d".to_owned()]);
        assert_eq!(outcome, Outcome { found: 3, timed_out: 1, unviable: 1, left_out: 1, not_found, not_reached });
        assert!((outcome.share() - 4.0 / 6.0).abs() < 1e-9);
        assert_eq!(Outcome::default().share(), 0.0);
    }

    #[test]
    fn a_shard_is_two_numbers() {
        assert_eq!("1/4".parse(), Ok(Shard { first: 1, step: 4 }));
        assert!(["4/4", "1", "a/b", "1/0", "-1/2"].iter().all(|text| text.parse::<Shard>().is_err()));
    }
}
