//! Receives: their known properties, and their messages' numbers.

use std::ffi::c_int;
use std::time::Instant;

use counterfoil_mpi_logger::{Arrival, Determinant, Stream};
use mpi_sys as ffi;

use super::requests::{Pending, Receiving};
use super::{Session, StreamKey, key};
use crate::awaited::{can_look_at, look_no_more};
use crate::deferred::{self, Event};
use crate::status::{arrival, blank, is_cancelled};
use counterfoil_mpi_core::arguments::Incoming;

/// Time between two [searches](Session::count_early) for completed receives, in durations of the first.
const EARLY_PAUSE: u32 = 4;

/// A receive whose request the program freed while it was pending.
#[derive(Debug)]
pub(super) struct FreedReceive {
    request: ffi::MPI_Request,
    receiving: Receiving,
    is_persistent: bool,
}

impl Session {
    /// Describes a receive; `None` for one that takes no logged message.
    pub(crate) fn receiving(&mut self, incoming: &Incoming) -> Option<Receiving> {
        // SAFETY: constants of the shim.
        let (any_source, any_tag, no_rank) =
            unsafe { (ffi::RSMPI_ANY_SOURCE, ffi::RSMPI_ANY_TAG, ffi::RSMPI_PROC_NULL) };
        if incoming.source == no_rank {
            return None;
        }
        let comm = self.comm_id(incoming.comm)?;
        let source = Some(incoming.source).filter(|source| *source != any_source);
        let tag = Some(incoming.tag).filter(|tag| *tag != any_tag);
        Some(Receiving { comm, source, tag, posted: None, is_wildcard: incoming.is_wildcard() })
    }

    /// Posts a receive: messages that it may take have no number before it has ended.
    pub(crate) fn post(&mut self, receiving: Receiving) -> Receiving {
        let Receiving { comm, source, tag, .. } = receiving;
        let posted = self.logger.comms.post(comm, source, tag);
        Receiving { posted, ..receiving }
    }

    /// Posts a receive with a request.
    pub(crate) fn post_request(&mut self, receiving: Receiving, request: ffi::MPI_Request) {
        let receiving = self.post(receiving);
        self.requests.add(request, Pending::Receive(receiving));
    }

    /// Ends a posted receive: with this status, or `None` if it took no message.
    pub(crate) fn end_receive(&mut self, receiving: Receiving, status: Option<&ffi::MPI_Status>) {
        self.end_with(receiving, status.map(arrival));
    }

    /// Ends a posted receive with this status, possibly a cancelled one.
    pub(crate) fn end_with_status(&mut self, receiving: Receiving, status: &ffi::MPI_Status) {
        self.end_receive(receiving, Some(status).filter(|status| !is_cancelled(status)));
    }

    fn end_with(&mut self, receiving: Receiving, arrival: Option<Arrival>) {
        if let Some(outcome) = self.count_end(receiving, arrival) {
            self.record(outcome);
        }
        self.progress_if_due(arrival.map_or(0, |arrival| arrival.bytes));
    }

    /// Counts a posted receive's message, unless it is counted.
    ///
    /// Returns a wildcard's outcome, to be recorded.
    fn count_end(&mut self, receiving: Receiving, arrival: Option<Arrival>) -> Option<Determinant> {
        let posted = receiving.posted?;
        let comm = self.logger.comms.get(receiving.comm)?;
        let peer = arrival.and_then(|arrival| comm.world_rank(arrival.source));
        let ended = self.logger.handle_receive_ended(receiving.comm, posted, arrival);
        self.check(ended);
        self.flush();
        let (source, Arrival { tag, bytes, .. }) = (peer?, arrival?);
        self.ledger.received(source, bytes);
        self.ledger.clear_latest();
        receiving.is_wildcard.then_some(Determinant::Receive { source, tag })
    }

    /// Counts the messages of receives completed by MPI, but not by the program.
    ///
    /// The program may be in one wait for all of them, with their senders out of space until some are acknowledged.
    pub(crate) fn count_early(&mut self) {
        let now = Instant::now();
        if now < self.count_early_at {
            return;
        }
        let mut ended = Vec::new();
        for (request, receiving) in self.requests.uncounted_receives() {
            if !can_look_at(request) {
                continue;
            }
            let (mut flag, mut status) = (0, blank());
            // SAFETY: a request known to MPI, on which no call sleeps, and pointers to local variables.
            let code = unsafe { ffi::PMPI_Request_get_status(request, &raw mut flag, &raw mut status) };
            // One ended by a revocation without a message has no tag.
            if code == 0 && flag != 0 && (status.MPI_TAG >= 0 || is_cancelled(&status)) {
                ended.push((request, receiving, status));
            }
        }
        // A process failure may have ended any after a part of its message: the status does not tell, the code of the
        // program's call will.
        if !ended.is_empty() && self.has_failures() {
            look_no_more();
            ended.clear();
        }
        for (request, receiving, status) in ended {
            let arrival = Some(arrival(&status)).filter(|_| !is_cancelled(&status));
            let outcome = self.count_end(receiving, arrival);
            self.requests.set_counted(request, outcome);
        }
        // However many are pending, most of the time is left to MPI.
        self.count_early_at = Instant::now() + EARLY_PAUSE * now.elapsed();
    }

    /// Returns `true` if MPI knows of a process failure by now.
    fn has_failures(&mut self) -> bool {
        let found = self.control.look_for_failures();
        self.check(found);
        self.control.failures.any_failed()
    }

    /// Handles a returned receive, after which nothing was posted.
    pub(crate) fn handle_received(&mut self, comm: ffi::MPI_Comm, is_wildcard: bool, arrival: Arrival) {
        if self.count_arrival(comm, is_wildcard, arrival) {
            self.ledger.clear_latest();
            self.progress_if_due(arrival.bytes);
        }
    }

    /// Returns the stream of a new partitioned receive; `None` for one that takes no logged message.
    #[cfg(wraps = "receive_partitioned")]
    pub(crate) fn open_receive_channel(&mut self, incoming: &Incoming) -> Option<Stream> {
        let entry = self.received_stream(StreamKey::new(incoming.comm, incoming.source, incoming.tag))?;
        Some(self.logger.open_receive_channel(entry.stream))
    }

    /// Counts a received partitioned message.
    pub(crate) fn handle_partitioned(&mut self, stream: Stream, status: &ffi::MPI_Status) {
        let (id, bytes) = (self.logger.received_id(stream), arrival(status).bytes);
        self.count_received(stream.peer, id, bytes);
        self.ledger.clear_latest();
        self.progress_if_due(bytes);
    }

    /// Counts the message of a returned receive.
    ///
    /// Returns `false` if other receives were pending, and everything else is done.
    #[inline(always)]
    pub(crate) fn count_arrival(&mut self, comm: ffi::MPI_Comm, is_wildcard: bool, arrival: Arrival) -> bool {
        let Arrival { source, tag, bytes } = arrival;
        let Some(entry) = self.received_stream(StreamKey::new(comm, source, tag)) else { return false };
        if self.logger.comms.is_idle(entry.comm) {
            if is_wildcard {
                self.record(Determinant::Receive { source: entry.stream.peer, tag });
            }
            self.count_received(entry.stream.peer, entry.id, bytes);
            return true;
        }
        self.count_after_others(comm, is_wildcard, source, tag, bytes);
        false
    }

    /// Like [`count_arrival`](Self::count_arrival), while other receives are pending.
    ///
    /// One of them may have taken an earlier message of the stream.
    #[cold]
    fn count_after_others(&mut self, comm: ffi::MPI_Comm, is_wildcard: bool, source: c_int, tag: c_int, bytes: usize) {
        let Some(comm) = self.comm_id(comm) else { return };
        let receiving = Receiving { comm, source: Some(source), tag: Some(tag), posted: None, is_wildcard };
        let receiving = self.post(receiving);
        self.end_with(receiving, Some(Arrival { source, tag, bytes }));
    }

    /// Handles a posted receive, which may have ended since.
    #[inline]
    fn handle_posted(&mut self, incoming: &Incoming, request: ffi::MPI_Request) {
        let Some(receiving) = self.receiving(incoming) else { return };
        let is_next = !receiving.is_wildcard && self.logger.comms.is_idle(receiving.comm);
        match if is_next { deferred::take_end(request) } else { None } {
            Some(arrival) => self.handle_received(incoming.comm, false, arrival),
            None => self.post_request(receiving, request),
        }
    }

    /// Handles the deferred events during or after a send not yet counted.
    #[inline(never)]
    pub(crate) fn catch_up_during_send(&mut self) {
        self.has_uncounted = true;
        self.catch_up();
        self.has_uncounted = false;
    }

    /// Handles the deferred events.
    #[inline(never)]
    pub(crate) fn catch_up(&mut self) {
        while let Some(event) = deferred::take() {
            match event {
                Event::Received { comm, is_wildcard, arrival } => self.handle_received(comm, is_wildcard, arrival),
                Event::Posted { comm, source, tag, request } => {
                    self.handle_posted(&Incoming::envelope(source, tag, comm), request);
                }
                Event::Ended { request, arrival } => {
                    if let Some(Pending::Receive(receiving)) = self.requests.end(request) {
                        self.end_with(receiving, Some(arrival));
                    }
                }
            }
        }
    }

    /// Keeps a pending receive whose request the program frees: its message counts.
    pub(crate) fn keep_freed(&mut self, request: ffi::MPI_Request, receiving: Receiving, is_persistent: bool) {
        self.freed_receives.push(FreedReceive { request, receiving, is_persistent });
    }

    /// Ends completed receives whose requests the program freed.
    pub(crate) fn poll_freed_receives(&mut self) {
        let mut at = 0;
        while let Some(freed) = self.freed_receives.get_mut(at) {
            let (mut flag, mut status) = (0, blank());
            // SAFETY: a request left to the library by the program, and pointers to local variables.
            let code = unsafe { ffi::PMPI_Test(&raw mut freed.request, &raw mut flag, &raw mut status) };
            if code == 0 && flag == 0 {
                at += 1;
                continue;
            }
            let FreedReceive { mut request, receiving, is_persistent } = self.freed_receives.swap_remove(at);
            if is_persistent && !super::requests::is_null(request) {
                // SAFETY: as above; it has ended.
                unsafe { ffi::PMPI_Request_free(&raw mut request) };
            }
            if code == 0 {
                self.end_with_status(receiving, &status);
            } else {
                self.end_receive(receiving, None);
            }
        }
    }

    /// Records the message found by a probe.
    pub(crate) fn record_probe(&mut self, incoming: &Incoming, status: &ffi::MPI_Status) {
        if !incoming.is_wildcard() {
            return;
        }
        let Some(comm) = self.comm(incoming.comm) else { return };
        if let Some(source) = comm.world_rank(status.MPI_SOURCE) {
            self.record(Determinant::Probe { source, tag: status.MPI_TAG });
        }
    }

    /// Handles a matched message, numbered in order with the posted receives.
    pub(crate) fn handle_matched(&mut self, incoming: &Incoming, message: ffi::MPI_Message, status: &ffi::MPI_Status) {
        self.record_probe(incoming, status);
        if let Some(receiving) = self.receiving(incoming) {
            let (source, tag) = (Some(status.MPI_SOURCE), Some(status.MPI_TAG));
            // Its source was recorded with the probe.
            let receiving = self.post(Receiving { source, tag, is_wildcard: false, ..receiving });
            self.messages.insert(key(message), receiving);
        }
    }
}
