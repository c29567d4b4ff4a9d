//! What is done with each class of calls, a function each. The last argument passes the call on, and returns MPI's code.
//!
//! All of them are `unsafe`: the other arguments are those of the program, and point to what MPI says they point to.

mod collective;
mod comms;
mod completion;
mod not_logged;
mod probe;
mod process;
mod receive;
mod requests;
mod send;
mod status;

pub(crate) use collective::*;
pub(crate) use comms::*;
pub(crate) use completion::*;
pub(crate) use not_logged::not_logged;
pub(crate) use probe::*;
pub(crate) use process::*;
pub(crate) use receive::*;
pub(crate) use requests::*;
pub(crate) use send::*;
