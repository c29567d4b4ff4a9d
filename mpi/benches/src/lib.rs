//! Parts that the benchmark programs share: paired measurements and ping-pong between two ranks.
//!
//! | program | measures |
//! |---|---|
//! | `counterfoil-mpi-bench` | the interposition library under an unmodified program's calls |
//! | `counterfoil-mpi-spike` | ways to log a message and to number it, against the MPI's own calls |
//!
//! `cargo xtask bench` runs both; `cg.c`, next to this crate, is the program of `cargo xtask bench applications`.

#![forbid(unsafe_code)]

pub mod pairs;
pub mod ping_pong;
