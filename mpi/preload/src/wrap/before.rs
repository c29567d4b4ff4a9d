//! What a call that ends requests has to know of them before, and what is done about those that it has ended.

use std::ffi::c_int;

use mpi_sys as ffi;
use smallvec::SmallVec;

use super::receive::{has_taken, taken};
use super::requests::outcome;
use super::send::refuse;
use super::status::is_cancelled;
use crate::session::put_off::{PutOff, has_posted};
use crate::session::requests::{Pending, Persistent, Receiving, Repeated, are_receives, are_there, handles};
use crate::session::{
    FullError, Session, catch_up_if_due, enter, enter_for_room, is_together, may_put_off, put_off, records_choices,
};

/// A request that a call may end, and what it stands for.
pub(super) struct Held {
    /// Its place in the program's array.
    index: usize,
    request: ffi::MPI_Request,
    pending: Pending,
}

/// What a call may end, as it was before: the call takes the handles away of what has ended.
#[expect(clippy::large_enum_variant, reason = "it stays where it is made, on the stack of a call")]
pub(super) enum Before {
    /// Nothing that is known.
    Nothing,
    /// A handle, where one thread at a time calls.
    Handle(ffi::MPI_Request),
    /// Several of them.
    Handles(SmallVec<[ffi::MPI_Request; 32]>),
    /// What is known, taken out: another thread may get the same handle for a new request as soon as the old one has ended.
    Held(Vec<Held>),
}

impl Session {
    fn hold(&mut self, requests: &[ffi::MPI_Request]) -> Vec<Held> {
        let mut held = Vec::new();
        for (index, &request) in requests.iter().enumerate() {
            if let Some(pending) = self.requests.end(request) {
                held.push(Held { index, request, pending });
            }
        }
        held
    }

    /// It hasn't ended.
    fn put_back(&mut self, held: Held) {
        self.requests.add(
            held.request,
            match held.pending {
                Pending::Persistent(persistent) => Pending::Persistent(Persistent { is_active: true, ..persistent }),
                pending => pending,
            },
        );
    }

    /// It has ended with this status.
    fn ended(&mut self, pending: &Pending, status: &ffi::MPI_Status) -> Result<(), (ffi::MPI_Comm, FullError)> {
        match pending {
            Pending::Receive(receiving) => self.ended_receive(*receiving, status),
            Pending::Comm { at, number } => {
                // SAFETY: the program has waited for the communicator, so MPI has put it there.
                let comm = unsafe { **at };
                if let Err(error) = self.comms.learn(comm, *number) {
                    self.give_up(&error);
                }
            }
            Pending::Persistent(Persistent { what: Repeated::Receive(receiving), .. }) => {
                self.ended_receive(*receiving, status);
            }
            // Only now all its parts are there.
            Pending::Persistent(Persistent { what: Repeated::SendPartitioned(out), .. }) => {
                // SAFETY: the program's message, which it may write again when this call returns.
                unsafe { self.begun(out, true, || 0) }.map_err(|full| (out.comm, full))?;
            }
            Pending::CalledOff | Pending::Persistent(Persistent { what: Repeated::Send(_), .. }) => {
                // Nobody will receive it, and its number is taken: from here on both ends count differently.
                if is_cancelled(status) {
                    self.give_up(
                        &"a send was called off by MPI_Cancel, and numbers of messages are not known any more",
                    );
                }
            }
            Pending::Persistent(_) => {}
        }
        Ok(())
    }

    /// It has ended, and nobody knows how: nothing was received.
    fn failed(&mut self, pending: &Pending) {
        if let Pending::Receive(receiving)
        | Pending::Persistent(Persistent { what: Repeated::Receive(receiving), .. }) = pending
        {
            self.end_receive(*receiving, None);
        }
    }

    /// What a request stood for has ended.
    fn conclude(&mut self, pending: &Pending, end: &End<'_>) -> Result<(), (ffi::MPI_Comm, FullError)> {
        match end {
            End::With(status) => self.ended(pending, status)?,
            End::Failed => self.failed(pending),
            End::Not => {}
        }
        Ok(())
    }

    pub(super) fn ended_receive(&mut self, receiving: Receiving, status: &ffi::MPI_Status) {
        self.end_receive(receiving, Some(status).filter(|status| !is_cancelled(status)));
    }
}

/// What a call says of a request.
pub(super) enum End<'a> {
    /// It is under way.
    Not,
    /// It has ended with this status.
    With(&'a ffi::MPI_Status),
    /// It has ended with an error.
    Failed,
}

impl End<'_> {
    /// Of a request that has ended with this code.
    pub(super) fn of(code: c_int, status: &ffi::MPI_Status) -> End<'_> {
        // A message that is too long is an error, and was received.
        if has_taken(code) { End::With(status) } else { End::Failed }
    }
}

/// Remembers what a call may end. Programs ask again and again: little is done here.
///
/// # Safety
/// `requests` has `count`.
#[inline(always)]
pub(super) unsafe fn before(count: c_int, requests: *const ffi::MPI_Request) -> Before {
    catch_up_if_due();
    if !are_there() && !has_posted() {
        Before::Nothing
    } else if count == 1 && !is_together() {
        // SAFETY: the caller's promise.
        Before::Handle(unsafe { *requests })
    } else {
        // SAFETY: the caller's promise.
        before_several(unsafe { handles(count, requests) })
    }
}

#[inline(never)]
fn before_several(requests: &[ffi::MPI_Request]) -> Before {
    if is_together() {
        enter(|session| Before::Held(session.hold(requests))).unwrap_or(Before::Nothing)
    } else {
        Before::Handles(requests.into())
    }
}

impl Before {
    pub(super) fn is_nothing(&self) -> bool {
        match self {
            Before::Nothing => true,
            Before::Handle(_) | Before::Handles(_) => false,
            Before::Held(held) => held.is_empty(),
        }
    }

    /// The call has ended none of them; the program asked whether one had.
    #[inline]
    pub(super) fn none(&mut self) {
        if records_choices() || matches!(self, Before::Held(_)) {
            self.missed();
        }
    }

    #[inline(never)]
    fn missed(&mut self) {
        enter(|session| {
            session.missed();
            if let Before::Held(held) = self {
                held.drain(..).for_each(|held| session.put_back(held));
            }
        });
    }

    /// Each has ended as `end` says, or not.
    #[inline]
    pub(super) fn settle<'a>(&mut self, end: impl Fn(usize) -> End<'a>) -> c_int {
        match self {
            Before::Nothing => 0,
            Before::Handle(request) => settle_one(*request, &end(0)),
            Before::Handles(requests) => requests
                .iter()
                .enumerate()
                .fold(0, |code, (index, &request)| first(code, settle_one(request, &end(index)))),
            Before::Held(held) => put_back_or_conclude(std::mem::take(held), end),
        }
    }
}

/// A request has ended as `end` says, or not.
#[inline]
fn settle_one(request: ffi::MPI_Request, end: &End<'_>) -> c_int {
    match end {
        End::Not => 0,
        End::With(status) if may_put_off() && are_receives() => {
            put_off(PutOff::Ended { request, taken: taken(status) });
            0
        }
        end => conclude(request, end),
    }
}

/// What a request stood for, if it is known, has ended.
fn conclude(request: ffi::MPI_Request, end: &End<'_>) -> c_int {
    let result = enter(|session| match session.requests.end(request) {
        Some(pending) => session.conclude(&pending, end).map(|()| 0),
        None => Ok(0),
    });
    outcome(result, || 0)
}

/// What was held has ended as `end` says, or not.
fn put_back_or_conclude<'a>(held: Vec<Held>, end: impl Fn(usize) -> End<'a>) -> c_int {
    if held.is_empty() {
        return 0;
    }
    let mut left = held.into_iter();
    let mut refused = None;
    enter_for_room(|session| {
        while let Some(Held { index, pending, .. }) = left.as_slice().first() {
            let end = end(*index);
            match session.conclude(pending, &end) {
                // There it goes on.
                Err((_, FullError::Later)) => return Err(FullError::Later),
                done => refused = done.err().or(refused.take()),
            }
            if let Some(held) = left.next().filter(|_| matches!(end, End::Not)) {
                session.put_back(held);
            }
        }
        Ok(())
    });
    refused.map_or(0, |(comm, full)| refuse(comm, &full))
}

/// MPI's code, or ours where MPI has none.
pub(super) fn first(code: c_int, other: c_int) -> c_int {
    if code == 0 { other } else { code }
}
