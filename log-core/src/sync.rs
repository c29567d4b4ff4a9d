//! The atomics: std's, or loom's under `--cfg counterfoil_loom`.
//!
//! The flag has a name of its own, and not `loom`, so that it never reaches a dependency. Everything in this
//! crate that two threads share goes through this module, so that the models run the code that ships.

#[cfg(not(counterfoil_loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(counterfoil_loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

// Reference counts and the registry of lanes (used for reports only, never while a modelled word is touched) are not
// what the models are about.
pub(crate) use std::sync::{Arc, Mutex, Weak};
