//! Log benchmarks, as ratios to a floor within one run: see [`floor`] and [`measure`].
//!
//! `counterfoil bench` prints the results as tables; `cargo bench` runs the same loops under criterion.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod append;
pub mod disk;
pub mod floor;
pub mod instructions;
pub mod measure;
pub mod release;
pub mod replay;
pub mod scratch;

pub use measure::RunOptions;
