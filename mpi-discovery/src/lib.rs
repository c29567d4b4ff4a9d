//! Installed MPIs, and the places of builds for them.
//!
//! `counterfoil` finds an MPI by its launcher, `cargo xtask` by its compiler wrapper, which a machine without the MPI's
//! headers lacks. Both must come to the same names of directories: `cargo xtask` builds into them, `counterfoil` looks
//! there.
//!
//! | module | contents |
//! |---|---|
//! | `installation` | versions, names and well-known paths of installations |
//! | [`environment`] | variables that permit root and more processes than processors |
//! | [`layout`] | directories below cargo's target directory |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod environment;
mod installation;
pub mod layout;

pub use installation::{Implementation, MPICH, WHEEL, debian_paths, find_in_path, name, parse_version};
