//! Programs, and their runs with and without the library.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use counterfoil::Tier;
use counterfoil_settings::recover::{Begun, Ended, KillAtCall, RecoverSettings, Stream, read_report};
use tempfile::TempDir;

use crate::as_fortran;
use crate::build::built;
use crate::compilers::compile_fortran;
use crate::mpirun::mpirun;
use crate::output::output;
use crate::ulfm::{outlives_failures, version};

/// Longest run of a job, in seconds.
///
/// It is killed then.
const SECONDS_MAX: &str = "60";

/// Maximum number of processes in a job.
const PROCESSES_MAX: u32 = 16;

/// Programs from the logging library's tests, each with its number of ranks.
///
/// Among the others, `errors` relies on an `MPI_Waitall` that returns before its receives are complete, and the rest on
/// calls unsupported by recovery.
pub(crate) const PROGRAMS: [(&str, u32); 9] = [
    ("point_to_point", 4),
    ("collectives", 4),
    ("communicators", 4),
    ("graphs", 4),
    ("streams", 3),
    ("freed", 3),
    ("acknowledged", 2),
    ("pending_copies", 2),
    ("strangers", 2),
];

/// A compiled program.
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// Executable for runs without the library.
    plain_path: PathBuf,
    pub(crate) ranks: u32,
    pub(crate) arguments: Vec<String>,
    pub(crate) folder: TempDir,
    /// Log size per rank, in bytes.
    pub(crate) log_bytes: usize,
    /// A run without the library.
    plain: OnceLock<Output>,
}

/// A run under the library.
pub(crate) struct Ran {
    pub(crate) output: Output,
    /// Each rank's output: its last process repeats the output of earlier ones.
    pub(crate) printed: Vec<String>,
    /// Standard error of all processes.
    pub(crate) errors: String,
    /// Number of processes per rank.
    pub(crate) processes: BTreeMap<u32, usize>,
    /// Number of calls per rank that has called `MPI_Finalize`.
    pub(crate) calls: BTreeMap<u32, u64>,
    /// Number of times that the job was started again.
    pub(crate) restarts: u32,
}

impl Program {
    /// Compiles a source file, or all files in a folder, given by its path in `mpi`.
    pub(crate) fn compile(source: &str, ranks: u32) -> Program {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join("program");
        compile(source, &path, &[]);
        let (plain_path, plain) = (path.clone(), OnceLock::new());
        Program { path, plain_path, ranks, arguments: Vec::new(), folder, log_bytes: 64 << 20, plain }
    }

    /// Compiles it to make MPI calls under the library like a Fortran program.
    pub(crate) fn compile_in_fortran(source: &str, ranks: u32) -> Program {
        let program = Program::compile(source, ranks);
        let path = program.folder.path().join("in-fortran");
        compile(source, &path, &as_fortran::options(program.folder.path(), |_| true));
        Program { path, ..program }
    }

    /// Same, in a module opened by a program without MPI, as Python opens extension modules.
    pub(crate) fn compile_in_fortran_module(source: &str, ranks: u32) -> Program {
        let program = Program::compile(source, ranks);
        let [module, path] = ["module.so", "opens-module"].map(|name| program.folder.path().join(name));
        let mut options = as_fortran::options(program.folder.path(), |_| true);
        options.extend(["-shared", "-fPIC", "-Dmain=module_main"].map(str::to_owned));
        compile(source, &module, &options);
        let opener = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/opens_module.c");
        let compiled = Command::new("cc")
            .arg(format!("-DMODULE=\"{}\"", module.display()))
            .arg(opener)
            .arg("-o")
            .arg(&path)
            .arg("-ldl")
            .status()
            .unwrap();
        assert!(compiled.success());
        Program { path, ..program }
    }

    /// Compiles a program with a Fortran compiler; `None` if there is none.
    pub(crate) fn compiled_by_fortran(source: (&str, &[&str]), ranks: u32) -> Option<Program> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join("program");
        // An index that MPICH returns to Fortran begins at 0 in some calls.
        let more: &[&str] = if is_mpich() { &["-DWRONG_INDICES"] } else { &[] };
        if !compile_fortran(source, Path::new(env!("CARGO_MANIFEST_DIR")), &path, more) {
            return None;
        }
        let (plain_path, plain) = (path.clone(), OnceLock::new());
        Some(Program { path, plain_path, ranks, arguments: Vec::new(), folder, log_bytes: 64 << 20, plain })
    }

    pub(crate) fn of_logging(name: &str, ranks: u32) -> Program {
        Program::compile(&format!("preload/tests/c/{name}.c"), ranks)
    }

    pub(crate) fn of_logging_in_fortran(name: &str, ranks: u32) -> Program {
        Program::compile_in_fortran(&format!("preload/tests/c/{name}.c"), ranks)
    }

    pub(crate) fn own(name: &str, ranks: u32) -> Program {
        Program::compile(&format!("recover/tests/c/{name}.c"), ranks)
    }

    pub(crate) fn with(mut self, arguments: &[&str]) -> Program {
        self.arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        self
    }

    pub(crate) fn command(&self, processes: u32) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", SECONDS_MAX]).arg(mpirun());
        if processes > self.ranks {
            command.args(["--with-ft", "ulfm", "--mca", "async_mpi_finalize", "1"]);
        }
        command.args(["-n", &processes.to_string()]);
        command
    }

    /// Runs the program without the library.
    pub(crate) fn run_plain(&self) -> Output {
        output(self.command(self.ranks).arg(&self.plain_path).args(&self.arguments))
    }

    /// Runs the program under the library.
    pub(crate) fn recovered(&self, spares: u32, kills: impl IntoIterator<Item = KillAtCall>) -> Ran {
        let reports = tempfile::tempdir_in(self.folder.path()).unwrap();
        self.run(spares, &self.settings(reports.path(), kills))
    }

    /// Returns a job's settings.
    pub(crate) fn settings(&self, reports: &Path, kills: impl IntoIterator<Item = KillAtCall>) -> RecoverSettings {
        RecoverSettings {
            ranks: self.ranks,
            rule: "sender-based".to_owned(),
            tier: Tier::ProcessCrashSafe,
            log_bytes: self.log_bytes,
            local_log_bytes: self.log_bytes / 4,
            disk_bytes: 1 << 30,
            tolerates_divergence: false,
            start: 0,
            job: None,
            shm_root: None,
            checkpoint_root: None,
            report_dir: reports.to_owned(),
            kills: kills.into_iter().collect(),
            keeps_logs: false,
            checkpoints: false,
            replay: None,
        }
    }

    /// Runs the program under the library, with these settings.
    pub(crate) fn run(&self, spares: u32, settings: &RecoverSettings) -> Ran {
        let (variable, value) = settings.to_env();
        let mut command = self.command(self.ranks + spares);
        export(&mut command, variable, value.as_ref());
        export(&mut command, "LD_PRELOAD", built("libcounterfoil_recover.so").as_os_str());
        let output = output(command.arg(&self.path).args(&self.arguments));
        Ran::read(output, settings)
    }

    /// Runs the program under the library while ranks are killed.
    ///
    /// They are replaced by spares, or, on an MPI that doesn't outlive failures, the whole job is started again.
    pub(crate) fn killed(&self, kills: &[KillAtCall]) -> Ran {
        self.killed_with(kills, |settings| settings)
    }

    /// Same, with changed settings.
    pub(crate) fn killed_with(
        &self,
        kills: &[KillAtCall],
        change: impl FnOnce(RecoverSettings) -> RecoverSettings,
    ) -> Ran {
        let [reports, logs] = [0; 2].map(|_| tempfile::tempdir_in(self.folder.path()).unwrap());
        let mut settings = change(self.settings(reports.path(), kills.iter().copied()));
        if !outlives_failures() {
            settings.job = Some("killed".to_owned());
            (settings.shm_root, settings.checkpoint_root) =
                (Some(logs.path().to_owned()), Some(logs.path().to_owned()));
        }
        self.run_killed(&mut settings)
    }

    /// Same, with these settings: they name a job where it is started again.
    pub(crate) fn run_killed(&self, settings: &mut RecoverSettings) -> Ran {
        if outlives_failures() {
            return self.run(settings.kills.len() as u32, settings);
        }
        loop {
            let ran = self.run(0, settings);
            if ran.output.status.success() || settings.start as usize == settings.kills.len() {
                return ran;
            }
            settings.start += 1;
        }
    }

    /// Runs the program under the library, with a spare if it is of use, expecting the same result as without.
    #[track_caller]
    pub(crate) fn expect_same(&self) -> Ran {
        let ran = self.recovered(u32::from(outlives_failures()), None);
        self.check_same(&ran, None);
        ran
    }

    /// Kills a rank before a call, expecting the same result as without the library.
    #[track_caller]
    pub(crate) fn expect_same_killed(&self, kill: KillAtCall) -> Ran {
        let ran = self.killed(&[kill]);
        self.check_same(&ran, Some(kill));
        ran
    }

    /// Checks that a run under the library has the same result as one without.
    #[track_caller]
    pub(crate) fn check_same(&self, ran: &Ran, kill: Option<KillAtCall>) {
        let plain = self.plain.get_or_init(|| self.run_plain());
        let name = format!("{} {:?} {kill:?}", self.path.display(), self.arguments);
        assert!(!plain.stdout.is_empty(), "{name} has printed nothing without the library: {plain:?}");
        assert_eq!(
            lines(&[String::from_utf8_lossy(&plain.stdout).into_owned()]),
            lines(&ran.printed),
            "{name}: {}",
            ran.said()
        );
        let is_code_kept = kill.is_some() || plain.status.code() == ran.output.status.code();
        assert!(is_code_kept, "{name}: {} and {}", plain.status, ran.output.status);
    }
}

/// Compiles a source file, or all files in a folder, given by its path in `mpi`.
fn compile(source: &str, into: &Path, options: &[String]) {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut command = Command::new(std::env::var("MPICC").unwrap_or_else(|_| "mpicc".to_owned()));
    command.args(["-O1", "-w"]).args(options).arg("-I").arg(crates.join("preload/tests/c"));
    command.arg("-I").arg(crates.join("recover/include"));
    if outlives_failures() {
        command.args(["-DHAVE_MPI_4"]);
    }
    let source = crates.join(source);
    let in_folder = |folder: std::fs::ReadDir| folder.map(|entry| entry.unwrap().path()).collect();
    let mut files: Vec<PathBuf> = std::fs::read_dir(&source).map_or_else(|_| vec![source.clone()], in_folder);
    files.retain(|file| file.extension().is_some_and(|extension| extension == "c"));
    let output = command.args(&files).arg("-o").arg(into).arg("-lpthread").output().unwrap();
    assert!(output.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&output.stderr));
}

/// Returns `true` if the MPI under test is MPICH, whose launcher is Hydra.
fn is_mpich() -> bool {
    version().starts_with("HYDRA")
}

/// Sets a variable for a launcher's processes.
fn export(command: &mut Command, name: &str, value: &OsStr) {
    if is_mpich() {
        command.args(["-genv".as_ref(), name.as_ref(), value]);
    } else {
        let mut both = OsString::from(format!("{name}="));
        both.push(value);
        command.args(["-x".into(), both]);
    }
}

impl Ran {
    fn read(output: Output, settings: &RecoverSettings) -> Ran {
        let (reports, restarts) = (&settings.report_dir, settings.start);
        let (mut outputs, mut processes) = (BTreeMap::new(), BTreeMap::new());
        for entry in std::fs::read_dir(reports).unwrap() {
            let name = entry.unwrap().file_name().to_string_lossy().into_owned();
            let Some((rank, incarnation)) = Begun::of_file(&name) else { continue };
            let begun: Begun = read_report(&reports.join(name)).unwrap();
            *processes.entry(rank).or_insert(0) += 1;
            outputs.entry(rank).or_insert_with(BTreeMap::new).insert(incarnation, begun.output);
        }
        let file = |process: Option<u32>| reports.join(Stream::Output.file(process.unwrap_or(u32::MAX)));
        let text = |process: &Option<u32>| std::fs::read_to_string(file(*process)).unwrap_or_default();
        let printed = outputs.values().map(|processes| processes.values().map(text).fold(String::new(), go_on));
        let ended = |rank: u32| read_report::<Ended>(&reports.join(Ended::file(rank)));
        let calls = (0..settings.ranks).filter_map(|rank| Some((rank, ended(rank)?.calls))).collect();
        let of_start = |start| RecoverSettings { start, ..settings.clone() };
        let numbers = (0..=restarts)
            .map(of_start)
            .flat_map(|start| (0..PROCESSES_MAX).map(move |process| start.output_of(process)));
        let errors = numbers.map(|number| reports.join(Stream::Error.file(number)));
        let errors = errors.map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect();
        Ran { output, printed: printed.collect(), errors, processes, calls, restarts }
    }

    pub(crate) fn said(&self) -> String {
        let said = [&self.output.stdout, &self.output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        format!("{}: {}{}", self.output.status, said.concat(), self.errors)
    }

    /// Returns the number of processes that became ranks after others, or of the job's starts after the first one.
    pub(crate) fn replaced(&self) -> usize {
        if self.restarts > 0 {
            return self.restarts as usize;
        }
        self.processes.values().map(|processes| processes - 1).sum()
    }
}

/// Returns a rank's output with one more process, which has repeated the complete lines before it, or continued after
/// them.
fn go_on(before: String, process: String) -> String {
    let complete = before.rfind('\n').map_or(0, |end| end + 1);
    process.get(complete..).map_or(before.clone(), |more| before[..complete].to_owned() + more)
}

/// Returns all ranks' lines, sorted: their order is up to mpirun.
pub(crate) fn lines(texts: &[String]) -> Vec<&str> {
    let mut lines: Vec<&str> = texts.iter().flat_map(|text| text.lines()).collect();
    lines.sort_unstable();
    lines
}
