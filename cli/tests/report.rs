//! `counterfoil report`, as a program, of directories that are made here: no MPI is needed.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test's functions may")]

mod report {
    mod bad;
    pub(crate) mod made;
    mod page;
    mod stores;
}
