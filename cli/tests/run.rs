//! `counterfoil run`, `config` and `doctor`, as programs. What needs an MPI and a library built for it is left out where there is none,
//! and says so.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test's functions may")]

mod ended;
mod script;

mod run {
    mod alone;
    mod bad_use;
    mod full;
    mod kept;
    pub(crate) mod place;
    mod programs;
    mod refused;
    mod report;
    mod ring;
    mod settings;
}
