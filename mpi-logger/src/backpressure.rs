//! Space in a full log: which ranks a rank asks for progress, who answers when, and how long it waits.
//! `docs/book/src/explanation/counting.md`, "Backpressure", says why this suffices.

mod queries;
mod wait;

pub(crate) use queries::Entries;
pub use queries::ProgressQueries;
pub(crate) use wait::SpaceWait;
