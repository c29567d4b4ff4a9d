//! What is done with each class of calls, a function each. The last argument passes the call on, and returns MPI's code.
//!
//! # Safety
//! All of them are `unsafe`: the other arguments are the program's own, given in a call of MPI that has not returned. They point to
//! what MPI says that they point to, until the call, or the request that it makes, has ended.

mod before;
mod collective;
mod comms;
mod completion;
mod exchange;
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
pub(crate) use exchange::*;
pub(crate) use not_logged::not_logged;
pub(crate) use probe::*;
pub(crate) use process::*;
pub(crate) use receive::*;
pub(crate) use requests::*;
pub(crate) use send::*;

pub(crate) use crate::session::may_put_off;
