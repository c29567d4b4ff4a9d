//! Programs generated from a seed (`tests/c/random`).
//!
//! They receive and send the same with and without the library, and a kept log has the bytes they have sent. `cargo
//! xtask soak mpi-programs` sets the number of programs and the seed.

mod log;

use std::path::Path;
use std::process::Output;

use tempfile::TempDir;

use super::batch::{Batch, Lines, PLAIN_RUNS, lines};
use super::launch::Run;
use super::{channel_that_differs, private_shared_memory, read_accounts};

/// Way to run programs under the library.
struct Way {
    name: &'static str,
    settings: &'static [(&'static str, &'static str)],
    /// Thread support levels, which jobs use in turn.
    levels: &'static [&'static str],
    /// The log is in files, and kept.
    is_kept: bool,
}

const WAYS: [Way; 6] = [
    Way { name: "acked", settings: &[], levels: &["single", "funneled", "serialized"], is_kept: false },
    Way { name: "acked, MPI_THREAD_MULTIPLE", settings: &[], levels: &["multiple"], is_kept: false },
    Way {
        name: "acked, process-crash-safe, space is claimed before a send",
        settings: &[("COUNTERFOIL_TIER", "process-crash-safe"), ("COUNTERFOIL_ON_FULL", "fail")],
        levels: &["single", "serialized", "multiple"],
        is_kept: false,
    },
    Way {
        name: "checkpoint",
        settings: &[("COUNTERFOIL_KEEP", "checkpoint"), ("COUNTERFOIL_BUDGET", "1GiB")],
        levels: &["multiple", "single", "serialized"],
        is_kept: false,
    },
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

impl Batch {
    /// Runs the programs at a thread support level, under the library if `way` is given.
    ///
    /// Returns the printed lines by their beginnings.
    ///
    /// # Errors
    /// The failure, and the first program that may have failed.
    fn run(self, level: &'static str, way: Option<&Way>) -> Result<Lines, (String, u32)> {
        let (folder, output) = self.launch(level, way);
        self.results(way, folder.path(), &output)
    }

    /// Runs the programs without the library.
    fn run_plain(self, level: &'static str) -> Lines {
        self.run(level, None).unwrap_or_else(|error| panic!("{self:?} without the library: {error:?}"))
    }

    /// Runs the programs under the library.
    fn run_under(self, way: &Way) -> Result<Lines, (String, u32)> {
        self.run(self.level(way), Some(way))
    }

    fn level(self, way: &Way) -> &'static str {
        way.levels[self.ranks as usize % way.levels.len()]
    }

    /// Returns `true` if the programs call MPI like Fortran programs: in every other way.
    fn is_in_fortran(self, way: &Way) -> bool {
        let number = WAYS.iter().position(|other| other.name == way.name).unwrap_or_default();
        (self.ranks as usize + number).is_multiple_of(2)
    }

    /// Runs the programs; returns the folder with the library's output.
    fn launch(self, level: &'static str, way: Option<&Way>) -> (TempDir, Output) {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let log = folder.path().join("log");
        let mut run = Run::default();
        let shm = private_shared_memory();
        if let Some(way) = way {
            run = Run::with_the_library(folder.path(), way.settings);
            run.variables.push(("COUNTERFOIL_SHM_DIR", shm.path().to_str().unwrap().to_owned()));
            if way.is_kept {
                make_private(&log);
                run.variables.push(("COUNTERFOIL_LOG_DIR", log.to_str().unwrap().to_owned()));
            }
        }
        run.arguments = self.arguments(level).into_iter().map(|argument| &*argument.leak()).collect();
        let is_in_fortran = way.is_some_and(|way| self.is_in_fortran(way));
        let output = run.once(if is_in_fortran { "random-in-fortran" } else { "random" }, self.ranks);
        (folder, output)
    }

    /// Returns the programs' output by name.
    fn results(self, way: Option<&Way>, folder: &Path, output: &Output) -> Result<Lines, (String, u32)> {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            let last =
                out.lines().filter_map(|line| line.split_once(':')).filter_map(|(name, _)| program_of(name)).max();
            let suspect = last.map_or(self.first, |last| (last + 1).min(self.first + self.count - 1));
            return Err((format!("{}, in program {suspect}: {err}", output.status), suspect));
        }
        let lines = lines([&*out]);
        if let Some(way) = way {
            self.check_log(way, folder, &lines, &err).map_err(|error| (error, self.first))?;
        }
        Ok(lines)
    }

    /// Compares the library's counts and logs with the messages the programs have sent; `err` is shown on failure.
    fn check_log(self, way: &Way, folder: &Path, lines: &Lines, err: &str) -> Result<(), String> {
        let accounts = read_accounts(folder, self.ranks).map_err(|error| format!("{error}; {err}"))?;
        if accounts.iter().any(|account| !account["gave_up"].is_null()) {
            return Err(format!("a rank gave up logging: {err}"));
        }
        if let Some(difference) = channel_that_differs(&accounts, 0) {
            return Err(difference);
        }
        for (rank, account) in accounts.iter().enumerate() {
            let sent = &lines[&format!("rank {rank} sent")];
            if account["messages_logged"].as_u64() != sent.parse().ok() {
                return Err(format!("rank {rank} sent {sent} messages, logged are {}", account["messages_logged"]));
            }
        }
        if way.is_kept { log::has_what_was_sent(&folder.join("log"), self.ranks, lines) } else { Ok(()) }
    }

    /// Adds to a failure under the library whether the programs fail without it, too, at the same thread support level.
    fn judged_without(self, way: &Way, (what, suspect): (String, u32)) -> (String, u32) {
        let without = match self.run(self.level(way), None) {
            Ok(_) => "without the library they end".to_owned(),
            Err((error, _)) => format!("without the library they fail, too: {error}"),
        };
        (format!("{what}; {without}"), suspect)
    }

    /// Returns the programs' difference under the library.
    fn difference(self, way: &Way) -> Option<(String, u32)> {
        let plain = self.run_plain("single");
        match self.run_under(way) {
            Err(difference) => Some(difference),
            Ok(lines) => self.differs(way, &plain, &lines),
        }
    }

    /// Returns the difference between `lines` and the output without the library.
    ///
    /// The latter is `plain`, or, since some results depend on time in some MPI at some thread support level, the
    /// output of a few more runs at the same level.
    fn differs(self, way: &Way, plain: &Lines, lines: &Lines) -> Option<(String, u32)> {
        if let Some((name, value)) = lines.iter().find(|(name, _)| !plain.contains_key(*name)) {
            return Some((format!("{name} {value} with the library only"), self.first));
        }
        let mut open: Vec<(&String, &String)> =
            plain.iter().filter(|(name, value)| lines.get(*name) != Some(value)).collect();
        for _ in 0..PLAIN_RUNS {
            let (name, value) = open.first()?;
            eprintln!(
                "{self:?}, {}: {name} {value}, and with the library {:?}; running it without",
                way.name,
                lines.get(*name)
            );
            let again = self.run_plain(self.level(way));
            open.retain(|(name, _)| again.get(*name) != lines.get(*name));
        }
        let (name, value) = open.first()?;
        let program = program_of(name.trim_end_matches(':')).unwrap_or(self.first);
        Some((format!("{name} {value}, and with the library {:?}", lines.get(*name)), program))
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
    for batch in Batch::all(50) {
        let plain = batch.run_plain("single");
        for way in &WAYS {
            let difference = match batch.run_under(way) {
                Ok(lines) => batch.differs(way, &plain, &lines),
                Err(failure) => Some(batch.judged_without(way, failure)),
            };
            let Some((what, suspect)) = difference else { continue };
            eprintln!("{batch:?}, {}: {what}; looking for the smallest part", way.name);
            let small = batch.shrink(suspect, |batch| batch.difference(way).is_some());
            panic!("{}: {what}\nThe smallest part that differs: {small:?}", way.name);
        }
        batch.report();
    }
}
