//! Householder QR on a process grid, surviving lost processes.
//!
//! | module | part |
//! |---|---|
//! | [`layout`] | block-cyclic distribution, and block column checksums |
//! | [`panel`] | panel factorization |
//! | [`state`] | a process's values, checksums, and last iterations, which it can undo |
//! | [`program`] | the factorization, over any [`Communication`] |
//! | [`recover`] | the lost processes' state, from the others' |
//! | [`verify`] | residuals |
//!
//! Sums of block columns stay sums when the columns are updated: Q' (a + b) = Q' a + Q' b (Huang and Abraham 1984; for
//! QR Du et al. 2012, Bland et al. 2013, section 4). So the state of one process in each process row can be computed
//! from the others. A panel's reflectors are stored where its columns become zero, and there a checksum has zero, too:
//! their sum is kept apart, computed from the panels received by the checksum's holder anyway.
//!
//! All functions depend only on one process's state and received values, and none communicates except through
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
