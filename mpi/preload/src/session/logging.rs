//! Messages into the log.

use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use counterfoil::{AppendError, Claim, Log, OnFull, Rank};
use counterfoil_mpi::room::Waiting;
use counterfoil_profile::RecordTag;
use mpi_sys as ffi;

use super::asking::NoRoom;
use super::datatypes::{Layout, copy};
use super::{Lane, Name, Route, Session, is_together};
use crate::say::say;

/// The log is full.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FullError {
    /// The user wants the send to fail then.
    #[error("{}", .0.0)]
    Refused(Box<Reason>),
    /// Other threads of this process may be needed to make room: only where the session [may be left](Session::may_leave).
    #[error("it is waited for room")]
    Later,
}

/// A message: where it is, how many elements it has, and of what datatype.
pub(crate) type Message = (*const c_void, i64, ffi::MPI_Datatype);

/// Elements, and how they lie in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    buf: *const c_void,
    count: i64,
    datatype: ffi::MPI_Datatype,
    layout: Layout,
    bytes: usize,
}

/// What the log said.
#[derive(Debug)]
pub(crate) struct Reason(String);

/// When a message is copied into its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    /// While it is under way.
    Behind,
    /// Before it is sent: something else takes its place in memory.
    Before,
}

/// What became of a record.
enum Written {
    Yes,
    /// The message wasn't sent: MPI's code.
    No(c_int),
    /// MPI can't pack it: its code.
    Unpacked(c_int),
}

/// Why a record isn't there.
enum NotWritten {
    Refused(Box<AppendError>),
    /// MPI can't pack it: its code.
    Unpacked(c_int),
}

/// Appends a record.
///
/// # Safety
/// As of [`copy`]; the elements have `bytes` bytes.
unsafe fn append(
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
    // SAFETY: the caller's promise; the payload has as many bytes as the elements have.
    unsafe { copy(buf, count, datatype, layout, payload, meanwhile) }.map_err(NotWritten::Unpacked)?;
    claim.commit();
    Ok(())
}

/// Appends a record where there is room for it at once. Nothing between its claim and its end can fail or panic, so that all of it is
/// put together in registers.
///
/// # Safety
/// There are so many bytes at `buf`, which nobody writes meanwhile.
#[inline(always)]
unsafe fn append_if_room(log: &mut Log, peer: u32, tag: RecordTag, buf: *const u8, bytes: usize) -> bool {
    let Some(mut claim) = log.claim_if_room(Rank(peer), RecordTag::LEN, bytes) else { return false };
    let (prefix, payload) = claim.parts_mut();
    prefix.copy_from_slice(&tag.encode());
    // SAFETY: the caller's promise; the payload has so many bytes.
    unsafe { std::ptr::copy_nonoverlapping(buf, payload.as_mut_ptr(), bytes) };
    claim.commit();
    true
}

impl Session {
    /// Logs a message that `send` begins to send: its record is claimed before, so that a rank whose log is full sends nothing, and
    /// written when `copied` says.
    ///
    /// # Safety
    /// `buf` has `count` elements of `datatype`, which stay as they are until this returns, or until `send` is called if they are copied
    /// before.
    pub(crate) unsafe fn log(
        &mut self,
        to: Lane,
        (buf, count, datatype): Message,
        copied: Copied,
        send: impl FnOnce() -> c_int,
    ) -> Result<c_int, FullError> {
        let known = self.datatypes.layout(datatype).copied();
        let bytes = known.and_then(|layout| layout.bytes(count));
        let (Some(layout), Some(bytes)) = (known, bytes) else {
            let code = send();
            if code == 0 {
                // The receiver counts it, too.
                self.pass_by(to);
            }
            return Ok(code);
        };
        let tag = RecordTag { comm: to.comm, tag: to.tag, number: self.sent.count(to.stream()) + 1 };
        let mut send = Some(send);
        let mut send = || send.take().map_or(0, |send| send());
        let mut fill = |mut claim: Claim<'_>| {
            if copied == Copied::Behind {
                let code = send();
                if code != 0 {
                    return Written::No(code);
                }
            }
            let (prefix, payload) = claim.parts_mut();
            prefix.copy_from_slice(&tag.encode());
            // SAFETY: the caller's promise; the payload has as many bytes as the elements have.
            if let Err(code) = unsafe { copy(buf, count, datatype, &layout, payload, &mut || ()) } {
                return Written::Unpacked(code);
            }
            if copied == Copied::Before {
                let code = send();
                if code != 0 {
                    return Written::No(code);
                }
            }
            claim.commit();
            Written::Yes
        };
        let claim = |log: &mut Log, fill: &mut dyn FnMut(Claim<'_>) -> Written| {
            log.claim(Rank(to.peer), RecordTag::LEN, bytes).map(fill)
        };
        let Some(log) = &mut self.log else { return Ok(send()) };
        let written = match claim(log, &mut fill) {
            Ok(written) => written,
            Err(refused) => {
                self.make_room(to.peer, bytes, *refused)?;
                match self.log.as_mut().map(|log| claim(log, &mut fill)) {
                    Some(Ok(written)) => written,
                    // Nothing is logged any more.
                    _ => return Ok(send()),
                }
            }
        };
        match written {
            Written::Yes => {}
            Written::No(code) => return Ok(code),
            Written::Unpacked(code) => {
                self.give_up(&format_args!("MPI_Pack failed with code {code} on what the program sends"));
                // If it wasn't sent before.
                return Ok(send());
            }
        }
        self.sent.next(to.stream());
        self.ledger.logged(to.peer, bytes);
        self.look_now_and_then(bytes);
        Ok(0)
    }

    /// Logs a message that was just sent, if it is short, and there is room at once: whether that was so.
    ///
    /// # Safety
    /// As of [`log`](Self::log).
    #[inline(always)]
    pub(crate) unsafe fn log_short(&mut self, to: Route, (buf, count, datatype): Message) -> bool {
        let Route { lane, counted, .. } = to;
        let (Some(bytes), Some(log)) = (self.datatypes.short(count, datatype), &mut self.log) else { return false };
        let tag = RecordTag { comm: lane.comm, tag: lane.tag, number: self.sent.count_at(counted) + 1 };
        // SAFETY: the caller's promise; the elements have so many bytes, as they lie.
        if unsafe { append_if_room(log, lane.peer, tag, buf.cast(), bytes) } {
            self.sent.next_at(counted);
            self.ledger.logged(lane.peer, bytes);
            self.look_now_and_then(bytes);
            return true;
        }
        false
    }

    /// Logs a message that was just sent, and calls `meanwhile` now and then if it is long. Where the log is full, it waits for room,
    /// or gives up.
    ///
    /// # Safety
    /// As of [`log`](Self::log).
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn log_any(&mut self, to: Route, message: Message, meanwhile: &mut dyn FnMut()) {
        let (buf, count, datatype) = message;
        let Route { lane, counted, .. } = to;
        let Some(bytes) = self.datatypes.layout(datatype).and_then(|layout| layout.bytes(count)) else {
            // The receiver counts it, too.
            self.pass_by(lane);
            return;
        };
        let tag = RecordTag { comm: lane.comm, tag: lane.tag, number: self.sent.next_at(counted) };
        loop {
            let (Some(log), Some(layout)) = (&mut self.log, self.datatypes.layout(datatype)) else { return };
            // SAFETY: the caller's promise.
            let written = unsafe { append(log, lane.peer, tag, (buf, count, datatype, layout), bytes, meanwhile) };
            match written {
                Ok(()) => break,
                // Under the choice that lets a send fail, messages are not sent first.
                Err(NotWritten::Refused(refused)) => {
                    if self.make_room(lane.peer, bytes, *refused).is_err() {
                        return;
                    }
                }
                Err(NotWritten::Unpacked(code)) => {
                    self.give_up(&format_args!("MPI_Pack failed with code {code} on what the program sends"));
                    return;
                }
            }
        }
        self.ledger.logged(lane.peer, bytes);
        self.look_now_and_then(bytes);
    }

    /// [`log_any`](Self::log_any), of a message that goes by this name. So few arguments are handed over in registers.
    ///
    /// # Safety
    /// As of [`log`](Self::log).
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn log_any_to(&mut self, to: Name, buf: *const c_void, count: i64, datatype: ffi::MPI_Datatype) {
        if let Some(route) = self.route_to(to) {
            // SAFETY: the caller's promise.
            unsafe { self.log_any(route, (buf, count, datatype), &mut || ()) };
        }
    }

    /// Elements that a rank gives to a collective operation; `None` where they can't be packed.
    pub(crate) fn piece(&mut self, buf: *const c_void, count: i64, datatype: ffi::MPI_Datatype) -> Option<Piece> {
        let layout = *self.datatypes.layout(datatype)?;
        let bytes = layout.bytes(count)?;
        Some(Piece { buf, count, datatype, layout, bytes })
    }

    /// Logs what a rank gives to a collective operation, as number `number` of the stream: before the operation begins, which may
    /// overwrite it. Says how many bytes it was, if it was logged.
    ///
    /// # Safety
    /// As of [`log`](Self::log), for each piece.
    pub(crate) unsafe fn log_pieces(
        &mut self,
        to: Lane,
        number: u64,
        pieces: &[Piece],
    ) -> Result<Option<usize>, FullError> {
        let bytes = pieces.iter().map(|piece| piece.bytes).sum();
        let Some(mut claim) = self.claim(to.peer, bytes)? else { return Ok(None) };
        let (prefix, mut payload) = claim.parts_mut();
        prefix.copy_from_slice(&RecordTag { comm: to.comm, tag: to.tag, number }.encode());
        for Piece { buf, count, datatype, layout, bytes } in pieces {
            let (into, rest) = payload.split_at_mut(*bytes);
            // SAFETY: the caller's promise.
            if let Err(code) = unsafe { copy(*buf, *count, *datatype, layout, into, &mut || ()) } {
                drop(claim);
                self.give_up(&format_args!("MPI_Pack failed with code {code} on what the program gives"));
                return Ok(None);
            }
            payload = rest;
        }
        claim.commit();
        self.look_now_and_then(bytes);
        Ok(Some(bytes))
    }

    /// Claims a record, waiting for room as the user wants it; `None` if nothing is logged any more.
    fn claim(&mut self, peer: u32, bytes: usize) -> Result<Option<Claim<'_>>, FullError> {
        if let Some(log) = &mut self.log
            && let Err(refused) = log.claim(Rank(peer), RecordTag::LEN, bytes).map(std::mem::forget)
        {
            self.make_room(peer, bytes, *refused)?;
        }
        match &mut self.log {
            Some(log) => Ok(log.claim(Rank(peer), RecordTag::LEN, bytes).ok()),
            None => Ok(None),
        }
    }

    /// Packs elements; `None` where they can't be.
    ///
    /// # Safety
    /// As of [`log`](Self::log).
    pub(crate) unsafe fn pack(
        &mut self,
        buf: *const c_void,
        count: i64,
        datatype: ffi::MPI_Datatype,
    ) -> Option<Vec<u8>> {
        let layout = self.datatypes.layout(datatype)?;
        let mut bytes = vec![0; layout.bytes(count)?];
        // SAFETY: the caller's promise.
        unsafe { copy(buf, count, datatype, layout, &mut bytes, &mut || ()) }.ok()?;
        Some(bytes)
    }

    /// Waits until a message of so many bytes can be claimed, as the user wants it; or gives up.
    #[cold]
    fn make_room(&mut self, peer: u32, bytes: usize, mut refused: AppendError) -> Result<(), FullError> {
        let mut waiting = self.waiting.unwrap_or_else(|| {
            // What others wait to be told of may be put off.
            self.catch_up();
            self.rounds.begin();
            Waiting::begin(Instant::now())
        });
        let made = loop {
            self.waiting = Some(waiting);
            match self.look_for_room(peer, bytes, &refused, &mut waiting) {
                Ok(Some(still)) if self.log.is_some() => refused = still,
                done => break done.map(|_| ()),
            }
            self.ledger.wait_on(waiting.waited(Instant::now()));
            if self.may_leave {
                self.waiting = Some(waiting);
                return Err(FullError::Later);
            }
            std::thread::yield_now();
        };
        self.waiting = None;
        self.ledger.waited += waiting.waited(Instant::now());
        self.ledger.wait_on(Duration::ZERO);
        made
    }

    /// Asks for room, and looks for it: why there is none, if so.
    fn look_for_room(
        &mut self,
        peer: u32,
        bytes: usize,
        refused: &AppendError,
        waiting: &mut Waiting,
    ) -> Result<Option<AppendError>, FullError> {
        if !self.releasing.is_empty() {
            self.release_what_is_known();
            if self.has_room(peer, bytes).is_ok() {
                return Ok(None);
            }
        }
        // What is longer than the log finds no room either, but there no wait would help.
        let is_full =
            matches!(refused, AppendError::Full(_) | AppendError::DiskRefused(_) | AppendError::TooLong { .. });
        match refused {
            _ if is_full && self.settings.on_full == OnFull::Fail => {
                return Err(FullError::Refused(Box::new(Reason(refused.to_string()))));
            }
            _ if is_full && self.settings.on_full == OnFull::StopLogging => {
                self.stop_logging(refused);
                return Ok(None);
            }
            // What is acknowledged isn't let go either, and there is nowhere else to put it.
            AppendError::Full(_) if self.settings.keeps_all_in_memory() => {
                self.give_up(&format_args!("{refused}, everything is kept, and without a disk no wait makes room"));
                return Ok(None);
            }
            AppendError::Full(_) | AppendError::DiskRefused(_) => self.ask(),
            AppendError::SpillBehind(_) => {}
            _ => {
                self.give_up(refused);
                return Ok(None);
            }
        }
        self.look();
        self.acknowledge(self.rank);
        self.release_what_is_known();
        self.release_what_nobody_takes();
        let Err(refused) = self.has_room(peer, bytes) else { return Ok(None) };
        self.wait_no_more(&refused, waiting);
        Ok(Some(*refused))
    }

    /// Whether a message can be claimed, or nothing is logged any more; else why not.
    fn has_room(&mut self, peer: u32, bytes: usize) -> Result<(), Box<AppendError>> {
        let Some(log) = &mut self.log else { return Ok(()) };
        // What is claimed leaves no trace: it is made again when the message leaves. One that is dropped would leave a pad.
        log.try_claim(Rank(peer), RecordTag::LEN, bytes).map(std::mem::forget)
    }

    /// Gives up where no wait makes room. Says that the rank waits, when it has for long.
    fn wait_no_more(&mut self, refused: &AppendError, waiting: &mut Waiting) {
        let is_long = waiting.is_long(Instant::now());
        if is_long && !self.ledger.has_said_that_it_waits {
            self.ledger.has_said_that_it_waits = true;
            let advice = match refused {
                AppendError::DiskRefused(_) => "It goes on as soon as there is",
                _ => "COUNTERFOIL_BUDGET gives it more",
            };
            say(format_args!("waits for room in its log: {refused}. {advice}"));
        }
        if !matches!(refused, AppendError::Full(_)) {
            return;
        }
        // Another thread may receive what this rank sent to itself.
        if waiting.is_alone(is_together() || self.is_anybody_behind()) {
            self.give_up(&NoRoom::Alone { refused: refused.to_string() });
        } else if is_long && let Some(after) = self.stands_still() {
            self.give_up(&NoRoom::Standstill { refused: refused.to_string(), after });
        }
    }
}
