//! What is known while MPI is up: the log, and what it takes to fill and to free it.

mod choices;
pub(crate) mod comms;
pub(crate) mod control;
pub(crate) mod datatypes;
mod ledger;
mod live;
pub(crate) mod requests;
mod slot;
mod summary;

use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use counterfoil::{AppendError, Claim, Contents, Epoch, Log, OnFull, Rank};
use counterfoil_mpi::acks::{BatchLimits, Batcher, RecordTag, Releaser};
use counterfoil_mpi::stream::{Stream, Streams};
use mpi_sys as ffi;
use rustc_hash::FxHashMap;

use crate::say::say;
use crate::settings::Settings;
use comms::{Comms, Refused};
use control::{Came, Control};
use datatypes::{Datatypes, Layout, copy};
use live::Live;
use requests::{Receiving, Requests};

pub(crate) use choices::Choice;
pub(crate) use ledger::Ledger;
pub(crate) use slot::{enter, is_together, put, take};

/// How many messages are logged and received between two looks at the acknowledgements.
const LOOK_EVERY: u32 = 32;
/// What the checkpoint at the end begins: nothing comes behind it.
const LAST_EPOCH: Epoch = Epoch(2);
/// How long a rank waits for room in its log before it says so.
const PATIENCE: Duration = Duration::from_secs(2);

/// A number for a handle, whatever a handle is in this MPI.
#[inline]
pub(crate) fn key<T: Copy>(handle: T) -> usize {
    const { assert!(size_of::<T>() <= size_of::<usize>()) }
    let mut bytes = [0u8; size_of::<usize>()];
    // SAFETY: as many bytes as a handle has, which are no more than there is room for; handles are pointers or numbers, without
    // gaps.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const handle).cast::<u8>(), bytes.as_mut_ptr(), size_of::<T>());
    }
    usize::from_ne_bytes(bytes)
}

/// Everything that is known while MPI is up.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) settings: Settings,
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    /// `None` once logging was given up.
    log: Option<Log>,
    /// Messages of each stream that were sent.
    sent: Streams,
    batcher: Batcher,
    releasers: Vec<Option<Releaser>>,
    control: Control,
    pub(crate) comms: Comms,
    pub(crate) requests: Requests,
    pub(crate) datatypes: Datatypes,
    /// The communicators of messages that were matched and not received yet.
    pub(crate) messages: FxHashMap<usize, ffi::MPI_Comm>,
    /// Receives that the program gave up while they were under way.
    pub(crate) given_up: Vec<(ffi::MPI_Request, Receiving, bool)>,
    /// Synchronisations of the library's own that are under way: request, communicator's number, how far everybody has come then.
    pub(crate) barriers: Vec<(ffi::MPI_Request, u32, u64)>,
    /// How often the answer was no since the last outcome.
    misses: u32,
    is_local_full: bool,
    pub(crate) ledger: Ledger,
    /// Whether the program wants to be logged just now (`MPI_Pcontrol`).
    pub(crate) is_logging: bool,
    since_look: u32,
    live: Live,
    begun: Instant,
}

/// Why a session can't begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BeginError {
    #[error(transparent)]
    Mpi(#[from] Refused),
    #[error("the log can't be made: {0}")]
    Log(#[from] counterfoil::OpenError),
    #[error("{failed} other ranks can't make their logs")]
    Others { failed: u32 },
}

impl Session {
    /// MPI is up; all ranks of MPI_COMM_WORLD do this together.
    pub(crate) fn begin(settings: Settings, rank: u32, ranks: u32) -> Result<Session, BeginError> {
        let control = Control::new(ranks)?;
        let made = Log::create(settings.options(rank, ranks));
        // All or none: who has no log counts nothing and acknowledges nothing.
        let failed = control.how_many(made.is_err())?;
        let log = match made {
            Ok(_) if failed > 0 => {
                control.end()?;
                return Err(BeginError::Others { failed });
            }
            Err(error) => {
                control.end()?;
                return Err(error.into());
            }
            Ok(log) => log,
        };
        let comms = Comms::new()?;
        let ledger = Ledger::new(ranks);
        let mut live = Live::begin(settings.summary_dir.as_deref(), rank);
        live.write(&ledger, Some(&log));
        Ok(Session {
            settings,
            rank,
            ranks,
            log: Some(log),
            sent: Streams::default(),
            batcher: Batcher::new(ranks, BatchLimits::default()),
            releasers: (0..ranks).map(|_| None).collect(),
            control,
            comms,
            requests: Requests::default(),
            datatypes: Datatypes::default(),
            messages: FxHashMap::default(),
            given_up: Vec::new(),
            barriers: Vec::new(),
            misses: 0,
            is_local_full: false,
            ledger,
            is_logging: true,
            since_look: 0,
            live,
            begun: Instant::now(),
        })
    }

    /// Whether messages are logged.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_logging && self.log.is_some()
    }

    /// A message of a stream is sent, and not logged.
    pub(crate) fn pass_by(&mut self, lane: Lane) {
        self.sent.next(lane.stream());
    }

    /// Logging ends: what was said is the last that is said of it.
    pub(crate) fn give_up(&mut self, why: &dyn std::fmt::Display) {
        if self.log.take().is_some() {
            self.ledger.gave_up = Some(why.to_string());
            say(format_args!("{why}; the program goes on, and nothing more is logged"));
        }
    }

    /// Logs a message that `send` begins to send: it is claimed before and committed behind, so that a rank whose log is full sends
    /// nothing, and nothing is copied while the receiver could have had the message.
    ///
    /// # Safety
    /// `buf` has `count` elements of `datatype`, which stay as they are until this returns.
    pub(crate) unsafe fn log(
        &mut self,
        to: Lane,
        (buf, count, datatype): (*const c_void, i64, ffi::MPI_Datatype),
        send: impl FnOnce() -> c_int,
    ) -> Result<c_int, FullError> {
        let Some(layout) = self.datatypes.layout(datatype) else { return Ok(send()) };
        let Some(bytes) = usize::try_from(count).ok().and_then(|count| count.checked_mul(layout.size)) else {
            return Ok(send());
        };
        let tag = RecordTag { comm: to.comm, tag: to.tag, number: self.sent.count(to.stream()) + 1 };
        let mut send = Some(send);
        let mut send = || send.take().map_or(0, |send| send());
        let mut fill = |mut claim: Claim<'_>| {
            let code = send();
            if code != 0 {
                return Written::No(code);
            }
            let (prefix, payload) = claim.parts_mut();
            prefix.copy_from_slice(&tag.encode());
            // SAFETY: the caller's promise; the payload has as many bytes as the elements have.
            match unsafe { copy(buf, count, datatype, layout, payload) } {
                Ok(()) => {
                    claim.commit();
                    Written::Yes
                }
                Err(code) => Written::Unpacked(code),
            }
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
                return Ok(0);
            }
        }
        self.sent.next(to.stream());
        self.ledger.logged(to.peer, bytes);
        self.look_now_and_then();
        Ok(0)
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
        pieces: &[(*const c_void, i64, ffi::MPI_Datatype)],
    ) -> Result<Option<usize>, FullError> {
        let mut layouts = Vec::with_capacity(pieces.len());
        for (_, count, datatype) in pieces {
            let Some(layout) = self.datatypes.layout(*datatype) else { return Ok(None) };
            let Ok(count) = usize::try_from(*count) else { return Ok(None) };
            layouts.push((layout, count * layout.size));
        }
        let bytes = layouts.iter().map(|(_, bytes)| bytes).sum();
        let Some(mut claim) = self.claim(to.peer, bytes)? else { return Ok(None) };
        let (prefix, mut payload) = claim.parts_mut();
        prefix.copy_from_slice(&RecordTag { comm: to.comm, tag: to.tag, number }.encode());
        for ((buf, count, datatype), (layout, bytes)) in pieces.iter().zip(layouts) {
            let (into, rest) = payload.split_at_mut(bytes);
            // SAFETY: the caller's promise.
            if let Err(code) = unsafe { copy(*buf, *count, *datatype, layout, into) } {
                drop(claim);
                self.give_up(&format_args!("MPI_Pack failed with code {code} on what the program gives"));
                return Ok(None);
            }
            payload = rest;
        }
        claim.commit();
        self.look_now_and_then();
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

    /// A stream has been received up to a number, as this rank knows by itself.
    pub(crate) fn release(&mut self, of: Lane, number: u64) {
        self.take_batch(of.peer, &RecordTag { comm: of.comm, tag: of.tag, number }.encode());
    }

    /// Writes the account as it is now, at the end that comes.
    pub(crate) fn account(&mut self, ended: Ended) {
        if let Some(log) = &self.log {
            self.ledger.note(&log.stats());
        }
        summary::write(self, ended);
    }

    /// What is in the log is there afterwards, if the user wants that.
    fn keep(&mut self) {
        if self.settings.log_dir.is_none() {
            return;
        }
        let Some(log) = &mut self.log else { return };
        if let Err(error) = log.checkpoint(LAST_EPOCH, Contents::default()) {
            say(format_args!("its log can't be kept: {error}"));
        }
    }

    /// Logs bytes that were packed before.
    pub(crate) fn log_bytes(&mut self, to: Lane, bytes: &[u8]) -> Result<(), FullError> {
        // SAFETY: a slice is as many bytes, and nobody writes them.
        let code = unsafe {
            let byte = ffi::RSMPI_UINT8_T;
            self.log(to, (bytes.as_ptr().cast(), bytes.len() as i64, byte), || 0)
        };
        code.map(|_| ())
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
        let layout: Layout = self.datatypes.layout(datatype)?;
        let mut bytes = vec![0; usize::try_from(count).ok()?.checked_mul(layout.size)?];
        // SAFETY: the caller's promise.
        unsafe { copy(buf, count, datatype, layout, &mut bytes) }.ok()?;
        Some(bytes)
    }

    /// Waits until a message of so many bytes can be claimed, as the user wants it; or gives up.
    #[cold]
    fn make_room(&mut self, peer: u32, bytes: usize, refused: AppendError) -> Result<(), FullError> {
        let since = Instant::now();
        let mut refused = refused;
        let mut has_asked = false;
        loop {
            match refused {
                AppendError::Full(_) | AppendError::DiskRefused(_) if self.settings.on_full == OnFull::Fail => {
                    return Err(FullError(refused.to_string()));
                }
                AppendError::Full(_) | AppendError::DiskRefused(_) if !has_asked => {
                    has_asked = true;
                    self.ask_for_acknowledgements();
                }
                AppendError::Full(_) | AppendError::DiskRefused(_) | AppendError::SpillBehind(_) => {}
                _ => {
                    self.give_up(&refused);
                    return Ok(());
                }
            }
            self.look();
            let Some(log) = &mut self.log else { return Ok(()) };
            refused = match log.try_claim(Rank(peer), RecordTag::LEN, bytes) {
                Ok(claim) => {
                    // Leaves no trace: it is made again when the message leaves.
                    std::mem::forget(claim);
                    break;
                }
                Err(refused) => *refused,
            };
            if since.elapsed() > PATIENCE && !self.ledger.has_said_that_it_waits {
                self.ledger.has_said_that_it_waits = true;
                say(format_args!("waits for room in its log: {refused}. COUNTERFOIL_BUDGET gives it more"));
            }
            std::thread::yield_now();
        }
        self.ledger.waited += since.elapsed();
        Ok(())
    }

    fn ask_for_acknowledgements(&mut self) {
        for peer in 0..self.ranks {
            if peer != self.rank && self.ledger.has_logged(peer) {
                let asked = self.control.ask(peer);
                self.check(asked);
            }
        }
    }

    /// A message was received.
    #[inline]
    pub(crate) fn received(&mut self, from: Lane, bytes: usize) {
        self.ledger.received(from.peer, bytes);
        if self.batcher.note(from.stream(), bytes) {
            self.acknowledge(from.peer);
        }
        self.look_now_and_then();
    }

    /// Sends what there is to be acknowledged to one rank.
    fn acknowledge(&mut self, peer: u32) {
        let batch = self.batcher.take(peer);
        if batch.is_empty() {
            return;
        }
        if peer == self.rank {
            self.take_batch(peer, &batch);
        } else {
            let sent = self.control.send_batch(peer, batch);
            self.check(sent);
        }
    }

    fn take_batch(&mut self, peer: u32, batch: &[u8]) {
        let Some(log) = &mut self.log else { return };
        let Some(place) = self.releasers.get_mut(peer as usize) else { return };
        let releaser = place.get_or_insert_with(|| Releaser::new(peer));
        if let Err(error) = releaser.take(log, batch) {
            self.give_up(&error);
        }
    }

    #[inline]
    fn look_now_and_then(&mut self) {
        self.since_look += 1;
        if self.since_look >= LOOK_EVERY {
            self.look();
        }
    }

    /// Takes the acknowledgements that have come.
    pub(crate) fn look(&mut self) {
        self.since_look = 0;
        loop {
            let came = match self.control.poll() {
                Ok(Some(came)) => came,
                Ok(None) => break,
                Err(error) => {
                    self.give_up(&error);
                    return;
                }
            };
            match came {
                Came::Batch(from, len) => {
                    let batch = self.control.bytes(len);
                    self.take_batch(from, &batch);
                }
                Came::Ask(from) => self.acknowledge(from),
            }
            let again = self.control.go_on();
            self.check(again);
        }
        if !self.given_up.is_empty() {
            self.sweep_given_up();
        }
        if !self.barriers.is_empty() {
            self.sweep_barriers();
        }
        if let Some(log) = &self.log {
            self.ledger.note(&log.stats());
        }
        self.live.tell(&self.ledger, self.log.as_ref());
    }

    fn check(&mut self, done: Result<(), Refused>) {
        if let Err(error) = done {
            self.give_up(&error);
        }
    }

    /// MPI is about to end: the last acknowledgements, and the account.
    pub(crate) fn end(mut self) {
        self.finish_barriers(None);
        self.sweep_given_up();
        for peer in 0..self.ranks {
            self.acknowledge(peer);
        }
        if let Err(error) = self.settle() {
            say(format_args!("the last acknowledgements didn't arrive: {error}"));
        }
        self.keep();
        self.account(Ended::Finalized);
        if let Err(error) = self.control.end() {
            say(format_args!("{error}"));
        }
    }

    fn settle(&mut self) -> Result<(), Refused> {
        let mut outstanding = self.control.outstanding()?;
        while outstanding > 0 {
            let Some(came) = self.control.poll()? else {
                std::thread::yield_now();
                continue;
            };
            outstanding -= 1;
            if let Came::Batch(from, len) = came {
                let batch = self.control.bytes(len);
                self.take_batch(from, &batch);
            }
            self.control.go_on()?;
        }
        Ok(())
    }

    pub(crate) fn wall(&self) -> Duration {
        self.begun.elapsed()
    }
}

/// How a program's use of MPI ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Finalized,
    Aborted,
}

/// What became of a record.
enum Written {
    Yes,
    /// The message wasn't sent: MPI's code.
    No(c_int),
    /// MPI can't pack it: its code.
    Unpacked(c_int),
}

/// The log is full, and the user wants the send to fail then.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct FullError(String);

/// A stream in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    /// The other end's rank in MPI_COMM_WORLD.
    pub(crate) peer: u32,
    /// The communicator's number.
    pub(crate) comm: u32,
    /// The tag.
    pub(crate) tag: c_int,
}

impl Lane {
    #[inline]
    fn stream(self) -> Stream {
        Stream { peer: self.peer, comm: self.comm, tag: self.tag }
    }
}
