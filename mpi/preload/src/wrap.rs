//! The wrappers: a function for each class of calls.
//!
//! The last argument passes the call on and returns MPI's code.
//!
//! # Safety
//! All of them are `unsafe`: the other arguments are the program's own, given in an MPI call that has not returned.
//! They satisfy MPI's demands until the call, or its request, has ended.

mod collective;
mod comms;
mod completion;
mod exchange;
#[cfg(wraps = "exchange_immediate")]
mod exchange_immediate;
mod in_turn;
mod not_logged;
mod pending;
mod probe;
mod process;
mod receive;
mod requests;
mod send;
#[cfg(wraps = "session_init")]
mod sessions;

pub(crate) use collective::*;
pub(crate) use comms::*;
pub(crate) use completion::*;
pub(crate) use exchange::*;
#[cfg(wraps = "exchange_immediate")]
pub(crate) use exchange_immediate::*;
pub(crate) use not_logged::not_logged;
pub(crate) use probe::*;
pub(crate) use process::*;
pub(crate) use receive::*;
pub(crate) use requests::*;
pub(crate) use send::*;
#[cfg(wraps = "session_init")]
pub(crate) use sessions::session_init;

pub(crate) use crate::global::can_defer;
pub(crate) use crate::handlers::make as handler_make;
