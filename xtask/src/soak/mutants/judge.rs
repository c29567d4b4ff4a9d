//! Runs a program's tests with one change at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::switch::Id;
use super::tree::TestProgram;
use crate::soak::show_progress;
use crate::workspace::TaskError;

/// Time limit for a test with a change, as a multiple of its time without one, and the minimum limit.
const TIME_FACTOR: u32 = 8;
const TIME_MIN: Duration = Duration::from_secs(10);
/// Time limit for a test without a change.
const TIME_WITHOUT_CHANGE: Duration = Duration::from_secs(600);

/// Name prefix of tests that compare changed code with the same code unchanged: they would find any change.
const COMPARISONS: &str = "planted::";

/// Test result for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Found,
    /// A test didn't end.
    TimedOut,
    NotFound,
    /// No test runs the changed code.
    NotReached,
}

/// A test in a program.
#[derive(Debug)]
struct Test {
    program: TestProgram,
    name: String,
    elapsed: Duration,
    reaches: BTreeSet<Id>,
}

/// Result of one test run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Passed,
    Failed,
    TimedOut,
}

/// Test programs and their run settings.
#[derive(Debug)]
pub(super) struct Tests<'a> {
    pub(super) programs: &'a [TestProgram],
    /// Changed package.
    pub(super) package: &'a str,
    /// Folder for the tests' files.
    pub(super) scratch: &'a Path,
    pub(super) campaign_percent: u32,
}

/// Runs the tests that reach each change, with it, until one fails.
///
/// # Errors
/// [`TaskError::Output`] if a test fails without a change.
pub(super) fn judge(all: &Tests<'_>, ids: &[Id], jobs: usize) -> Result<BTreeMap<Id, Fate>, TaskError> {
    let campaign_percent = all.campaign_percent.to_string();
    let runs = Runs { folder: all.scratch.to_owned(), next: AtomicUsize::new(0), campaign_percent };
    let mut tests = Vec::new();
    for program in all.programs {
        tests.extend(list(program)?);
    }
    let results = in_parallel(&tests, jobs, "tests without a change", |test| observe(test, &runs));
    for (test, result) in tests.iter_mut().zip(results) {
        (test.elapsed, test.reaches) = result?;
    }
    // The crate's own tests come first.
    tests.sort_by_key(|test| (test.program.package != all.package, test.elapsed));
    let fates = in_parallel(ids, jobs, "changes", |id| fate(*id, &tests, &runs));
    ids.iter().copied().zip(fates).map(|(id, fate)| Ok((id, fate?))).collect()
}

/// Lists a program's tests.
fn list(program: &TestProgram) -> Result<Vec<Test>, TaskError> {
    let line = program.path.display().to_string();
    let output = Command::new(&program.path)
        .args(["--list", "--format", "terse"])
        .current_dir(&program.folder)
        .output()
        .map_err(|source| TaskError::Start { program: line.clone(), source })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    let names = names.filter(|name| !name.starts_with(COMPARISONS));
    let test = |name: &str| Test {
        program: program.clone(),
        name: name.to_owned(),
        elapsed: Duration::ZERO,
        reaches: BTreeSet::new(),
    };
    Ok(names.map(test).collect())
}

/// Runs a test without a change: twice, since recording its reached changes takes more time.
fn observe(test: &Test, runs: &Runs) -> Result<(Duration, BTreeSet<Id>), TaskError> {
    let file = runs.unused();
    run(test, ("COUNTERFOIL_MUTANTS_REACHED", file.as_os_str()), TIME_WITHOUT_CHANGE, runs)?;
    let reached = fs::read_to_string(&file).unwrap_or_default();
    // The file is missing where nothing was reached.
    let _ = fs::remove_file(&file);
    let start = Instant::now();
    let end = run(test, ("COUNTERFOIL_MUTANT", "none".as_ref()), TIME_WITHOUT_CHANGE, runs)?;
    if end != End::Passed {
        return Err(TaskError::Output {
            program: test.program.path.display().to_string(),
            reason: format!("{} fails without a change ({end:?})", test.name),
        });
    }
    Ok((start.elapsed(), reached.lines().filter_map(|id| id.parse().ok()).collect()))
}

fn fate(id: Id, tests: &[Test], runs: &Runs) -> Result<Fate, TaskError> {
    let mut fate = Fate::NotReached;
    for test in tests.iter().filter(|test| test.reaches.contains(&id)) {
        let limit = TIME_MIN.max(test.elapsed * TIME_FACTOR);
        match run(test, ("COUNTERFOIL_MUTANT", id.to_string().as_ref()), limit, runs)? {
            End::Failed => return Ok(Fate::Found),
            End::TimedOut => return Ok(Fate::TimedOut),
            End::Passed => fate = Fate::NotFound,
        }
    }
    Ok(fate)
}

/// Runs a test in its own process, with an environment variable and a folder for its files.
fn run(test: &Test, (name, value): (&str, &std::ffi::OsStr), limit: Duration, runs: &Runs) -> Result<End, TaskError> {
    let folder = runs.unused();
    fs::create_dir_all(&folder).map_err(TaskError::file(&folder))?;
    let mut command = Command::new(&test.program.path);
    command.args(["--exact", &test.name]).current_dir(&test.program.folder).env(name, value);
    command.env("TMPDIR", &folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command.env("CARGO_MANIFEST_DIR", &test.program.folder).env("COUNTERFOIL_CAMPAIGN_PERCENT", &runs.campaign_percent);
    let line = test.program.path.display().to_string();
    let mut child = command.spawn().map_err(|source| TaskError::Start { program: line, source })?;
    let end = wait(&mut child, limit);
    // Includes processes left behind by the test; the group is gone if there are none.
    let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    let ended = child.wait();
    // A process started by the test may still write there for a moment.
    let _ = fs::remove_dir_all(&folder);
    ended.and(end).map_err(TaskError::file(&test.program.path))
}

/// Waits for a test, `limit` at most.
///
/// A test that timed out still runs.
fn wait(child: &mut Child, limit: Duration) -> io::Result<End> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(500);
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(if status.success() { End::Passed } else { End::Failed }),
            None if start.elapsed() > limit => return Ok(End::TimedOut),
            None => thread::sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// State shared by all test runs.
struct Runs {
    /// Folder for the runs' files; each name in it is used once.
    folder: PathBuf,
    next: AtomicUsize,
    campaign_percent: String,
}

impl Runs {
    fn unused(&self) -> PathBuf {
        self.folder.join(self.next.fetch_add(1, Ordering::Relaxed).to_string())
    }
}

/// Applies `work` to all items, `jobs` at a time, with a progress line.
fn in_parallel<T: Sync, R: Send>(items: &[T], jobs: usize, what: &str, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(items.len()));
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    let result = work(item);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((at, result));
                    let line = format!("{} of {} {what}", done.len(), items.len());
                    show_progress(
                        &line,
                        done.len() == items.len(),
                        done.len().is_multiple_of(items.len().div_ceil(20)),
                    );
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}
