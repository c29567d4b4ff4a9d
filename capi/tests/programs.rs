//! C programs using the library, also under valgrind where it is installed.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test's functions may")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use counterfoil_test_support::note_untested;

/// Returns the shared library's directory: this test program's, or the one above.
fn library_dir() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let has = |dir: &&Path| dir.join("libcounterfoil_capi.so").exists();
    program.ancestors().skip(1).take(2).find(has).expect("the library was built with its tests").to_owned()
}

/// A compiled program, in a private folder of its own.
struct Program {
    folder: tempfile::TempDir,
}

impl Program {
    fn compile(name: &str) -> Program {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let library = library_dir();
        let mut command = Command::new("cc");
        command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-D_GNU_SOURCE"]);
        command.arg("-I").arg(root.join("include")).arg(root.join("tests/c").join(name).with_extension("c"));
        command.arg("-o").arg(folder.path().join("program")).arg(library.join("libcounterfoil_capi.so"));
        // The dynamic linker knows the library by its installed name.
        let name = format!("libcounterfoil.so.{}.{}", env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
        std::os::unix::fs::symlink(library.join("libcounterfoil_capi.so"), folder.path().join(&name)).unwrap();
        command.arg(format!("-Wl,-rpath,{}", folder.path().display()));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Program { folder }
    }

    /// Runs the program by a command, with a new private directory as its argument if `wants_dir`.
    fn run(&self, with: &[&str], wants_dir: bool) -> Output {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "120"]).args(with).arg(self.folder.path().join("program"));
        let dir = self.folder.path().join("logs");
        if wants_dir {
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir(&dir).unwrap();
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).unwrap();
            command.arg(&dir);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{with:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
        output
    }
}

/// Runs a program, and once more under valgrind, which finds neither a wrong access nor a leak.
///
/// Returns what it prints.
fn run_twice(name: &str, wants_dir: bool) -> String {
    let program = Program::compile(name);
    let printed = String::from_utf8(program.run(&[], wants_dir).stdout).unwrap();
    if Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success()) {
        let options = ["valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full", "--trace-children=no"];
        let under = program.run(&[&options[..], &["--errors-for-leak-kinds=definite"]].concat(), wants_dir);
        assert_eq!(String::from_utf8(under.stdout).unwrap(), printed);
    } else {
        note_untested(&format!("{name} under valgrind: apt-get install valgrind"));
    }
    printed
}

#[test]
fn the_first_example_of_the_crate() {
    let printed = run_twice("example", false);
    assert_eq!(printed, "replayed 10000 messages, freed many chunks; then: The records are no longer kept.\n");
}

#[test]
fn killed_senders_and_receivers_are_replaced() {
    let printed = String::from_utf8(Program::compile("failover").run(&[], true).stdout).unwrap();
    assert_eq!(
        printed,
        "4000 messages: 2 senders and 2 receivers were killed, none lost, none twice, none out of order\n"
    );
}

#[test]
fn each_mistake_has_its_result() {
    assert_eq!(run_twice("misuse", true), "every result as documented\n");
}

#[test]
fn the_header_is_valid_in_cpp() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/counterfoil.h");
    let compiled =
        Command::new("c++").args(["-std=c++17", "-Wall", "-Werror", "-fsyntax-only", "-x", "c++"]).arg(header).output();
    match compiled {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => note_untested("the header in C++: there is no c++"),
    }
}
