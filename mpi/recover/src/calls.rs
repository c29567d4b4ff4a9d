//! Messages between two ranks, with one function for each call class in the table.
//!
//! # Safety
//! The unsafe functions take the program's own arguments to an MPI call still in progress. Pointers are valid as MPI
//! demands, until the call, or the request made by it, has ended.

use std::ffi::c_int;
use std::rc::Rc;

use counterfoil_mpi::Envelope;
use counterfoil_mpi_core::arguments::{Incoming, Mode, Outgoing, is_proc_null};
use counterfoil_runtime::communicator::{Communicator, Request};
use mpi_sys as ffi;

pub(crate) use crate::requests::{
    cancel, request_free, request_status, start, start_all, test, test_all, test_any, test_some, wait, wait_all,
    wait_any, wait_some,
};

use crate::comms::Comm;
use crate::failure::Failure;
use crate::front::Front;
use crate::handle::{number_of, of_number};
use crate::last_test::Test;
use crate::memory::{Kept, Layout, Memory};
use crate::requests::{Finish, Pending, State, done, partitions, sent};
use crate::status::Outcome;

/// Tag bit for partitioned messages, in the context of a communicator's collective operations.
const PARTITIONED: c_int = 1 << 30;

/// A matched message, which no other receive can take.
pub(crate) struct Matched {
    comm: Rc<Comm>,
    request: Request,
}

/// Returns a message's destination, checked; `None` for `MPI_PROC_NULL`.
fn destination(comm: &Comm, out: &Outgoing) -> Result<Option<u32>, Failure> {
    if out.count < 0 {
        return Err(Failure::class(ffi::MPI_ERR_COUNT));
    }
    if is_proc_null(out.dest) {
        return Ok(None);
    }
    if out.tag < 0 {
        return Err(Failure::class(ffi::MPI_ERR_TAG));
    }
    comm.peer(out.dest).map(Some)
}

/// Envelope wanted by a receive or a probe.
#[derive(Clone, Copy)]
struct Wanted {
    source: Option<u32>,
    tag: Option<c_int>,
}

/// Returns the wanted envelope, checked; `None` for `MPI_PROC_NULL`.
fn wanted(comm: &Comm, incoming: &Incoming) -> Result<Option<Wanted>, Failure> {
    if incoming.count < 0 {
        return Err(Failure::class(ffi::MPI_ERR_COUNT));
    }
    if is_proc_null(incoming.source) {
        return Ok(None);
    }
    // SAFETY: shim constants.
    let (any_source, any_tag) = unsafe { (ffi::RSMPI_ANY_SOURCE, ffi::RSMPI_ANY_TAG) };
    if incoming.tag < 0 && incoming.tag != any_tag {
        return Err(Failure::class(ffi::MPI_ERR_TAG));
    }
    let source = if incoming.source == any_source { None } else { Some(comm.peer(incoming.source)?) };
    Ok(Some(Wanted { source, tag: (incoming.tag != any_tag).then_some(incoming.tag) }))
}

/// Begins to send a message.
///
/// Returns `None` if the send is complete.
///
/// # Safety
/// See the [module](self).
unsafe fn begin_send(front: &Front, out: &Outgoing, mode: Mode) -> Result<Option<Pending>, Failure> {
    let comm = front.comm(out.comm)?;
    let Some(to) = destination(&comm, out)? else { return Ok(None) };
    // SAFETY: the program's memory, left unchanged until the call has returned.
    let message = unsafe { Memory::from(out).pack(front.private) }?;
    let request = comm.context.with_view(|view| match mode {
        Mode::Synchronous => view.issend(to, out.tag, &message).map(Some),
        Mode::Standard | Mode::Buffered | Mode::Ready => {
            let request = view.isend(to, out.tag, &message)?;
            view.wait(request).map(|_| None)
        }
    })?;
    Ok(request.map(|request| Pending { requests: vec![request], finish: Finish::Sent }))
}

/// Begins a receive, into memory kept by `keep`.
fn begin_receive(
    front: &Front,
    incoming: &Incoming,
    keep: impl FnOnce(Memory, ffi::MPI_Comm) -> Result<Kept, Failure>,
) -> Result<State, Failure> {
    let comm = front.comm(incoming.comm)?;
    let Some(wanted) = wanted(&comm, incoming)? else { return Ok(State::Done(Outcome::of_nobody())) };
    Memory::from(incoming).check(Layout::of(incoming.datatype)?)?;
    let kept = keep(Memory::from(incoming), front.private)?;
    let request = comm.context.with_view(|view| view.irecv(wanted.source, wanted.tag))?;
    Ok(State::Pending(Pending { requests: vec![request], finish: Finish::Receive(comm, kept) }))
}

/// Ends an operation in the call that began it.
///
/// # Safety
/// See the [module](self).
unsafe fn end(front: &Front, state: State, status: *mut ffi::MPI_Status) -> Result<(), Failure> {
    let outcome = front.outcome(state)?;
    // SAFETY: the program's status.
    unsafe { outcome.store(status) };
    Failure::check(outcome.code)
}

/// Implements call class `send`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn send(front: &Front, out: &Outgoing, mode: Mode) -> Result<(), Failure> {
    // SAFETY: the program's message.
    match unsafe { begin_send(front, out, mode) }? {
        Some(pending) => front.complete(pending).map(drop),
        None => Ok(()),
    }
}

/// Implements call class `send_immediate`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn send_immediate(
    front: &Front,
    out: &Outgoing,
    mode: Mode,
    request: *mut ffi::MPI_Request,
) -> Result<(), Failure> {
    // SAFETY: the program's message and variable.
    unsafe {
        *request = match begin_send(front, out, mode)? {
            Some(pending) => front.add_request(out.comm, State::Pending(pending)),
            None => sent(),
        };
    }
    Ok(())
}

/// Implements call class `send_persistent`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn send_persistent(
    front: &Front,
    out: &Outgoing,
    mode: Mode,
    request: *mut ffi::MPI_Request,
) -> Result<(), Failure> {
    destination(&*front.comm(out.comm)?, out)?;
    let (kept, out) = (Kept::new(Memory::from(out), front.private)?, *out);
    let begin = move |front: &Front| {
        // Captured whole: the datatype lives as long.
        let kept = &kept;
        let out = Outgoing { datatype: kept.memory.datatype, ..out };
        // SAFETY: the program's memory, as long as the request is active.
        Ok(unsafe { begin_send(front, &out, mode) }?.map_or_else(done, State::Pending))
    };
    // SAFETY: the program's variable.
    unsafe { *request = front.add_persistent(out.comm, Rc::new(begin)) };
    Ok(())
}

/// Implements call class `receive`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn receive(front: &Front, incoming: &Incoming, status: *mut ffi::MPI_Status) -> Result<(), Failure> {
    // SAFETY: the program's status.
    unsafe { end(front, begin_receive(front, incoming, Kept::borrowed)?, status) }
}

/// Implements call class `receive_immediate`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn receive_immediate(
    front: &Front,
    incoming: &Incoming,
    request: *mut ffi::MPI_Request,
) -> Result<(), Failure> {
    // SAFETY: the program's variable.
    unsafe { *request = front.add_request(incoming.comm, begin_receive(front, incoming, Kept::new)?) };
    Ok(())
}

/// Implements call class `receive_persistent`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn receive_persistent(
    front: &Front,
    incoming: &Incoming,
    request: *mut ffi::MPI_Request,
) -> Result<(), Failure> {
    wanted(&*front.comm(incoming.comm)?, incoming)?;
    let (kept, incoming) = (Kept::new(Memory::from(incoming), front.private)?, *incoming);
    let begin = move |front: &Front| {
        let kept = &kept;
        begin_receive(front, &Incoming { datatype: kept.memory.datatype, ..incoming }, Kept::borrowed)
    };
    // SAFETY: the program's variable.
    unsafe { *request = front.add_persistent(incoming.comm, Rc::new(begin)) };
    Ok(())
}

/// Returns the number of partitions, checked.
fn partitions_of(partitions: c_int) -> Result<usize, Failure> {
    usize::try_from(partitions).ok().filter(|number| *number > 0).ok_or_else(|| Failure::class(ffi::MPI_ERR_ARG))
}

/// Implements call class `send_partitioned`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn send_partitioned(
    front: &Front,
    out: &Outgoing,
    _: Mode,
    parts: c_int,
    request: *mut ffi::MPI_Request,
) -> Result<(), Failure> {
    let number = partitions_of(parts)?;
    let (kept, comm) = (Rc::new(Kept::new(Memory::from(out), front.private)?), front.comm(out.comm)?);
    let (to, tag) = (destination(&comm, out)?, PARTITIONED | out.tag);
    let begin = move |_: &Front| {
        let (kept, comm) = (Rc::clone(&kept), Rc::clone(&comm));
        let send = move |front: &Front| {
            // SAFETY: the program's memory, whose partitions are all ready.
            let message = unsafe { kept.memory.pack(front.private) }?;
            to.map_or(Ok(()), |to| Ok(comm.context.send_aside(to, tag, &message)?))
        };
        Ok(partitions(number, Rc::new(send)))
    };
    // SAFETY: the program's variable.
    unsafe { *request = front.add_persistent(out.comm, Rc::new(begin)) };
    Ok(())
}

/// Implements call class `receive_partitioned`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn receive_partitioned(
    front: &Front,
    incoming: &Incoming,
    parts: c_int,
    request: *mut ffi::MPI_Request,
) -> Result<(), Failure> {
    let number = partitions_of(parts)? as i64;
    let comm = front.comm(incoming.comm)?;
    let memory = Memory { count: incoming.count * number, ..Memory::from(incoming) };
    let (wanted, memory) = (wanted(&comm, incoming)?, Kept::new(memory, front.private)?);
    let tag = PARTITIONED | incoming.tag;
    let begin = move |front: &Front| {
        let memory = &memory;
        let Some(Wanted { source: Some(source), .. }) = wanted else { return Ok(State::Done(Outcome::of_nobody())) };
        let request = comm.context.post_aside(source, tag)?;
        let finish = Finish::Receive(Rc::clone(&comm), Kept::new(memory.memory, front.private)?);
        Ok(State::Pending(Pending { requests: vec![request], finish }))
    };
    // SAFETY: the program's variable.
    unsafe { *request = front.add_persistent(incoming.comm, Rc::new(begin)) };
    Ok(())
}

/// Returns a probe's outcome.
fn probed(found: Envelope) -> Outcome {
    Outcome { source: found.source as c_int, tag: found.tag, len: found.len, ..Outcome::empty() }
}

/// Implements call class `probe`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn probe(front: &Front, incoming: &Incoming, status: *mut ffi::MPI_Status) -> Result<(), Failure> {
    let comm = front.comm(incoming.comm)?;
    let outcome = match wanted(&comm, incoming)? {
        None => Outcome::of_nobody(),
        Some(wanted) => probed(comm.context.probe(wanted.source, wanted.tag)?),
    };
    // SAFETY: the program's status.
    unsafe { outcome.store(status) };
    Ok(())
}

/// Implements call class `probe_immediate`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn probe_immediate(
    front: &Front,
    incoming: &Incoming,
    flag: *mut c_int,
    status: *mut ffi::MPI_Status,
) -> Result<(), Failure> {
    let comm = front.comm(incoming.comm)?;
    let found = match wanted(&comm, incoming)? {
        None => Some(Outcome::of_nobody()),
        Some(wanted) => {
            let test = Test::Probe(incoming.comm, wanted.source, wanted.tag);
            if front.finds_nothing_again(test)? {
                None
            } else {
                let found = comm.context.immediate_probe(wanted.source, wanted.tag)?;
                if found.is_none() {
                    front.note_nothing_found(test);
                }
                found.map(probed)
            }
        }
    };
    // SAFETY: the program's variables.
    unsafe {
        *flag = c_int::from(found.is_some());
        if let Some(found) = found {
            found.store(status);
        }
    }
    Ok(())
}

/// Matches a probed message, and stores its handle and its envelope; `None` for `MPI_PROC_NULL`.
///
/// # Safety
/// See the [module](self).
unsafe fn store_match(
    front: &Front,
    comm: &Rc<Comm>,
    found: Option<Envelope>,
    message: *mut ffi::MPI_Message,
    status: *mut ffi::MPI_Status,
) -> Result<(), Failure> {
    // SAFETY: the program's variables, and a shim constant.
    unsafe {
        let Some(found) = found else {
            *message = ffi::RSMPI_MESSAGE_NO_PROC;
            Outcome::of_nobody().store(status);
            return Ok(());
        };
        let matched = Matched { comm: Rc::clone(comm), request: comm.context.match_probed(found)? };
        *message = of_number(front.matched.borrow_mut().add(matched));
        probed(found).store(status);
    }
    Ok(())
}

/// Implements call class `match_message`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn match_message(
    front: &Front,
    incoming: &Incoming,
    message: *mut ffi::MPI_Message,
    status: *mut ffi::MPI_Status,
) -> Result<(), Failure> {
    let comm = front.comm(incoming.comm)?;
    let wanted = wanted(&comm, incoming)?;
    let found = wanted.map(|wanted| comm.context.probe(wanted.source, wanted.tag)).transpose()?;
    // SAFETY: the program's variables.
    unsafe { store_match(front, &comm, found, message, status) }
}

/// Implements call class `match_immediate`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn match_immediate(
    front: &Front,
    incoming: &Incoming,
    flag: *mut c_int,
    message: *mut ffi::MPI_Message,
    status: *mut ffi::MPI_Status,
) -> Result<(), Failure> {
    let comm = front.comm(incoming.comm)?;
    let wanted = wanted(&comm, incoming)?;
    let found = wanted.map(|wanted| comm.context.immediate_probe(wanted.source, wanted.tag)).transpose()?;
    // SAFETY: the program's variables.
    unsafe {
        *flag = c_int::from(found != Some(None));
        if *flag == 0 { Ok(()) } else { store_match(front, &comm, found.flatten(), message, status) }
    }
}

/// Takes a matched message, and begins to receive it.
///
/// # Safety
/// See the [module](self).
unsafe fn begin_matched(
    front: &Front,
    memory: Memory,
    message: *mut ffi::MPI_Message,
) -> Result<(State, ffi::MPI_Comm), Failure> {
    if memory.count < 0 {
        return Err(Failure::class(ffi::MPI_ERR_COUNT));
    }
    // SAFETY: the program's handle, and shim constants.
    unsafe {
        let handle = std::mem::replace(&mut *message, ffi::RSMPI_MESSAGE_NULL);
        if handle == ffi::RSMPI_MESSAGE_NO_PROC {
            return Ok((State::Done(Outcome::of_nobody()), front.world.handle));
        }
        let matched = number_of(handle).and_then(|number| front.matched.borrow_mut().remove(number));
        let Some(Matched { comm, request }) = matched else { return Err(Failure::class(ffi::MPI_ERR_REQUEST)) };
        let on = comm.handle;
        let finish = Finish::Receive(comm, Kept::new(memory, front.private)?);
        Ok((State::Pending(Pending { requests: vec![request], finish }), on))
    }
}

/// Implements call class `receive_matched`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn receive_matched(
    front: &Front,
    memory: Memory,
    message: *mut ffi::MPI_Message,
    status: *mut ffi::MPI_Status,
) -> Result<(), Failure> {
    // SAFETY: the program's variables.
    unsafe {
        let (state, on) = begin_matched(front, memory, message)?;
        end(front, state, status).map_err(|failure| failure.on(on))
    }
}

/// Implements call class `receive_matched_immediate`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn receive_matched_immediate(
    front: &Front,
    memory: Memory,
    message: *mut ffi::MPI_Message,
    request: *mut ffi::MPI_Request,
) -> Result<(), Failure> {
    // SAFETY: the program's variables.
    unsafe {
        let (state, on) = begin_matched(front, memory, message)?;
        *request = front.add_request(on, state);
    }
    Ok(())
}

/// Begins an exchange's receive, and sends its message.
///
/// # Safety
/// See the [module](self).
unsafe fn begin_exchange(
    front: &Front,
    out: &Outgoing,
    incoming: &Incoming,
    keep: impl FnOnce(Memory, ffi::MPI_Comm) -> Result<Kept, Failure>,
) -> Result<State, Failure> {
    destination(&*front.comm(out.comm)?, out)?;
    let state = begin_receive(front, incoming, keep)?;
    // SAFETY: the program's message.
    unsafe { send(front, out, Mode::Standard) }?;
    Ok(state)
}

/// Implements call class `exchange`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn exchange(
    front: &Front,
    out: &Outgoing,
    _: Mode,
    incoming: &Incoming,
    status: *mut ffi::MPI_Status,
) -> Result<(), Failure> {
    // SAFETY: the program's message and status.
    unsafe { end(front, begin_exchange(front, out, incoming, Kept::borrowed)?, status) }
}

/// Implements call class `exchange_replace`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn exchange_replace(
    front: &Front,
    out: &Outgoing,
    mode: Mode,
    incoming: &Incoming,
    status: *mut ffi::MPI_Status,
) -> Result<(), Failure> {
    // The message has left the memory when the receive stores another one there.
    // SAFETY: the program's message and status.
    unsafe { exchange(front, out, mode, incoming, status) }
}

/// Implements call class `exchange_immediate`.
///
/// # Safety
/// See the [module](self).
#[cfg(has = "Isendrecv")]
pub(crate) unsafe fn exchange_immediate(
    front: &Front,
    out: &Outgoing,
    _: Mode,
    incoming: &Incoming,
    request: *mut ffi::MPI_Request,
) -> Result<(), Failure> {
    // SAFETY: the program's message and variable.
    unsafe { *request = front.add_request(out.comm, begin_exchange(front, out, incoming, Kept::new)?) };
    Ok(())
}

/// Implements call class `exchange_replace_immediate`.
///
/// # Safety
/// See the [module](self).
#[cfg(has = "Isendrecv_replace")]
pub(crate) unsafe fn exchange_replace_immediate(
    front: &Front,
    out: &Outgoing,
    mode: Mode,
    incoming: &Incoming,
    request: *mut ffi::MPI_Request,
) -> Result<(), Failure> {
    // SAFETY: as in `exchange_replace`.
    unsafe { exchange_immediate(front, out, mode, incoming, request) }
}
