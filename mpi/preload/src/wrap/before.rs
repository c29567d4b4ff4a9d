//! What a call that ends requests has to know of them before, and what is done about those that it has ended.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use mpi_sys as ffi;

use super::receive::{has_taken, taken};
use super::requests::outcome;
use super::send::refuse;
use super::status::is_cancelled;
use crate::session::put_off::{PutOff, has_posted};
use crate::session::requests::{Pending, Persistent, Receiving, Repeated, are_receives, are_there, handles};
use crate::session::{
    FullError, Session, catch_up_if_due, enter, enter_for_room, is_together, may_put_off, missed, put_off,
    records_choices,
};

/// A request that a call may end, and what it stands for.
pub(super) struct Held {
    /// Its place in the program's array.
    index: usize,
    request: ffi::MPI_Request,
    pending: Pending,
}

/// What a call may end, as it was before: the call takes the handles away of what has ended.
pub(super) enum Before<'a> {
    /// Nothing that is known.
    Nothing,
    /// The handles, where one thread at a time calls.
    Handles(&'a [ffi::MPI_Request]),
    /// The same, of many.
    Many(Vec<ffi::MPI_Request>),
    /// What is known, where several threads call, taken out: another one may get the same handle for a new request as soon as the old
    /// one has ended.
    Held(Vec<Held>),
}

/// Room for handles on the stack of a call.
pub(super) struct Few(MaybeUninit<[ffi::MPI_Request; Few::MAX]>);

impl Few {
    const MAX: usize = 32;

    pub(super) fn new() -> Few {
        Few(MaybeUninit::uninit())
    }

    /// Copies handles, of which there is room for so many. They are loaded and stored one by one: MPI may have stored them just now.
    #[inline(always)]
    fn copy(&mut self, requests: &[ffi::MPI_Request]) -> &[ffi::MPI_Request] {
        let few: *mut ffi::MPI_Request = self.0.as_mut_ptr().cast();
        let requests = &requests[..requests.len().min(Few::MAX)];
        for (index, request) in requests.iter().enumerate() {
            // SAFETY: a reference, and a place among as many; volatile loads are not made into wider ones.
            unsafe { few.add(index).write(std::ptr::read_volatile(request)) };
        }
        // SAFETY: so many were written just now.
        unsafe { std::slice::from_raw_parts(few, requests.len()) }
    }
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

/// Whether a call may end a request that is known.
#[inline]
pub(super) fn are_known() -> bool {
    are_there() || has_posted()
}

/// Remembers what a call may end. Programs ask again and again: little is done here.
///
/// # Safety
/// `requests` has `count`.
#[inline(always)]
pub(super) unsafe fn before<'a>(count: c_int, requests: *const ffi::MPI_Request, few: &'a mut Few) -> Before<'a> {
    catch_up_if_due();
    if !are_known() {
        return Before::Nothing;
    }
    // SAFETY: the caller's promise.
    let requests = unsafe { handles(count, requests) };
    if is_together() {
        Before::Held(hold(requests))
    } else if requests.len() > Few::MAX {
        Before::Many(requests.to_vec())
    } else {
        Before::Handles(few.copy(requests))
    }
}

#[inline(never)]
fn hold(requests: &[ffi::MPI_Request]) -> Vec<Held> {
    enter(|session| session.hold(requests)).unwrap_or_default()
}

#[inline(never)]
fn put_back(held: &mut Vec<Held>) {
    enter(|session| held.drain(..).for_each(|held| session.put_back(held)));
}

impl Before<'_> {
    #[inline]
    pub(super) fn is_nothing(&self) -> bool {
        match self {
            Before::Nothing => true,
            Before::Handles(_) | Before::Many(_) => false,
            Before::Held(held) => held.is_empty(),
        }
    }

    /// The call has ended none of them; the program asked whether one had.
    #[inline]
    pub(super) fn none(&mut self) {
        if let Before::Held(held) = self {
            put_back(held);
            missed();
        } else {
            missed_request();
        }
    }

    /// Each has ended as `end` says, or not.
    #[inline]
    pub(super) fn settle<'a>(&mut self, end: impl Fn(usize) -> End<'a>) -> c_int {
        let handles = match self {
            Before::Nothing => return 0,
            Before::Handles(handles) => handles,
            Before::Many(handles) => &handles[..],
            Before::Held(held) => return put_back_or_conclude(std::mem::take(held), end),
        };
        handles.iter().enumerate().fold(0, |code, (index, &request)| first(code, settle_one(request, &end(index))))
    }
}

/// The program asked whether a request had ended, and none had.
#[inline(always)]
pub(super) fn missed_request() {
    if records_choices() {
        missed();
    }
}

/// Before a call that may end one request, where something is due or threads call at once: sees to that, and takes out what is known.
///
/// # Safety
/// `request` points to one.
#[cold]
#[inline(never)]
pub(super) unsafe fn held(request: *const ffi::MPI_Request) -> Option<Box<Held>> {
    catch_up_if_due();
    if !is_together() || !are_known() {
        return None;
    }
    // SAFETY: the caller's promise.
    enter(|session| session.hold(unsafe { handles(1, request) }).pop().map(Box::new))?
}

/// The program asked whether a request had ended, and it had not.
#[inline(always)]
pub(super) fn missed_one(held: Option<Box<Held>>) {
    match held {
        None => missed_request(),
        Some(held) => {
            put_back(&mut vec![*held]);
            missed();
        }
    }
}

/// The only request of a call has ended: with this code of the call's, and this status.
#[inline(never)]
pub(super) fn ended_one(
    held: Option<Box<Held>>,
    request: ffi::MPI_Request,
    code: c_int,
    status: &ffi::MPI_Status,
) -> c_int {
    match held {
        Some(held) => first(code, put_back_or_conclude(vec![*held], |_| End::of(code, status))),
        None if is_together() || !are_known() => code,
        None => first(code, settle_one(request, &End::of(code, status))),
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
