//! Householder QR of a matrix on a grid of processes, that goes on when processes are lost.
//!
//! | module | part |
//! |---|---|
//! | [`layout`] | block-cyclic distribution, and the checksums of its block columns |
//! | [`panel`] | factorization of a panel |
//! | [`state`] | what a process has: values, checksums, and the last iterations, which it can undo |
//! | [`program`] | the factorization, over any [`Communication`] |
//! | [`recover`] | the state of lost processes, from those of the others |
//! | [`verify`] | residuals |
//!
//! Sums of block columns stay sums when the columns are updated: Q' (a + b) = Q' a + Q' b (Huang and Abraham 1984; for
//! QR Du et al. 2012, Bland et al. 2013, section 4). So what one process of each process row has can be computed from
//! the others. A panel's reflectors are stored where its columns become zero, and there a checksum has zero, too: their
//! sum is kept apart, from the panels that the holder of the checksum receives anyway.
//!
//! All functions are of one process's state and what it has received, and none communicates but through
//! [`Communication`].
#![forbid(unsafe_code)]

pub mod layout;
mod matrix;
mod memory;
pub mod panel;
pub mod program;
pub mod recover;
pub mod state;
pub mod verify;

pub use layout::{Grid, Layout, LayoutError, Place, Protection, Size, Stripe};
pub use matrix::Matrix;
pub use memory::Values;
pub use program::{Communication, factor};
pub use state::{Slot, State, slots, weight};
