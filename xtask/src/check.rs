//! `cargo xtask check`: what needs no test to run, namely format, lints, and where unsafe code is.

use crate::mpi::{Choice, Toolkit};
use crate::suite::Suite;
use crate::workspace::{TaskError, Workspace};

const FORMAT: [&str; 3] = ["fmt", "--all", "--check"];
const LINTS: [&str; 6] = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];

/// Runs the checks. Returns `true` if nothing failed.
pub(crate) fn run(workspace: &Workspace) -> Result<bool, TaskError> {
    let mut suite = Suite::new(workspace);
    root(&mut suite, workspace);
    match Toolkit::find_or_install(workspace, &Choice::default()) {
        Ok(toolkit) => over_mpi(&mut suite, workspace, &toolkit),
        Err(error) => suite.not_run("format and lints of mpi/", error.to_string()),
    }
    Ok(suite.conclude())
}

/// Checks the root workspace.
pub(crate) fn root(suite: &mut Suite<'_>, workspace: &Workspace) {
    suite.command("format", workspace.cargo(FORMAT));
    suite.crate_roots();
    suite.command("lints", workspace.cargo(LINTS));
}

/// Checks `mpi/`, which is a workspace of its own.
pub(crate) fn over_mpi(suite: &mut Suite<'_>, workspace: &Workspace, toolkit: &Toolkit) {
    suite.command("format of mpi/", toolkit.cargo(workspace, FORMAT));
    suite.command("lints of mpi/", toolkit.cargo(workspace, LINTS));
}
