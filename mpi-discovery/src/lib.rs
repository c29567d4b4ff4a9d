//! Installed MPIs and the locations of their builds.
//!
//! `counterfoil` finds an MPI by its launcher, `cargo xtask` by its compiler wrapper, which a machine without the MPI's
//! headers lacks. Both must derive the same directory names: `cargo xtask` builds into these directories, `counterfoil`
//! looks there.
//!
//! | module | contents |
//! |---|---|
//! | `installation` | installation versions, names and well-known paths |
//! | [`environment`] | variables permitting root and more processes than processors |
//! | [`layout`] | directories below cargo's target directory |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod environment;
mod installation;
pub mod layout;

pub use installation::{Implementation, MPICH, WHEEL, debian_paths, find_in_path, name, parse_version};
