//! The small rules under the simulator, and between processes that are killed.
#![forbid(unsafe_code)]

mod simulated;
