//! Records of sent messages.
//!
//! There are several ways to write one, since a message costs as much as it delays the next one. Reasons and figures:
//! see `docs/lab/mpi-cost.md`, "Causes: a message"; ping-pong times with the library, relative to those without it.

use std::ffi::{c_int, c_void};

use counterfoil::{AppendError, Claim, Log, Rank};
use counterfoil_mpi_logger::Stream;
use counterfoil_profile::RecordTag;
use mpi_sys as ffi;

use super::collectives::is_in_place;
use super::datatypes::{Datatypes, Layout, copy};
use super::{FullError, Session, StreamEntry, StreamKey};
use crate::next;
use counterfoil_mpi_core::arguments::Outgoing;

/// Address, number of elements and datatype.
pub(crate) type Message = (*const c_void, i64, ffi::MPI_Datatype);

/// Elements of a contribution, and their memory layout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    buf: *const c_void,
    count: i64,
    datatype: ffi::MPI_Datatype,
    layout: Layout,
    bytes: usize,
}

impl Piece {
    /// Makes the piece outlive its datatype.
    #[cfg(wraps = "collective_persistent")]
    pub(super) fn hold(&mut self, datatypes: &mut Datatypes) {
        self.datatype = datatypes.hold(self.datatype);
    }

    /// Releases a datatype kept by [`hold`](Self::hold).
    pub(crate) fn release(&self, datatypes: &mut Datatypes) {
        datatypes.release(self.datatype);
    }
}

/// Time at which a message is copied into its record.
///
/// While it is under way the copy is nearly free: a 1 KiB message sent and then copied cost 1.30; begun, copied and
/// waited for, 1.09.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyTime {
    /// While the message is under way.
    AfterSend,
    /// Before it is sent: a received message takes its place in memory.
    BeforeSend,
}

/// Outcome of a record claimed before its message was sent.
enum Written {
    Committed,
    /// MPI refused the message with this code.
    NotSent(c_int),
    /// MPI can't pack the message; its code.
    Unpacked(c_int),
}

/// Reason for an unwritten record.
enum NotWritten {
    Refused(Box<AppendError>),
    /// MPI can't pack the message; its code.
    Unpacked(c_int),
}

/// Writes a record of any length and layout.
///
/// Calls `meanwhile` now and then: the MPI may move the message, still under way, only during such calls.
///
/// # Safety
/// See [`copy`]; the elements have `bytes` bytes.
unsafe fn write_record(
    log: &mut Log,
    peer: u32,
    tag: RecordTag,
    (buf, count, datatype, layout): (*const c_void, i64, ffi::MPI_Datatype, &Layout),
    bytes: usize,
    meanwhile: &mut dyn FnMut(),
) -> Result<(), NotWritten> {
    let mut claim = log.claim(Rank(peer), RecordTag::LEN, bytes).map_err(NotWritten::Refused)?;
    let (prefix, payload) = claim.parts_mut();
    prefix.copy_from_slice(&tag.encode());
    // SAFETY: the caller's promise; the payload has as many bytes as the elements.
    unsafe { copy(buf, count, datatype, layout, payload, meanwhile) }.map_err(NotWritten::Unpacked)?;
    claim.commit();
    Ok(())
}

/// Writes a record if there is space for it at once.
///
/// Nothing between its claim and its commit can fail or panic, so all of it is built in registers: the stores after a
/// send, which the next message waits for, went from 106 to 30. The next record's place is prefetched: 1.25 became 1.14
/// at 256 B with everything kept.
///
/// # Safety
/// There are `bytes` bytes at `buf`, not written meanwhile.
#[inline(always)]
unsafe fn write_short_record(log: &mut Log, peer: u32, tag: RecordTag, buf: *const u8, bytes: usize) -> bool {
    let Some(mut claim) = log.claim_if_room(Rank(peer), RecordTag::LEN, bytes) else { return false };
    let (prefix, payload) = claim.parts_mut();
    prefix.copy_from_slice(&tag.encode());
    // SAFETY: the caller's promise; the payload has as many bytes.
    unsafe { std::ptr::copy_nonoverlapping(buf, payload.as_mut_ptr(), bytes) };
    claim.commit_and_prefetch();
    true
}

impl Session {
    /// Returns a message's stream, and counts the message if it isn't logged; `None` in that case.
    ///
    /// To be called once for each message. A recently used stream has its own cache line, without a table look-up:
    /// loads after a send count by the line (80 lines cost 0.03 to 0.05 of a message of 8 or 256 B).
    #[inline(always)]
    pub(crate) fn logged_stream(&mut self, key: StreamKey) -> Option<StreamEntry> {
        let entry = self.sent_stream(key)?;
        if self.is_on() {
            return Some(entry);
        }
        self.count_unlogged(entry.stream);
        None
    }

    /// Logs a message begun by `send`, and copies it at the `time` given.
    ///
    /// Its record is claimed before, so a rank with a full log sends nothing. This is the slow way: stores before a
    /// send delay it (45 ns, on an EPYC). It serves sends that may fail for lack of space, and several threads, where
    /// the log has the order of the sends.
    ///
    /// # Safety
    /// `buf` has `count` elements of `datatype`, unchanged until this returns, or until `send` is called if they are
    /// copied before.
    pub(crate) unsafe fn log(
        &mut self,
        to: Stream,
        (buf, count, datatype): Message,
        time: CopyTime,
        send: impl FnOnce() -> c_int,
    ) -> Result<c_int, FullError> {
        let known = self.datatypes.layout(datatype).copied();
        let bytes = known.and_then(|layout| layout.bytes(count));
        let (Some(layout), Some(bytes)) = (known, bytes) else {
            let code = send();
            if code == 0 {
                self.count_unlogged(to);
            }
            return Ok(code);
        };
        let tag = to.record_tag(self.logger.sent().count(to) + 1);
        let mut send = Some(send);
        let mut send = || send.take().map_or(0, |send| send());
        let mut fill = |mut claim: Claim<'_>| {
            if time == CopyTime::AfterSend {
                let code = send();
                if code != 0 {
                    return Written::NotSent(code);
                }
            }
            let (prefix, payload) = claim.parts_mut();
            prefix.copy_from_slice(&tag.encode());
            // SAFETY: the caller's promise; the payload has as many bytes as the elements.
            if let Err(code) = unsafe { copy(buf, count, datatype, &layout, payload, &mut || ()) } {
                return Written::Unpacked(code);
            }
            if time == CopyTime::BeforeSend {
                let code = send();
                if code != 0 {
                    return Written::NotSent(code);
                }
            }
            claim.commit();
            Written::Committed
        };
        let claim = |log: &mut Log, fill: &mut dyn FnMut(Claim<'_>) -> Written| {
            log.claim(Rank(to.peer), RecordTag::LEN, bytes).map(fill)
        };
        let Some(log) = self.logger.log_mut() else { return Ok(send()) };
        let written = match claim(log, &mut fill) {
            Ok(written) => written,
            Err(refused) => {
                self.wait_for_space(to.peer, bytes, *refused)?;
                match self.logger.log_mut().map(|log| claim(log, &mut fill)) {
                    Some(Ok(written)) => written,
                    // Logging has ended.
                    _ => return Ok(send()),
                }
            }
        };
        match written {
            Written::Committed => {}
            Written::NotSent(code) => return Ok(code),
            Written::Unpacked(code) => {
                // Unless it was sent before.
                let sent = send();
                // MPI refuses what it can't pack.
                if sent == 0 {
                    self.give_up_packing(code);
                }
                return Ok(sent);
            }
        }
        self.logger.sent().next(to);
        self.ledger.logged(to.peer, bytes);
        self.progress_if_due(bytes);
        Ok(0)
    }

    #[cold]
    pub(crate) fn give_up_packing(&mut self, code: c_int) {
        self.give_up(&format_args!("MPI_Pack failed with code {code} on what the program sends"));
    }

    /// Logs a message begun by `call`, if its stream is logged.
    ///
    /// # Safety
    /// `out` has as many elements as it says, and the program doesn't write them before the send has ended.
    pub(crate) unsafe fn log_outgoing(
        &mut self,
        out: &Outgoing,
        call: impl FnOnce() -> c_int,
    ) -> Result<c_int, FullError> {
        let Some(entry) = self.logged_stream(StreamKey::of(out)) else { return Ok(call()) };
        // SAFETY: the caller's promise.
        unsafe { self.log(entry.stream, (out.buf, out.count, out.datatype), CopyTime::AfterSend, call) }
    }

    /// Returns a message for a persistent request, whose datatype the program may free.
    pub(crate) fn hold_outgoing(&mut self, out: &Outgoing) -> Outgoing {
        Outgoing { datatype: self.datatypes.hold(out.datatype), ..*out }
    }

    /// Returns the stream of a new partitioned send; `None` if it isn't logged.
    #[cfg(wraps = "send_partitioned")]
    pub(crate) fn open_send_channel(&mut self, out: &Outgoing) -> Option<Stream> {
        let entry = self.sent_stream(StreamKey::of(out))?;
        Some(self.logger.open_send_channel(entry.stream))
    }

    /// Logs a partitioned message after it has left: only then all its parts are there.
    ///
    /// # Safety
    /// See [`log_outgoing`](Self::log_outgoing).
    pub(crate) unsafe fn log_partitioned(&mut self, out: &Outgoing, stream: Stream) -> Result<(), FullError> {
        if !self.is_on() {
            self.count_unlogged(stream);
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.log(stream, (out.buf, out.count, out.datatype), CopyTime::AfterSend, || 0) }.map(|_| ())
    }

    /// Logs a short message just sent, if there is space at once; returns `false` otherwise.
    ///
    /// Work after a send is free while the other rank answers; before it, it delays the message by its whole time: 1.32
    /// became 1.17 at 8 B. Inlined into the program's call, since call arguments are stores, too.
    ///
    /// # Safety
    /// See [`log`](Self::log).
    #[inline(always)]
    pub(crate) unsafe fn log_short(&mut self, to: StreamEntry, (buf, count, datatype): Message) -> bool {
        let StreamEntry { stream, id, .. } = to;
        let (Some(bytes), (Some(log), sent)) = (self.datatypes.short(count, datatype), self.logger.log_and_sent())
        else {
            return false;
        };
        let tag = stream.record_tag(sent.count_at(id) + 1);
        // SAFETY: the caller's promise; the elements have as many bytes, contiguous.
        if unsafe { write_short_record(log, stream.peer, tag, buf.cast(), bytes) } {
            sent.next_at(id);
            self.ledger.logged(stream.peer, bytes);
            self.progress_if_due(bytes);
            return true;
        }
        false
    }

    /// Logs a message just sent under this key.
    ///
    /// With a full log, waits for space or gives up.
    ///
    /// While a long message is copied, `request` (that of its send, if there is one) is tested now and then: the MPI
    /// may transfer the bytes only when it is called. Returns the code of these tests.
    ///
    /// A separate function, so that a short message's path doesn't save its registers. From 257 bytes on Open MPI's
    /// blocking send waits until the message is received, so the caller has begun it.
    ///
    /// # Safety
    /// See [`log`](Self::log); `request` is null, or the library's own.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn log_any_to(
        &mut self,
        to: StreamKey,
        buf: *const c_void,
        count: i64,
        datatype: ffi::MPI_Datatype,
        request: *mut ffi::MPI_Request,
    ) -> c_int {
        let (mut code, mut flag) = (0, 0);
        let Some(StreamEntry { stream, id, .. }) = self.sent_stream(to) else { return code };
        let Some(bytes) = self.datatypes.layout(datatype).and_then(|layout| layout.bytes(count)) else {
            self.count_unlogged(stream);
            return code;
        };
        let mut test = || {
            if code == 0 && !request.is_null() {
                // SAFETY: the caller's request, a pointer to a local variable, and a constant of the shim.
                code = unsafe { (next::Test.get())(request, &raw mut flag, ffi::RSMPI_STATUS_IGNORE) };
            }
        };
        let tag = stream.record_tag(self.logger.sent().next_at(id));
        loop {
            let (Some(log), Some(layout)) = (self.logger.log_mut(), self.datatypes.layout(datatype)) else {
                return code;
            };
            // SAFETY: the caller's promise.
            let written =
                unsafe { write_record(log, stream.peer, tag, (buf, count, datatype, layout), bytes, &mut test) };
            match written {
                Ok(()) => break,
                // Where a send may fail for lack of space, messages are logged before they are sent.
                Err(NotWritten::Refused(refused)) => {
                    if self.wait_for_space(stream.peer, bytes, *refused).is_err() {
                        return code;
                    }
                }
                Err(NotWritten::Unpacked(unpacked)) => {
                    self.give_up_packing(unpacked);
                    return code;
                }
            }
        }
        self.ledger.logged(stream.peer, bytes);
        self.progress_if_due(bytes);
        code
    }

    /// Returns a rank's elements for a collective operation; `None` if they can't be packed, or have no address.
    pub(crate) fn piece(&mut self, buf: *const c_void, count: i64, datatype: ffi::MPI_Datatype) -> Option<Piece> {
        let layout = *self.datatypes.layout(datatype)?;
        let bytes = layout.bytes(count)?;
        are_there(buf, &layout, bytes).then_some(Piece { buf, count, datatype, layout, bytes })
    }

    /// Logs a contribution, as number `number` of the stream.
    ///
    /// Logged before the operation begins, which may overwrite it, so there is no faster way. Returns its length in
    /// bytes, if it was logged, or MPI's code if it can't be packed.
    ///
    /// # Safety
    /// See [`log`](Self::log), for each piece.
    pub(super) unsafe fn log_pieces(
        &mut self,
        to: Stream,
        number: u64,
        pieces: &[Piece],
    ) -> Result<Result<Option<usize>, c_int>, FullError> {
        let bytes = pieces.iter().map(|piece| piece.bytes).sum();
        let Some(mut claim) = self.claim(to.peer, bytes)? else { return Ok(Ok(None)) };
        let (prefix, mut payload) = claim.parts_mut();
        prefix.copy_from_slice(&to.record_tag(number).encode());
        for Piece { buf, count, datatype, layout, bytes } in pieces {
            let (into, rest) = payload.split_at_mut(*bytes);
            // SAFETY: the caller's promise.
            if let Err(code) = unsafe { copy(*buf, *count, *datatype, layout, into, &mut || ()) } {
                return Ok(Err(code));
            }
            payload = rest;
        }
        claim.commit();
        self.progress_if_due(bytes);
        Ok(Ok(Some(bytes)))
    }

    /// Packs elements; `None` if they can't be packed, or have no address.
    ///
    /// # Safety
    /// See [`log`](Self::log).
    pub(crate) unsafe fn pack(
        &mut self,
        buf: *const c_void,
        count: i64,
        datatype: ffi::MPI_Datatype,
    ) -> Option<Vec<u8>> {
        let layout = self.datatypes.layout(datatype)?;
        let mut bytes = vec![0; layout.bytes(count).filter(|&bytes| are_there(buf, layout, bytes))?];
        // SAFETY: the caller's promise.
        unsafe { copy(buf, count, datatype, layout, &mut bytes, &mut || ()) }.ok()?;
        Some(bytes)
    }
}

/// Returns `false` for elements without an address, which MPI refuses: they are read before the call.
///
/// Those of a derived datatype may have their own addresses, after `MPI_BOTTOM`, which is null.
fn are_there(buf: *const c_void, layout: &Layout, bytes: usize) -> bool {
    bytes == 0 || !(is_in_place(buf) || layout.is_plain && buf.is_null())
}
