//! Paired measurements and ping-pong between two ranks, for `counterfoil-mpi-bench`, a benchmark of the interposition
//! library under an unmodified program's calls.
//!
//! `cargo xtask bench mpi` runs it; `cg.c`, next to this crate, is the program for `cargo xtask bench applications`.

#![forbid(unsafe_code)]

pub mod pairs;
pub mod ping_pong;
