//! Room in a full log: whom a rank asks for it, who answers when, and when a wait is given up. `docs/piggyback.md` says why this is enough
//! ("Who waits for room").
//!
//! [`asking`], [`standstill`] and [`waiting`] know nothing of MPI: they are told what comes, and say what to send. [`control`] carries it, and
//! [`beside`] has a rank look after it while it waits in a call of MPI. The library under unmodified programs and
//! [`logged`](crate::logged) join them, each with its own communicators.

pub mod asking;
pub mod beside;
pub mod control;
pub mod failures;
pub mod standstill;
pub mod waiting;

pub use asking::Asking;
pub use beside::Beside;
pub use control::{ACKNOWLEDGEMENTS, Came, Control, Kind, Meeting};
pub use failures::{Failures, is_failure};
pub use standstill::{Beat, Rounds, Step};
pub use waiting::Waiting;
