//! Runs C programs under the library with the MPI's own mpirun.
//!
//! `cargo xtask mpi -- test` selects the MPI. `timeout` kills hanging processes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock, PoisonError};

use counterfoil_mpi_calls::Class;

use crate::as_fortran;
use crate::build::built;
use crate::output::output;

/// Programs, each with its number of ranks.
pub(crate) const PROGRAMS: [(&str, u32); 11] = [
    ("point_to_point", 4),
    ("collectives", 4),
    ("communicators", 4),
    ("threads", 2),
    ("sharing", 2),
    ("streams", 3),
    ("acknowledged", 2),
    ("elsewhere", 2),
    ("others", 2),
    ("errors", 2),
    ("freed", 3),
];

/// Returns the names of the calls wrapped by the library for this MPI.
pub(crate) fn wrapped() -> BTreeSet<&'static str> {
    include_str!(concat!(env!("OUT_DIR"), "/wrapped.txt")).lines().collect()
}

pub(crate) fn variable(name: &str, otherwise: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| otherwise.to_owned())
}

pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c")
}

/// Returns `true` if there is a C++ compiler.
pub(crate) fn has_cpp() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| Command::new("g++").arg("--version").output().is_ok_and(|output| output.status.success()))
}

/// Compiles a C or C++ file, or all files in a folder, with the MPI's compiler.
///
/// Without a C++ compiler, a folder's C++ files are left out.
pub(crate) fn compile(source: &Path, into: &Path, options: &[&str]) {
    let mut command = Command::new(variable("MPICC", "mpicc"));
    command.args(["-O1", "-Wall", "-Wno-stringop-overread", "-Wno-cast-function-type", "-Wno-nonnull"]).args(options);
    if wrapped().contains("MPI_Bcast_init") {
        command.arg("-DHAVE_MPI_4");
    }
    if wrapped().contains("MPI_Session_init") {
        command.arg("-DHAVE_SESSIONS");
    }
    if wrapped().contains("MPIX_Comm_shrink") {
        command.arg("-DHAVE_SHRINK");
    }
    let is = |source: &Path, extension: &str| source.extension().is_some_and(|found| found == extension);
    let sources_of = |folder: std::fs::ReadDir| folder.map(|entry| entry.unwrap().path()).collect();
    let mut files: Vec<PathBuf> = std::fs::read_dir(source).map_or_else(|_| vec![source.to_owned()], sources_of);
    if source.is_dir() && has_cpp() {
        command.arg("-DHAVE_CPP");
    }
    files.retain(|file| !source.is_dir() || is(file, "c") || is(file, "cpp") && has_cpp());
    command.arg("-I").arg(sources()).args(&files).arg("-o").arg(into).arg("-lpthread");
    if files.iter().any(|file| is(file, "cpp")) {
        command.args(["-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX", "-lstdc++"]);
    }
    let compiled = command.output().unwrap();
    assert!(compiled.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&compiled.stderr));
}

/// Suffix of a program that calls MPI like a Fortran program.
pub(crate) const IN_FORTRAN: &str = "-in-fortran";

/// Returns the path of a program in `tests/c`, compiled at its first use, or of a system program.
fn program(name: &str) -> PathBuf {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let path = FOLDER.get_or_init(|| tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()).path().join(name);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if !name.starts_with('/') && !built.contains(name) {
        let (name, options) = match name.strip_suffix(IN_FORTRAN) {
            Some(name) => (name, as_fortran::options(path.parent().unwrap(), |call| call.class != Class::Answered)),
            None => (name, Vec::new()),
        };
        let source = sources().join(name);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        compile(&if source.is_dir() { source } else { source.with_extension("c") }, &path, &options);
        built.insert(name.to_owned());
    }
    path
}

/// Returns the library's path.
pub(crate) fn library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| built("libcounterfoil_mpi.so")).clone()
}

/// Settings for a run.
#[derive(Default)]
pub(crate) struct Run {
    /// Libraries to preload, in their order.
    pub(crate) libraries: Vec<PathBuf>,
    /// Environment variables for the ranks.
    pub(crate) variables: Vec<(&'static str, String)>,
    /// Working directory; `None` for the current one.
    pub(crate) folder: Option<PathBuf>,
    /// Options for mpirun.
    pub(crate) options: Vec<&'static str>,
    /// Arguments for the program.
    pub(crate) arguments: Vec<&'static str>,
}

impl Run {
    pub(crate) fn with_the_library(accounts: &Path, variables: &[(&'static str, &str)]) -> Run {
        let mut run = Run { libraries: vec![library()], ..Run::default() };
        run.variables.push(("COUNTERFOIL_SUMMARY_DIR", accounts.to_str().unwrap().to_owned()));
        run.variables.extend(variables.iter().map(|(name, value)| (*name, (*value).to_owned())));
        run
    }

    /// Runs a test program, or a system program by its path.
    pub(crate) fn once(&self, name: &str, ranks: u32) -> Output {
        let mpirun = variable("COUNTERFOIL_MPIRUN", "mpirun");
        let mut command = Command::new("timeout");
        let is_short = name.starts_with("random") || PROGRAMS.iter().any(|(known, _)| *known == name);
        let seconds = if is_short { "60" } else { "180" };
        command.args(["-s", "KILL", seconds, &mpirun, "-n", &ranks.to_string()]);
        command.args(&self.options);
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        let list: Vec<&str> = self.libraries.iter().map(|library| library.to_str().unwrap()).collect();
        if !list.is_empty() {
            // Set for the ranks only, not for the launcher.
            command.arg("-x").arg(format!("LD_PRELOAD={}", list.join(":")));
        }
        for (name, value) in &self.variables {
            command.env(name, value).args(["-x", name]);
        }
        command.arg(program(name)).args(&self.arguments);
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        if name == "others" {
            command.arg(file.path());
        }
        output(&mut command)
    }

    /// Runs a test program, which has to succeed and print nothing but its last line.
    pub(crate) fn run_successfully(&self, program: &str, ranks: u32) -> Output {
        let output = self.once(program, ranks);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{program}: {}\n{out}{err}", output.status);
        let name = program.trim_end_matches(IN_FORTRAN);
        assert_eq!(out, format!("{name}: ok on {ranks} ranks\n"), "{err}");
        output
    }
}
