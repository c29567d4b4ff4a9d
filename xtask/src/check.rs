//! `cargo xtask check`: checks without a test run, namely format, lints and the location of unsafe code.

use crate::mpi::{Choice, Toolkit, select_all};
use crate::suite::Suite;
use crate::toolchain::has_subcommand;
use crate::workspace::{TaskError, Workspace};

const FORMAT: [&str; 3] = ["fmt", "--all", "--check"];

/// Runs the checks.
///
/// Returns `true` if nothing failed.
pub(crate) fn run(workspace: &Workspace) -> Result<bool, TaskError> {
    let mut suite = Suite::new(workspace);
    sources(&mut suite, workspace);
    let toolkit = Toolkit::find_or_install(workspace, &Choice::default());
    lints(&mut suite, workspace, toolkit.as_ref().ok());
    if let Err(error) = toolkit {
        suite.not_run("lints of the crates over MPI", error.to_string());
    }
    Ok(suite.conclude())
}

/// Checks the sources as text.
pub(crate) fn sources(suite: &mut Suite<'_>, workspace: &Workspace) {
    suite.command("format", workspace.cargo(FORMAT));
    suite.comment_width();
    suite.links();
    suite.crate_roots();
    if has_subcommand(workspace, "deny") {
        let check = |checks: &[&str]| workspace.cargo([&["deny", "--workspace", "check"], checks].concat());
        suite.command("licences and sources of dependencies", check(&["licenses", "bans", "sources"]));
        suite.command("advisories", check(&["advisories"]));
    }
}

/// Runs the lints over all crates; without an MPI, only over crates that need none.
pub(crate) fn lints(suite: &mut Suite<'_>, workspace: &Workspace, toolkit: Option<&Toolkit>) {
    let mut command = workspace.cargo(["clippy", "--all-targets"]);
    select_all(&mut command, workspace, toolkit);
    command.args(["--", "-D", "warnings"]);
    suite.command("lints", command);
    let package = ["clippy", "--package", "counterfoil", "--no-default-features", "--", "-D", "warnings"];
    suite.command("lints without features", workspace.cargo(package));
}
