//! Fortran compilers, and the programs in `preload/tests/fortran`.

use std::path::Path;
use std::process::Command;

use counterfoil_test_support::note_untested;

/// Programs: source, options, and the number of messages sent by each rank.
pub(crate) const PROGRAMS: [((&str, &[&str]), u64); 3] =
    [(("calls_f08", &[]), 12), (("calls_mpif", &[]), 7), (("calls_mpif", &["-DUSE_MPI"]), 7)];

/// Compiles a program; `crate_folder` is a crate's folder in `mpi`.
///
/// Returns `false` if the MPI has no Fortran, or no compiler is there.
pub(crate) fn compile_fortran(
    (source, options): (&str, &[&str]),
    crate_folder: &Path,
    into: &Path,
    more: &[&str],
) -> bool {
    let compiler = std::env::var("MPICC").unwrap_or_else(|_| "mpicc".to_owned());
    let at = compiler.rfind("mpicc").expect("MPICC is a compiler wrapper");
    let compiler = format!("{}mpifort{}", &compiler[..at], &compiler[at + 5..]);
    let source = crate_folder.join("../preload/tests/fortran").join(source).with_extension("F90");
    let mut command = Command::new(&compiler);
    command.args(["-O1", "-w", "-fallow-argument-mismatch"]).args(options).args(more).arg(source).arg("-o").arg(into);
    // Modules are written there.
    command.arg("-J").arg(into.parent().unwrap());
    let is_there = Command::new(&compiler).arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_there {
        note_untested(&format!(
            "programs of a Fortran compiler: {compiler} doesn't work. The wheels have no Fortran; Debian's Open MPI has, with gfortran"
        ));
        return false;
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}
