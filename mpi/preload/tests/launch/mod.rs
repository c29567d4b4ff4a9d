//! C programs under the library and an MPI's own mpirun.
//!
//! `cargo xtask mpi -- test` says which MPI. Processes are ended by `timeout`, which kills.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

/// Each with how many ranks.
pub(crate) const PROGRAMS: [(&str, u32); 9] = [
    ("point_to_point", 4),
    ("collectives", 4),
    ("communicators", 4),
    ("threads", 2),
    ("sharing", 2),
    ("streams", 3),
    ("acknowledged", 2),
    ("elsewhere", 2),
    ("others", 2),
];

pub(crate) fn wrapped() -> BTreeSet<&'static str> {
    include_str!(concat!(env!("OUT_DIR"), "/wrapped.txt")).lines().collect()
}

pub(crate) fn variable(name: &str, otherwise: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| otherwise.to_owned())
}

pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c")
}

/// Compiles with the MPI's compiler.
pub(crate) fn compile(source: &Path, into: &Path, options: &[&str]) {
    let mut command = Command::new(variable("MPICC", "mpicc"));
    command.args(["-O1", "-Wall", "-Wno-stringop-overread", "-Wno-cast-function-type"]).args(options);
    if wrapped().contains("MPI_Bcast_init") {
        command.arg("-DHAVE_MPI_4");
    }
    if wrapped().contains("MPI_Session_init") {
        command.arg("-DHAVE_SESSIONS");
    }
    if wrapped().contains("MPIX_Comm_shrink") {
        command.arg("-DHAVE_SHRINK");
    }
    let compiled = command.arg("-I").arg(sources()).arg(source).arg("-o").arg(into).arg("-lpthread").output().unwrap();
    assert!(compiled.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&compiled.stderr));
}

/// The folder with the compiled programs.
pub(crate) fn programs() -> &'static Path {
    static BUILT: OnceLock<tempfile::TempDir> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for (name, _) in PROGRAMS {
            compile(&sources().join(name).with_extension("c"), &folder.path().join(name), &[]);
        }
        folder
    });
    built.path()
}

/// The library, built as a user builds it: cargo builds none for the tests of its package.
pub(crate) fn library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let cargo = variable("CARGO", "cargo");
        let mut command = Command::new(cargo);
        command.args(["build", "--lib", "--message-format", "json"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let messages = String::from_utf8(output.stdout).unwrap();
        let files = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let files = files.flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default());
        let mut files = files.filter_map(|file| file.as_str().map(PathBuf::from));
        files.find(|file| file.ends_with("libcounterfoil_mpi.so")).unwrap()
    });
    built.clone()
}

/// A run: which libraries stand between, and what they are told.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) libraries: Vec<PathBuf>,
    pub(crate) variables: Vec<(&'static str, String)>,
    /// Where it runs, if not here.
    pub(crate) folder: Option<PathBuf>,
    /// What mpirun is told.
    pub(crate) options: Vec<&'static str>,
    /// What the program is told.
    pub(crate) arguments: Vec<&'static str>,
}

impl Run {
    pub(crate) fn with_the_library(accounts: &Path, variables: &[(&'static str, &str)]) -> Run {
        let mut run = Run { libraries: vec![library()], ..Run::default() };
        run.variables.push(("COUNTERFOIL_SUMMARY_DIR", accounts.to_str().unwrap().to_owned()));
        run.variables.extend(variables.iter().map(|(name, value)| (*name, (*value).to_owned())));
        run
    }

    /// Open MPI 4.1 hangs now and then, also without any library, where many communicators are made on a busy machine: all ranks
    /// stay in `ompi_comm_nextcid` below `MPI_Dist_graph_create`. A run that hangs there is made again, twice at most.
    pub(crate) fn of(&self, program: &str, ranks: u32) -> Output {
        let is_prone = program == "communicators" && !wrapped().contains("MPI_Bcast_init");
        for _ in 0..2 {
            let output = self.once(program, ranks);
            if !is_prone || output.status.code().is_some() {
                return output;
            }
            eprintln!("communicators hung and was ended; once more");
        }
        self.once(program, ranks)
    }

    /// A program, or one of the system's with its path.
    pub(crate) fn once(&self, program: &str, ranks: u32) -> Output {
        let mpirun = variable("COUNTERFOIL_MPIRUN", "mpirun");
        let mut command = Command::new("timeout");
        let seconds = if program.starts_with('/') { "180" } else { "60" };
        command.args(["-s", "KILL", seconds, &mpirun, "-n", &ranks.to_string()]);
        command.args(&self.options);
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        let list: Vec<&str> = self.libraries.iter().map(|library| library.to_str().unwrap()).collect();
        if !list.is_empty() {
            // For the ranks, not for the launcher.
            command.arg("-x").arg(format!("LD_PRELOAD={}", list.join(":")));
        }
        for (name, value) in &self.variables {
            command.env(name, value).args(["-x", name]);
        }
        command.arg(programs().join(program)).args(&self.arguments);
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        if program == "others" {
            command.arg(file.path());
        }
        command.output().unwrap()
    }

    pub(crate) fn ends_well(&self, program: &str, ranks: u32) -> Output {
        let output = self.of(program, ranks);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{program}: {}\n{out}{err}", output.status);
        assert_eq!(out, format!("{program}: ok on {ranks} ranks\n"), "{err}");
        output
    }
}
