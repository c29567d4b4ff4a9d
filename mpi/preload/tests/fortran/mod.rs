//! Programs made by a Fortran compiler, with `mpif.h`, `use mpi` and `use mpi_f08`.

use std::path::Path;

use super::{accounts, channels_agree};
use crate::compilers::{PROGRAMS, compile_fortran};
use crate::launch::Run;

#[test]
fn programs_of_a_fortran_compiler_are_logged() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (program, sent) in PROGRAMS {
        let path = folder.path().join("program");
        if !compile_fortran(program, Path::new(env!("CARGO_MANIFEST_DIR")), &path, &[]) {
            return;
        }
        let path = path.to_str().unwrap();
        let plain = Run::default().once(path, 4);
        assert!(plain.status.success(), "{program:?}: {plain:?}");
        let reports = tempfile::tempdir_in(folder.path()).unwrap();
        let logged = Run::with_the_library(reports.path(), &[]).once(path, 4);
        assert_eq!((logged.status, &logged.stdout), (plain.status, &plain.stdout), "{program:?}: {logged:?}");
        let accounts = accounts(reports.path(), 4, &String::from_utf8_lossy(&logged.stderr));
        channels_agree(&accounts, 0);
        for account in accounts {
            assert_eq!(account["messages_logged"], sent, "{program:?}");
        }
    }
}
