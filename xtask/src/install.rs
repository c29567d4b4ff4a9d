//! `cargo xtask install`: installs the log engine's C interface in a prefix, with files for pkg-config and CMake.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::workspace::{TaskError, Workspace, run_checked};

/// Version of the installation, common to all crates.
const VERSION: &str = env!("CARGO_PKG_VERSION");
const MAJOR: &str = env!("CARGO_PKG_VERSION_MAJOR");
const MINOR: &str = env!("CARGO_PKG_VERSION_MINOR");

/// System libraries linked by the static library: `rustc --print native-static-libs`.
const NATIVE_LIBRARIES: [&str; 6] = ["gcc_s", "util", "rt", "pthread", "m", "dl"];

/// Options for `cargo xtask install`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Directory with bin, include and lib; its parts are created
    #[arg(long, value_name = "DIR", default_value = "/usr/local")]
    prefix: PathBuf,
    /// Directory to put in front of the prefix while files are copied, for packages
    #[arg(long, value_name = "DIR", env = "DESTDIR")]
    destdir: Option<PathBuf>,
}

/// Builds and installs the libraries.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    run_checked(&mut workspace.cargo(["build", "--release", "--package", "counterfoil-capi"]))?;
    let prefix = match &options.destdir {
        Some(destdir) => destdir.join(options.prefix.strip_prefix("/").unwrap_or(&options.prefix)),
        None => options.prefix.clone(),
    };
    for path in install(workspace, &workspace.target().join("release"), &prefix)? {
        println!("{}", path.display());
    }
    Ok(true)
}

/// Installs the libraries in directory `built`.
///
/// Returns the installed files.
fn install(workspace: &Workspace, built: &Path, prefix: &Path) -> Result<Vec<PathBuf>, TaskError> {
    let sources = workspace.root().join("capi");
    let library = prefix.join("lib");
    let (full, short) = (format!("libcounterfoil.so.{VERSION}"), format!("libcounterfoil.so.{MAJOR}.{MINOR}"));
    let mut installed = vec![
        copy(&sources.join("include/counterfoil.h"), &prefix.join("include/counterfoil.h"))?,
        copy(&built.join("libcounterfoil_capi.so"), &library.join(&full))?,
        copy(&built.join("libcounterfoil_capi.a"), &library.join("libcounterfoil.a"))?,
    ];
    for (name, of) in [(short.as_str(), full.as_str()), ("libcounterfoil.so", short.as_str())] {
        let path = library.join(name);
        if path.symlink_metadata().is_ok() {
            fs::remove_file(&path).map_err(TaskError::file(&path))?;
        }
        symlink(of, &path).map_err(TaskError::file(&path))?;
        installed.push(path);
    }
    let dashed = NATIVE_LIBRARIES.map(|name| format!("-l{name}")).join(" ");
    let listed = NATIVE_LIBRARIES.join(";");
    for (template, into, natives) in [
        ("counterfoil.pc", library.join("pkgconfig"), &dashed),
        ("counterfoilConfig.cmake", library.join("cmake/counterfoil"), &listed),
        ("counterfoilConfigVersion.cmake", library.join("cmake/counterfoil"), &listed),
    ] {
        let source = sources.join(format!("{template}.in"));
        let text = fs::read_to_string(&source).map_err(TaskError::file(&source))?;
        let values = [
            ("@VERSION@", VERSION),
            ("@MAJOR@", MAJOR),
            ("@MINOR@", MINOR),
            ("@SONAME@", &short),
            ("@NATIVE_LIBRARIES@", natives),
        ];
        let text = values.iter().fold(text, |text, (name, value)| text.replace(name, value));
        fs::create_dir_all(&into).map_err(TaskError::file(&into))?;
        let path = into.join(template);
        fs::write(&path, text).map_err(TaskError::file(&path))?;
        installed.push(path);
    }
    Ok(installed)
}

fn copy(from: &Path, to: &Path) -> Result<PathBuf, TaskError> {
    let parent = to.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).map_err(TaskError::file(parent))?;
    // Unlinks first: programs with the old file mapped keep it.
    let _ = fs::remove_file(to);
    fs::copy(from, to).map_err(TaskError::file(from))?;
    Ok(to.to_owned())
}

/// Installs the test build's libraries into a prefix of its own, and builds a program with pkg-config and with CMake.
///
/// Returns the steps left out.
///
/// # Errors
/// The failed step.
pub(crate) fn try_out(workspace: &Workspace, target: &Path) -> Result<Vec<&'static str>, String> {
    let work = target.join("tmp").join("installation");
    let _ = fs::remove_dir_all(&work);
    let (prefix, sources) = (work.join("prefix"), workspace.root().join("capi/tests"));
    install(workspace, &target.join("debug/deps"), &prefix).map_err(|error| error.to_string())?;
    let library = prefix.join("lib");
    let mut left_out = Vec::new();
    let has =
        |program: &str| Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if has("pkg-config") {
        for (name, is_static) in [("shared", false), ("static", true)] {
            let mut flags = Command::new("pkg-config");
            flags.args(["--cflags", "--libs", "counterfoil"]).args(is_static.then_some("--static"));
            flags.env("PKG_CONFIG_PATH", library.join("pkgconfig"));
            let flags = output_of(&mut flags)?;
            let mut compile = Command::new("cc");
            compile
                .arg("-o")
                .arg(work.join(name))
                .arg(sources.join("c/example.c"))
                .args(is_static.then_some("-Wl,-Bstatic"));
            let (flags, natives): (Vec<&str>, Vec<&str>) =
                flags.split_whitespace().partition(|flag| !flag.starts_with("-l") || *flag == "-lcounterfoil");
            compile.args(flags).arg("-Wl,-Bdynamic").args(natives);
            output_of(&mut compile)?;
            expect_example(&work.join(name), &library)?;
        }
    } else {
        left_out.push("pkg-config: apt-get install pkg-config");
    }
    if has("cmake") {
        let build = work.join("cmake");
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(sources.join("cmake")).arg("-B").arg(&build);
        output_of(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())))?;
        output_of(Command::new("cmake").arg("--build").arg(&build))?;
        for name in ["example", "example-static"] {
            expect_example(&build.join(name), &library)?;
        }
    } else {
        left_out.push("CMake: pip install cmake");
    }
    Ok(left_out)
}

/// Runs the example.
fn expect_example(program: &Path, library: &Path) -> Result<(), String> {
    let printed = output_of(Command::new(program).env("LD_LIBRARY_PATH", library))?;
    if printed.starts_with("replayed 10000 messages") {
        Ok(())
    } else {
        Err(format!("{} printed: {printed}", program.display()))
    }
}

fn output_of(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(text),
        false => Err(format!("{command:?}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
}
