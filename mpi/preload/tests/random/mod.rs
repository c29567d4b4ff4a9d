//! Programs that a seed makes (`tests/c/random`): what they receive, and what they send, is the same with and without the library, and if the
//! log is kept, it has the bytes that they have sent.
//!
//! `cargo xtask soak mpi-programs` sets the number of programs and the seed.

mod log;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

use tempfile::TempDir;

use super::launch::{RETRIES, Run, hung, variable};
use super::{all_accounts, channels_agree};

/// Programs in one job.
const BATCH: u32 = 50;
/// Most steps of a program.
const STEPS_MAX: u32 = 99;

/// Way in which programs run under the library.
struct Way {
    name: &'static str,
    settings: &'static [(&'static str, &'static str)],
    /// Levels of thread support, which jobs use in turn.
    levels: &'static [&'static str],
    /// The log is in files, and kept.
    is_kept: bool,
}

const WAYS: [Way; 4] = [
    Way { name: "acked", settings: &[], levels: &["single", "funneled", "serialized"], is_kept: false },
    Way { name: "acked, MPI_THREAD_MULTIPLE", settings: &[], levels: &["multiple"], is_kept: false },
    Way {
        name: "all",
        settings: &[("COUNTERFOIL_KEEP", "all"), ("COUNTERFOIL_BUDGET", "1GiB")],
        levels: &["serialized", "multiple", "single"],
        is_kept: false,
    },
    Way {
        name: "all, spilled",
        settings: &[("COUNTERFOIL_KEEP", "all"), ("COUNTERFOIL_TIER", "node-local"), ("COUNTERFOIL_BUDGET", "8MiB")],
        levels: &["single", "multiple"],
        is_kept: true,
    },
];

/// Programs of a job: those of a seed from one number on, and at most so many steps of each.
#[derive(Clone, Copy, Debug)]
struct Batch {
    ranks: u32,
    seed: u64,
    first: u32,
    count: u32,
    steps: u32,
}

impl Batch {
    /// Runs the programs, under the library if `way` is given; returns the printed lines by what they begin with.
    ///
    /// # Errors
    /// What failed, and the first program that may have.
    fn run(self, way: Option<&Way>) -> Result<BTreeMap<String, String>, (String, u32)> {
        for _ in 0..RETRIES {
            let (folder, output) = self.launch(way);
            if !hung("random", &output) {
                return self.results(way, folder.path(), &output);
            }
            let name = way.map_or("without the library", |way| way.name);
            eprintln!("{self:?}, {name}: hung and was killed; running it again");
        }
        let (folder, output) = self.launch(way);
        self.results(way, folder.path(), &output)
    }

    /// Runs the programs; returns the folder with what the library has written.
    fn launch(self, way: Option<&Way>) -> (TempDir, Output) {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let log = folder.path().join("log");
        let mut run = Run::default();
        let numbers = [self.seed, self.first.into(), self.count.into(), self.steps.into()];
        let mut arguments = numbers.map(|number| &*number.to_string().leak()).to_vec();
        if let Some(way) = way {
            run = Run::with_the_library(folder.path(), way.settings);
            arguments.push(way.levels[self.ranks as usize % way.levels.len()]);
            if way.is_kept {
                make_private(&log);
                run.variables.push(("COUNTERFOIL_LOG_DIR", log.to_str().unwrap().to_owned()));
            }
        }
        run.arguments = arguments;
        let output = run.once("random", self.ranks);
        (folder, output)
    }

    /// Returns what the programs have printed, by name.
    fn results(
        self,
        way: Option<&Way>,
        folder: &Path,
        output: &Output,
    ) -> Result<BTreeMap<String, String>, (String, u32)> {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            let last =
                out.lines().filter_map(|line| line.split_once(':')).filter_map(|(name, _)| program_of(name)).max();
            let suspect = last.map_or(self.first, |last| (last + 1).min(self.first + self.count - 1));
            return Err((format!("{}, in program {suspect}: {err}", output.status), suspect));
        }
        let lines: BTreeMap<String, String> = out
            .lines()
            .filter_map(|line| line.rsplit_once([' ']))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        if let Some(way) = way {
            self.check_log(way, folder, &lines, &err).map_err(|error| (error, self.first))?;
        }
        Ok(lines)
    }

    /// Compares what the library has counted and logged with what the programs have sent; `err` is shown on failure.
    fn check_log(self, way: &Way, folder: &Path, lines: &BTreeMap<String, String>, err: &str) -> Result<(), String> {
        let accounts = all_accounts(folder, self.ranks, err);
        if accounts.iter().any(|account| !account["gave_up"].is_null()) {
            return Err(format!("a rank gave up logging: {err}"));
        }
        channels_agree(&accounts, 0);
        for (rank, account) in accounts.iter().enumerate() {
            let sent = &lines[&format!("rank {rank} sent")];
            if account["messages_logged"].as_u64() != sent.parse().ok() {
                return Err(format!("rank {rank} sent {sent} messages, logged are {}", account["messages_logged"]));
            }
        }
        if way.is_kept { log::has_what_was_sent(&folder.join("log"), self.ranks, lines) } else { Ok(()) }
    }

    /// Returns how the programs differ under the library.
    fn difference(self, way: &Way) -> Option<(String, u32)> {
        let plain = self.run(None).unwrap_or_else(|error| panic!("{self:?} without the library: {error:?}"));
        match self.run(Some(way)) {
            Err(difference) => Some(difference),
            Ok(lines) if lines == plain => None,
            Ok(lines) => {
                let (name, value) = plain.iter().find(|(name, value)| lines.get(*name) != Some(value))?;
                let program = program_of(name.trim_end_matches(':'));
                let differs = format!("{name} {value}, and with the library {:?}", lines.get(name));
                Some((differs, program.unwrap_or(self.first)))
            }
        }
    }

    /// Returns the smallest part of a failing batch that still fails: one program, and as few of its steps as possible.
    fn shrink(self, way: &Way, suspect: u32) -> Batch {
        let programs = std::iter::once(suspect).chain(self.first..self.first + self.count);
        let one = |first| Batch { first, count: 1, ..self };
        let Some(program) = programs.map(one).find(|batch| batch.difference(way).is_some()) else { return self };
        let fewer = (1..=20).map(|steps| Batch { steps, ..program });
        fewer.into_iter().find(|batch| batch.difference(way).is_some()).unwrap_or(program)
    }
}

/// Returns the number in `program NUMBER`.
fn program_of(name: &str) -> Option<u32> {
    name.strip_prefix("program ")?.parse().ok()
}

fn make_private(dir: &Path) {
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::create_dir(dir).unwrap();
    std::fs::set_permissions(dir, private).unwrap();
}

#[test]
fn random_programs_behave_the_same_with_and_without_the_library() {
    let programs: u32 = variable("COUNTERFOIL_PROGRAMS", "500").parse().unwrap();
    let seed: u64 = variable("COUNTERFOIL_PROGRAMS_SEED", "1").parse().unwrap();
    let begin: u32 = variable("COUNTERFOIL_PROGRAMS_FIRST", "0").parse().unwrap();
    for first in (begin..programs).step_by(BATCH as usize) {
        let (ranks, count) = (2 + first / BATCH % 5, BATCH.min(programs - first));
        let batch = Batch { ranks, seed, first, count, steps: STEPS_MAX };
        let plain = batch.run(None).unwrap_or_else(|error| panic!("{batch:?} without the library: {error:?}"));
        for way in &WAYS {
            let under = batch.run(Some(way));
            if under.as_ref() == Ok(&plain) {
                continue;
            }
            eprintln!("{batch:?}, {}: {:?}; looking for the smallest part", way.name, under.as_ref().err());
            let (what, suspect) = under.err().unwrap_or_else(|| batch.difference(way).unwrap_or_default());
            let small = batch.shrink(way, suspect);
            panic!("{}: {what}\nThe smallest part that differs: {small:?}", way.name);
        }
        eprintln!("{} programs, seed {seed}: no difference", first + batch.count);
    }
}
