//! Requests that a call may end: their operations, taken before the call, and their ends.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use counterfoil_mpi_core::control::failures::is_pending;
use mpi_sys as ffi;

use super::requests::finish;
use super::send::refuse;
use crate::awaited::{note_failed, while_awaiting_several};
use crate::deferred::{self, Event};
use crate::global::{
    can_defer, catch_up_if_due, count_failed_poll, defer, enter, enter_for_space, is_multiple, records_determinants,
};
use crate::session::requests::{Pending, Persistent, PersistentKind, are_any, are_receives, handles};
use crate::session::{FullError, Session};
use crate::status::{arrival, has_taken, is_cancelled, is_refusal};

/// A request taken out of the session during a call.
pub(super) struct TakenRequest {
    /// Index in the program's array.
    index: usize,
    request: ffi::MPI_Request,
    pending: Pending,
}

/// A call's requests, as they were before: the call clears the handles of ended ones.
pub(super) enum RequestSnapshot<'a> {
    /// No known request.
    Empty,
    /// Handles, where one thread at a time calls.
    Inline(&'a [ffi::MPI_Request]),
    /// Like `Inline`, on the heap.
    Heap(Vec<ffi::MPI_Request>),
    /// Known requests, taken out of the session: with several threads, another one may get the handle of an ended
    /// request for a new one.
    Taken(Vec<TakenRequest>),
}

/// Space for handles on the stack.
pub(super) struct InlineHandles(MaybeUninit<[ffi::MPI_Request; InlineHandles::MAX]>);

impl InlineHandles {
    const MAX: usize = 32;

    pub(super) fn new() -> InlineHandles {
        InlineHandles(MaybeUninit::uninit())
    }

    /// Copies at most [`MAX`](Self::MAX) handles, loaded and stored one by one: MPI may have stored them just now.
    #[inline(always)]
    fn copy(&mut self, requests: &[ffi::MPI_Request]) -> &[ffi::MPI_Request] {
        let to: *mut ffi::MPI_Request = self.0.as_mut_ptr().cast();
        let requests = &requests[..requests.len().min(InlineHandles::MAX)];
        for (index, request) in requests.iter().enumerate() {
            // SAFETY: a reference, and an element within the array; volatile loads are not merged into wider ones.
            unsafe { to.add(index).write(std::ptr::read_volatile(request)) };
        }
        // SAFETY: as many elements were written just now.
        unsafe { std::slice::from_raw_parts(to, requests.len()) }
    }
}

impl Session {
    fn take_requests(&mut self, requests: &[ffi::MPI_Request]) -> Vec<TakenRequest> {
        let mut taken = Vec::new();
        for (index, &request) in requests.iter().enumerate() {
            if let Some(pending) = self.requests.end(request) {
                taken.push(TakenRequest { index, request, pending });
            }
        }
        taken
    }

    /// Puts back a pending request.
    fn put_back(&mut self, taken: TakenRequest) {
        self.requests.add(
            taken.request,
            match taken.pending {
                Pending::Persistent(persistent) => Pending::Persistent(Persistent { is_active: true, ..persistent }),
                pending => pending,
            },
        );
    }

    /// Handles a request ended with this status.
    fn end_request(&mut self, pending: &Pending, status: &ffi::MPI_Status) -> Result<(), (ffi::MPI_Comm, FullError)> {
        match pending {
            Pending::Receive(receiving) => self.end_with_status(*receiving, status),
            Pending::Counted(outcome) => {
                if let Some(outcome) = *outcome {
                    self.record(outcome);
                }
            }
            Pending::Comm { at, number } => {
                // SAFETY: the program has waited for the communicator, so MPI has put it there.
                let comm = unsafe { **at };
                self.add_numbered(comm, *number);
            }
            Pending::Persistent(Persistent { kind: PersistentKind::Receive(receiving), .. }) => {
                self.end_with_status(*receiving, status);
            }
            Pending::Persistent(Persistent { kind: PersistentKind::ReceivePartitioned(stream), .. }) => {
                self.handle_partitioned(*stream, status);
            }
            Pending::Persistent(Persistent { kind: PersistentKind::SendPartitioned(out, stream), .. }) => {
                // SAFETY: the program's message, which it may write again when this call returns.
                unsafe { self.log_partitioned(out, *stream) }.map_err(|full| (out.comm, full))?;
            }
            Pending::CancelledSend | Pending::Persistent(Persistent { kind: PersistentKind::Send(_), .. }) => {
                // Its number is taken, and no rank will receive it: both ends count differently from here on.
                if is_cancelled(status) {
                    self.give_up(
                        &"a send was cancelled by MPI_Cancel, so the numbers of messages are unknown from here on",
                    );
                }
            }
            Pending::Generalized | Pending::Persistent(_) => {}
        }
        Ok(())
    }

    /// Handles a failed request: nothing was received.
    fn fail_request(&mut self, pending: &Pending) {
        if let Pending::Receive(receiving)
        | Pending::Persistent(Persistent { kind: PersistentKind::Receive(receiving), .. }) = pending
        {
            self.end_receive(*receiving, None);
        }
    }

    fn complete_request(
        &mut self,
        pending: &Pending,
        completion: &Completion<'_>,
    ) -> Result<(), (ffi::MPI_Comm, FullError)> {
        match completion {
            Completion::Ended(status) => self.end_request(pending, status)?,
            Completion::Failed => self.fail_request(pending),
            Completion::Pending => {}
        }
        Ok(())
    }
}

/// A request's state after a call.
pub(super) enum Completion<'a> {
    /// Still pending.
    Pending,
    /// Ended with this status.
    Ended(&'a ffi::MPI_Status),
    /// Ended with an error.
    Failed,
}

impl Completion<'_> {
    /// Returns the completion of a request with this code.
    pub(super) fn new(code: c_int, status: &ffi::MPI_Status) -> Completion<'_> {
        if has_taken(code) {
            // A truncated message is an error, and was received.
            return Completion::Ended(status);
        }
        note_failed(code);
        // A receive from any source stays pending when a process failure has interrupted it, and so do the requests of
        // a call with wrong arguments.
        if is_pending(code) || is_refusal(code) { Completion::Pending } else { Completion::Failed }
    }
}

/// Returns `true` if a call may end a known request.
#[inline]
pub(super) fn are_known() -> bool {
    are_any() || deferred::has_posted()
}

/// Takes a snapshot of the requests that a call may end.
///
/// Programs poll in loops, so little is done here.
///
/// # Safety
/// `requests` has `count` handles.
#[inline(always)]
pub(super) unsafe fn snapshot<'a>(
    count: c_int,
    requests: *const ffi::MPI_Request,
    space: &'a mut InlineHandles,
) -> RequestSnapshot<'a> {
    catch_up_if_due();
    if !are_known() {
        return RequestSnapshot::Empty;
    }
    // SAFETY: the caller's promise.
    let requests = unsafe { handles(count, requests) };
    if is_multiple() {
        RequestSnapshot::Taken(take(requests))
    } else if requests.len() > InlineHandles::MAX {
        RequestSnapshot::Heap(requests.to_vec())
    } else {
        RequestSnapshot::Inline(space.copy(requests))
    }
}

#[inline(never)]
fn take(requests: &[ffi::MPI_Request]) -> Vec<TakenRequest> {
    enter(|session| session.take_requests(requests)).unwrap_or_default()
}

/// Puts back pending requests.
///
/// Those that MPI has completed, while others in the call are pending, are examined here, if a sender waits for space:
/// no poll finds them during a call.
#[inline(never)]
fn put_back(taken: &mut Vec<TakenRequest>) {
    enter(|session| {
        taken.drain(..).for_each(|taken| session.put_back(taken));
        session.count_early_if_queried();
    });
}

impl RequestSnapshot<'_> {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        match self {
            RequestSnapshot::Empty => true,
            RequestSnapshot::Inline(_) | RequestSnapshot::Heap(_) => false,
            RequestSnapshot::Taken(taken) => taken.is_empty(),
        }
    }

    /// Puts back requests taken out of the session, after a call that has ended none of them.
    #[inline]
    pub(super) fn restore(&mut self) {
        if let RequestSnapshot::Taken(taken) = self {
            put_back(taken);
        }
    }

    /// Counts a program's call without an ended request.
    #[inline]
    pub(super) fn count_failure(&self) {
        if let RequestSnapshot::Taken(_) = self {
            count_failed_poll();
        } else {
            count_failed_test();
        }
    }

    /// Handles a program's call without an ended request.
    #[inline]
    pub(super) fn put_back(&mut self) {
        self.restore();
        self.count_failure();
    }

    /// Handles the requests by their completions.
    ///
    /// Returns MPI's code, an error if a record was refused.
    #[inline]
    pub(super) fn end<'a>(&mut self, completion: impl Fn(usize) -> Completion<'a>) -> c_int {
        let handles = match self {
            RequestSnapshot::Empty => return 0,
            RequestSnapshot::Inline(handles) => handles,
            RequestSnapshot::Heap(handles) => &handles[..],
            RequestSnapshot::Taken(taken) => return end_or_put_back(std::mem::take(taken), completion),
        };
        let end = |code, (index, &request): (usize, &_)| first(code, end_or_defer(request, &completion(index)));
        while_awaiting_several(|| handles.iter().enumerate().fold(0, end))
    }
}

/// Counts a test without an ended request, where determinants are recorded.
#[inline(always)]
fn count_failed_test() {
    if records_determinants() {
        count_failed_poll();
    }
}

/// Takes a request out of the session before a call that may end it, with several threads.
///
/// Handles due deferred events.
///
/// # Safety
/// `request` points to a request.
#[cold]
#[inline(never)]
pub(super) unsafe fn take_one(request: *const ffi::MPI_Request) -> Option<Box<TakenRequest>> {
    catch_up_if_due();
    if !is_multiple() || !are_known() {
        return None;
    }
    // SAFETY: the caller's promise.
    enter(|session| session.take_requests(unsafe { handles(1, request) }).pop().map(Box::new))?
}

/// Handles a test whose request is pending.
#[inline(always)]
pub(super) fn put_back_one(taken: Option<Box<TakenRequest>>) {
    match taken {
        None => count_failed_test(),
        Some(taken) => {
            put_back(&mut vec![*taken]);
            count_failed_poll();
        }
    }
}

/// Handles a call's only request, ended with this code and status.
///
/// Returns the code, or an error if a record was refused.
#[inline(never)]
pub(super) fn end_one(
    taken: Option<Box<TakenRequest>>,
    request: ffi::MPI_Request,
    code: c_int,
    status: &ffi::MPI_Status,
) -> c_int {
    match taken {
        Some(taken) => first(code, end_or_put_back(vec![*taken], |_| Completion::new(code, status))),
        None if is_multiple() || !are_known() => code,
        None => first(code, end_or_defer(request, &Completion::new(code, status))),
    }
}

/// Handles a request by its completion, deferred where allowed.
#[inline]
fn end_or_defer(request: ffi::MPI_Request, completion: &Completion<'_>) -> c_int {
    match completion {
        Completion::Pending => 0,
        Completion::Ended(status) if can_defer() && are_receives() => {
            defer(Event::Ended { request, arrival: arrival(status) });
            0
        }
        completion => end(request, completion),
    }
}

fn end(request: ffi::MPI_Request, completion: &Completion<'_>) -> c_int {
    let result = enter(|session| match session.requests.end(request) {
        Some(pending) => session.complete_request(&pending, completion).map(|()| 0),
        None => Ok(0),
    });
    finish(result, || 0)
}

/// Handles taken requests by their completions, and puts back pending ones.
fn end_or_put_back<'a>(taken: Vec<TakenRequest>, completion: impl Fn(usize) -> Completion<'a>) -> c_int {
    if taken.is_empty() {
        return 0;
    }
    let mut left = taken.into_iter();
    let mut refused = None;
    enter_for_space(|session| {
        while let Some(TakenRequest { index, pending, .. }) = left.as_slice().first() {
            let completion = completion(*index);
            match session.complete_request(pending, &completion) {
                // The next attempt goes on from this request.
                Err((_, FullError::Later)) => return Err(FullError::Later),
                done => refused = done.err().or(refused.take()),
            }
            if let Some(taken) = left.next().filter(|_| matches!(completion, Completion::Pending)) {
                session.put_back(taken);
            }
        }
        Ok(())
    });
    refused.map_or(0, |(comm, full)| refuse(comm, &full))
}

/// Returns MPI's code, or the library's where MPI has none.
pub(super) fn first(code: c_int, other: c_int) -> c_int {
    if code == 0 { other } else { code }
}
