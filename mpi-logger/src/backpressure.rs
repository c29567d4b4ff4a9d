//! Space in a full log: progress queries to other ranks, their answers, and the length of the wait.
//!
//! See `docs/book/src/explanation/counting.md`, "Backpressure", for why this suffices.

mod queries;
mod wait;

pub(crate) use queries::Entries;
pub use queries::ProgressQueries;
pub(crate) use wait::SpaceWait;
