//! Every way to wait for requests, and to test them.
//!
//! # Safety
//! The unsafe functions take the program's own arguments to an MPI call still in progress. Pointers are valid as MPI
//! demands until it returns.

use std::ffi::c_int;
use std::rc::Rc;
use std::time::Duration;

use counterfoil_runtime::communicator::Request;
use mpi_sys as ffi;

use super::{Named, State, handles};
use crate::failure::Failure;
use crate::front::Front;
use crate::last_test::Test;
use crate::status::Outcome;

/// Time between two checks of a generalized request, completed by another thread.
const NAP: Duration = Duration::from_micros(50);

fn undefined() -> c_int {
    // SAFETY: a shim constant.
    unsafe { ffi::RSMPI_UNDEFINED }
}

impl Front {
    /// Returns the place in `named` of a completed request; with `wait`, waits for one.
    ///
    /// `None` if none is complete. `named`: the participating ones of `handles`, with their indices.
    fn find_complete(
        &self,
        handles: &[ffi::MPI_Request],
        named: &[(usize, Named)],
        wait: bool,
    ) -> Result<Option<usize>, Failure> {
        loop {
            let requests = self.requests.borrow();
            if let Some(place) = named.iter().position(|(_, named)| requests.is_done(*named)) {
                return Ok(Some(place));
            }
            // A test of one message, as in a loop, allocates nothing.
            if let [(_, only)] = named
                && let Some([request]) = requests.pending(*only)
            {
                let lists: &[&[&Request]] = &[&[request]];
                let found = self.process.call(|endpoint| match wait {
                    true => endpoint.wait_any(lists),
                    false => endpoint.test_any(lists),
                })?;
                if found.is_none() {
                    self.note_nothing_found(Test::Any(handles));
                }
                return Ok(found);
            }
            let pending: Vec<(usize, Vec<&Request>)> = named
                .iter()
                .enumerate()
                .filter_map(|(place, (_, named))| Some((place, requests.pending(*named)?.iter().collect())))
                .collect();
            let lists: Vec<&[&Request]> = pending.iter().map(|(_, list)| list.as_slice()).collect();
            // Other requests are completed by the program.
            let are_all_pending = pending.len() == named.len();
            if lists.is_empty() && !wait {
                return Ok(None);
            }
            let found = self.process.call(|endpoint| {
                if wait && are_all_pending { endpoint.wait_any(&lists) } else { endpoint.test_any(&lists) }
            })?;
            if let Some(found) = found {
                return Ok(Some(pending[found].0));
            }
            if !wait {
                if are_all_pending {
                    self.note_nothing_found(Test::Any(handles));
                }
                return Ok(None);
            }
            drop(requests);
            std::thread::sleep(NAP);
        }
    }

    /// Returns `true` if the endpoint's requests for all these are complete.
    ///
    /// `named`: the participating ones of `handles`, with their indices.
    fn are_all_complete(&self, handles: &[ffi::MPI_Request], named: &[(usize, Named)]) -> Result<bool, Failure> {
        let requests = self.requests.borrow();
        let is_open = |named: Named| requests.pending(named).is_none() && !requests.is_done(named);
        if named.iter().any(|(_, named)| is_open(*named)) {
            return Ok(false);
        }
        let list: Vec<&Request> = named.iter().filter_map(|(_, named)| requests.pending(*named)).flatten().collect();
        if list.is_empty() {
            return Ok(true);
        }
        let is_complete = self.process.call(|endpoint| endpoint.test_any(&[&list]))?.is_some();
        if !is_complete {
            self.note_nothing_found(Test::All(handles));
        }
        Ok(is_complete)
    }

    /// Returns the handles' meanings, without those that take no part.
    fn named(&self, handles: &[ffi::MPI_Request]) -> Result<Vec<(usize, Named)>, Failure> {
        let requests = self.requests.borrow();
        let mut named = Vec::with_capacity(handles.len());
        for (index, handle) in handles.iter().enumerate() {
            let one = requests.find(*handle)?;
            if !requests.is_inactive(one) {
                named.push((index, one));
            }
        }
        Ok(named)
    }

    /// Waits until another thread has completed a generalized request.
    fn await_generalized(&self, named: Named) {
        let flag = match self.requests.borrow().state(named) {
            Some(State::Generalized(generalized)) => Rc::clone(&generalized.is_complete),
            _ => return,
        };
        while !flag.get() {
            std::thread::sleep(NAP);
        }
    }
}

/// Returns a request's status in an array; the one to ignore if all are.
///
/// # Safety
/// See the [module](self).
unsafe fn status_of(statuses: *mut ffi::MPI_Status, index: usize) -> *mut ffi::MPI_Status {
    // SAFETY: shim constants, and the program's array.
    unsafe { if statuses == ffi::RSMPI_STATUSES_IGNORE { ffi::RSMPI_STATUS_IGNORE } else { statuses.add(index) } }
}

/// Stores the outcomes of several requests, with each one's code.
///
/// Returns an error if one has failed.
///
/// # Safety
/// See the [module](self).
unsafe fn end_several(statuses: *mut ffi::MPI_Status, outcomes: &[(Outcome, ffi::MPI_Comm)]) -> Result<(), Failure> {
    let failed = outcomes.iter().find(|(outcome, _)| outcome.code != 0);
    for (index, (outcome, _)) in outcomes.iter().enumerate() {
        // SAFETY: the program's statuses.
        unsafe {
            let status = status_of(statuses, index);
            outcome.store(status);
            if failed.is_some() && status != ffi::RSMPI_STATUS_IGNORE {
                (*status).MPI_ERROR = outcome.code;
            }
        }
    }
    match failed {
        None => Ok(()),
        Some((_, comm)) => Err(Failure::class(ffi::MPI_ERR_IN_STATUS).on(*comm)),
    }
}

/// Implements call class `wait`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn wait(
    front: &Front,
    request: *mut ffi::MPI_Request,
    status: *mut ffi::MPI_Status,
) -> Result<(), Failure> {
    // SAFETY: the program's handle and status.
    unsafe {
        let named = front.requests.borrow().find(*request)?;
        front.await_generalized(named);
        let (outcome, comm) = front.take(&mut *request, named)?;
        outcome.end(status, comm)
    }
}

/// Implements call class `wait_any`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn wait_any(
    front: &Front,
    count: c_int,
    requests: *mut ffi::MPI_Request,
    index: *mut c_int,
    status: *mut ffi::MPI_Status,
) -> Result<(), Failure> {
    // SAFETY: the program's array and variables.
    unsafe {
        let handles = handles(count, requests)?;
        let named = front.named(handles)?;
        if named.is_empty() {
            *index = undefined();
            Outcome::empty().store(status);
            return Ok(());
        }
        let found = front.find_complete(handles, &named, true)?;
        end_one(front, handles, &named, found, index, status)
    }
}

/// Takes the request found, by its place in `named`, and stores index and outcome.
///
/// # Safety
/// See the [module](self).
unsafe fn end_one(
    front: &Front,
    handles: &mut [ffi::MPI_Request],
    named: &[(usize, Named)],
    found: Option<usize>,
    index: *mut c_int,
    status: *mut ffi::MPI_Status,
) -> Result<(), Failure> {
    let Some((at, named)) = found.map(|place| named[place]) else { return Ok(()) };
    let (outcome, comm) = front.take(&mut handles[at], named)?;
    // SAFETY: the program's variables.
    unsafe {
        *index = at as c_int;
        outcome.end(status, comm)
    }
}

/// Implements call class `wait_all`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn wait_all(
    front: &Front,
    count: c_int,
    requests: *mut ffi::MPI_Request,
    statuses: *mut ffi::MPI_Status,
) -> Result<(), Failure> {
    // SAFETY: the program's arrays.
    unsafe {
        let handles = handles(count, requests)?;
        let named: Vec<Named> =
            handles.iter().map(|handle| front.requests.borrow().find(*handle)).collect::<Result<_, _>>()?;
        let mut outcomes = Vec::with_capacity(handles.len());
        for (handle, named) in handles.iter_mut().zip(named) {
            front.await_generalized(named);
            outcomes.push(front.take(handle, named)?);
        }
        end_several(statuses, &outcomes)
    }
}

/// Implements call class `wait_some`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn wait_some(
    front: &Front,
    count: c_int,
    requests: *mut ffi::MPI_Request,
    completed: *mut c_int,
    indices: *mut c_int,
    statuses: *mut ffi::MPI_Status,
) -> Result<(), Failure> {
    // SAFETY: the program's arrays.
    unsafe { take_some(front, (count, requests), completed, indices, statuses, true) }
}

/// Implements call class `test_some`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn test_some(
    front: &Front,
    count: c_int,
    requests: *mut ffi::MPI_Request,
    completed: *mut c_int,
    indices: *mut c_int,
    statuses: *mut ffi::MPI_Status,
) -> Result<(), Failure> {
    // SAFETY: the program's arrays.
    unsafe { take_some(front, (count, requests), completed, indices, statuses, false) }
}

/// # Safety
/// See the [module](self).
unsafe fn take_some(
    front: &Front,
    (count, requests): (c_int, *mut ffi::MPI_Request),
    completed: *mut c_int,
    indices: *mut c_int,
    statuses: *mut ffi::MPI_Status,
    mut wait: bool,
) -> Result<(), Failure> {
    // SAFETY: the program's arrays.
    unsafe {
        let handles = handles(count, requests)?;
        if !wait && front.finds_nothing_again(Test::Any(handles))? {
            *completed = 0;
            return Ok(());
        }
        let mut named = front.named(handles)?;
        if named.is_empty() {
            *completed = undefined();
            return Ok(());
        }
        let mut outcomes = Vec::new();
        while let Some(place) = front.find_complete(handles, &named, wait)? {
            let (index, one) = named.remove(place);
            *indices.add(outcomes.len()) = index as c_int;
            outcomes.push(front.take(&mut handles[index], one)?);
            wait = false;
        }
        *completed = outcomes.len() as c_int;
        end_several(statuses, &outcomes)
    }
}

/// Implements call class `test`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn test(
    front: &Front,
    request: *mut ffi::MPI_Request,
    flag: *mut c_int,
    status: *mut ffi::MPI_Status,
) -> Result<(), Failure> {
    // SAFETY: the program's handle and variables.
    unsafe {
        let handles = std::slice::from_ref(&*request);
        if front.finds_nothing_again(Test::Any(handles))? {
            *flag = 0;
            return Ok(());
        }
        let named = front.requests.borrow().find(*request)?;
        let is_inactive = front.requests.borrow().is_inactive(named);
        let is_complete = is_inactive || front.find_complete(handles, &[(0, named)], false)?.is_some();
        *flag = c_int::from(is_complete);
        if !is_complete {
            return Ok(());
        }
        let (outcome, comm) = front.take(&mut *request, named)?;
        outcome.end(status, comm)
    }
}

/// Implements call class `test_any`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn test_any(
    front: &Front,
    count: c_int,
    requests: *mut ffi::MPI_Request,
    index: *mut c_int,
    flag: *mut c_int,
    status: *mut ffi::MPI_Status,
) -> Result<(), Failure> {
    // SAFETY: the program's array and variables.
    unsafe {
        let handles = handles(count, requests)?;
        (*index, *flag) = (undefined(), 0);
        if front.finds_nothing_again(Test::Any(handles))? {
            return Ok(());
        }
        let named = front.named(handles)?;
        *flag = 1;
        if named.is_empty() {
            Outcome::empty().store(status);
            return Ok(());
        }
        let found = front.find_complete(handles, &named, false)?;
        *flag = c_int::from(found.is_some());
        end_one(front, handles, &named, found, index, status)
    }
}

/// Implements call class `test_all`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn test_all(
    front: &Front,
    count: c_int,
    requests: *mut ffi::MPI_Request,
    flag: *mut c_int,
    statuses: *mut ffi::MPI_Status,
) -> Result<(), Failure> {
    // SAFETY: the program's arrays.
    unsafe {
        let handles = handles(count, requests)?;
        if front.finds_nothing_again(Test::All(handles))? {
            *flag = 0;
            return Ok(());
        }
        let named = front.named(handles)?;
        let is_complete = front.are_all_complete(handles, &named)?;
        *flag = c_int::from(is_complete);
        if is_complete { wait_all(front, count, requests, statuses) } else { Ok(()) }
    }
}

/// Implements call class `request_status`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn request_status(
    front: &Front,
    request: ffi::MPI_Request,
    flag: *mut c_int,
    status: *mut ffi::MPI_Status,
) -> Result<(), Failure> {
    // SAFETY: the program's variables.
    unsafe {
        *flag = 1;
        let named = front.requests.borrow().find(request)?;
        if front.requests.borrow().is_inactive(named) || named == Named::Sent {
            Outcome::empty().store(status);
            return Ok(());
        }
        if front.find_complete(&[request], &[(0, named)], false)?.is_none() {
            *flag = 0;
            return Ok(());
        }
        let Named::Entry(number) = named else { return Ok(()) };
        // The outcome stays for the call that ends the request.
        let state = match front.requests.borrow_mut().entries.get_mut(number) {
            Some(entry) => std::mem::replace(&mut entry.state, State::Inactive),
            None => State::Inactive,
        };
        let outcome = front.outcome(state)?;
        outcome.store(status);
        if let Some(entry) = front.requests.borrow_mut().entries.get_mut(number) {
            entry.state = State::Done(outcome);
        }
        Ok(())
    }
}
