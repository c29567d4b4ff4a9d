//! A rank's logger driver: joins it with MPI and with a program's calls.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use counterfoil::{Contents, Epoch, Keep, Log, Options, Rank};
use counterfoil_mpi_core::comm::Comm;
use counterfoil_mpi_core::control::Control;
use counterfoil_mpi_core::control::progress_hook::ProgressHook;
use counterfoil_mpi_core::envelope::Envelope;
use counterfoil_mpi_core::operation::SystemOperation;
use counterfoil_mpi_core::universe::Universe;
use counterfoil_mpi_logger::{
    Arrival, CommId, Determinant, Driver, Logger, LoggerOptions, Members, PROGRESS_EVERY, PostedReceive, SpacePoll,
    SpaceRefusal, Stream, progress_weight,
};
use counterfoil_profile::RecordTag;

use super::error::LoggedError;

/// Dropped communicators not yet freed in the logger.
pub(super) type Dropped = Rc<RefCell<Vec<CommId>>>;

/// Operation counts of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Messages sent, all of them logged.
    pub messages_logged: u64,
    /// Bytes in these messages.
    pub bytes_logged: u64,
    /// Messages received.
    pub messages_received: u64,
    /// Number of collective operations with a contribution from this rank.
    pub contributions: u64,
    /// Determinants recorded; none under `Keep::Acked`.
    pub determinants: u64,
}

/// A rank's logger, its control communicator and its counts.
#[derive(Debug)]
pub(super) struct Engine {
    logger: Logger,
    /// `None` after `finish`.
    control: Option<Control>,
    dropped: Dropped,
    /// Poll error inside an MPI call; the next call returns it.
    failed: Option<LoggedError>,
    since_progress: u32,
    account: Account,
    /// `None` before the engine is registered, and after `finish`.
    pub(super) hook: Option<ProgressHook>,
    pub(super) universe: Rc<Universe>,
}

impl Engine {
    /// Begins to log.
    ///
    /// Collective: all ranks get a log, or none.
    pub(super) fn begin(world: &Comm, set: impl FnOnce(&mut Options)) -> Result<Engine, LoggedError> {
        let control = Control::of(world)?;
        let mut options = Options::new(Rank(world.rank()?), world.size()?);
        options.keep = Keep::Acked;
        set(&mut options);
        let created = Log::create(options);
        let failed = control.count_true(created.is_err())?;
        let log = created?;
        if failed > 0 {
            return Err(LoggedError::PeersOpen { ranks: failed });
        }
        Ok(Engine {
            logger: Logger::new(log, &LoggerOptions::default()),
            control: Some(control),
            dropped: Dropped::default(),
            failed: None,
            since_progress: 0,
            account: Account::default(),
            hook: None,
            universe: Rc::clone(world.universe()),
        })
    }

    pub(super) fn rank(&self) -> u32 {
        self.logger.rank()
    }

    pub(super) fn account(&self) -> Account {
        Account { determinants: self.logger.determinants(), ..self.account }
    }

    pub(super) fn set_deadlock_after(&mut self, after: std::time::Duration) {
        self.logger.set_deadlock_after(after);
    }

    /// Notes MPI activity for the program not counted elsewhere.
    pub(super) fn note_activity(&mut self) {
        self.logger.note_activity();
    }

    /// Counts a failed test or probe.
    pub(super) fn count_failed_poll(&mut self) {
        self.logger.count_failed_poll();
    }

    fn control(&mut self) -> Result<&mut Control, LoggedError> {
        self.control.as_mut().ok_or(LoggedError::Finished)
    }

    fn driver(&mut self) -> Result<Driver<'_, Control>, LoggedError> {
        let channel = self.control.as_mut().ok_or(LoggedError::Finished)?;
        Ok(Driver { logger: &mut self.logger, channel })
    }

    // Communicators.

    /// Agrees on a new communicator's number; all its ranks call this.
    pub(super) fn agree_on_number(&mut self, comm: &Comm) -> Result<u32, LoggedError> {
        let mut number = [0];
        comm.all_reduce(SystemOperation::Max, &[self.logger.comms.propose()], &mut number)?;
        Ok(number[0])
    }

    /// Adds a communicator.
    ///
    /// Returns its id, and the list to note its drop in.
    pub(super) fn add_comm(&mut self, number: u32, members: Members) -> Result<(CommId, Dropped), LoggedError> {
        self.logger.note_activity();
        self.free_dropped()?;
        Ok((self.logger.comms.add(number, members)?, Rc::clone(&self.dropped)))
    }

    fn free_dropped(&mut self) -> Result<(), LoggedError> {
        for comm in self.dropped.take() {
            self.logger.handle_comm_freed(comm)?;
            self.logger.comms.free(comm);
        }
        Ok(())
    }

    // Messages.

    /// Sends a message by `send`.
    ///
    /// It gets a function to write the record, to be called while the message is in flight.
    pub(super) fn send<T>(
        &mut self,
        to: Stream,
        bytes: &[u8],
        send: impl FnOnce(&mut dyn FnMut()) -> Result<T, LoggedError>,
    ) -> Result<T, LoggedError> {
        self.wait_for_space(to.peer, bytes.len())?;
        let (log, sent) = self.logger.log_and_sent();
        let stream = sent.id(to);
        let tag = to.record_tag(sent.count_at(stream) + 1);
        let log = log.ok_or(LoggedError::Finished)?;
        let mut claim = Some(log.claim(Rank(to.peer), RecordTag::LEN, bytes.len())?);
        let result = send(&mut || {
            if let Some(mut claim) = claim.take() {
                let (prefix, payload) = claim.parts_mut();
                prefix.copy_from_slice(&tag.encode());
                payload.copy_from_slice(bytes);
                claim.commit();
            }
        });
        let has_begun = claim.is_none();
        // An unsent message isn't logged: its claim becomes a pad.
        drop(claim);
        if has_begun {
            sent.next_at(stream);
            self.account.messages_logged += 1;
            self.account.bytes_logged += bytes.len() as u64;
        }
        let result = result?;
        self.progress_if_due(bytes.len())?;
        Ok(result)
    }

    /// Posts a receive; `None` is a wildcard.
    pub(super) fn post(&mut self, comm: CommId, source: Option<u32>, tag: Option<i32>) -> Option<PostedReceive> {
        self.logger.comms.post(comm, source.map(|rank| rank as i32), tag)
    }

    /// Ends a posted receive, with a message or without one.
    ///
    /// `chosen`: the sender's rank in MPI_COMM_WORLD, if the receive had a wildcard.
    pub(super) fn end_receive(
        &mut self,
        comm: CommId,
        posted: PostedReceive,
        received: Option<Envelope>,
        chosen: Option<u32>,
    ) -> Result<(), LoggedError> {
        let arrival = received.map(|of| Arrival { source: of.source as i32, tag: of.tag, bytes: of.len });
        self.logger.handle_receive_ended(comm, posted, arrival)?;
        if let Some(Envelope { tag, .. }) = received {
            self.account.messages_received += 1;
            if let Some(source) = chosen {
                self.record(Determinant::Receive { source, tag });
            }
        }
        self.flush()?;
        self.progress_if_due(received.map_or(0, |envelope| envelope.len))
    }

    /// Records a determinant.
    ///
    /// A full local log tells a recovery in need of it: the outcome has happened all the same.
    pub(super) fn record(&mut self, determinant: Determinant) {
        let _ = self.logger.handle_determinant(determinant);
    }

    // Collective operations.

    /// Counts a new collective operation, and logs this rank's contribution, in pieces, if any.
    ///
    /// Returns its number. Without log space the operation has not begun.
    pub(super) fn begin_collective(&mut self, comm: CommId, gives: Option<&[&[u8]]>) -> Result<u64, LoggedError> {
        let (rank, len) = (self.rank(), gives.map(|pieces| pieces.iter().map(|piece| piece.len()).sum()));
        len.map_or(Ok(()), |len| self.wait_for_space(rank, len))?;
        let number = self.logger.handle_collective_begun(comm).ok_or(LoggedError::Finished)?;
        let (Some(pieces), Some(len)) = (gives, len) else { return Ok(number) };
        let stream = self.logger.contributions(comm);
        let log = self.logger.log_mut().ok_or(LoggedError::Finished)?;
        let mut claim = log.claim(Rank(rank), RecordTag::LEN, len)?;
        let (prefix, mut payload) = claim.parts_mut();
        prefix.copy_from_slice(&stream.record_tag(number).encode());
        for piece in pieces {
            let (into, rest) = payload.split_at_mut(piece.len());
            into.copy_from_slice(piece);
            payload = rest;
        }
        claim.commit();
        self.logger.handle_contribution(comm, number, len);
        self.account.contributions += 1;
        self.progress_if_due(len)?;
        Ok(number)
    }

    /// Notes an operation refused by MPI; it has not begun.
    pub(super) fn collective_refused(&mut self, comm: CommId, number: u64) {
        self.logger.handle_collective_refused(comm, number);
    }

    /// Notes the start of a nonblocking operation.
    pub(super) fn collective_started(&mut self, comm: CommId, number: u64) -> Result<(), LoggedError> {
        self.logger.handle_collective_started(comm, number)?;
        self.flush()
    }

    /// Notes the end of the program's wait for a nonblocking operation.
    pub(super) fn collective_waited(&mut self, comm: CommId, number: u64) {
        self.logger.handle_collective_waited(comm, number);
    }

    /// Notes the end of a blocking operation, the last one begun.
    ///
    /// See [`Logger::handle_collective_ended`].
    pub(super) fn collective_ended(&mut self, comm: CommId, synchronises: bool) -> Result<(), LoggedError> {
        self.logger.handle_collective_ended(comm, synchronises)?;
        self.flush()
    }

    // Control messages.

    fn progress_if_due(&mut self, bytes: usize) -> Result<(), LoggedError> {
        self.since_progress = self.since_progress.saturating_add(progress_weight(bytes));
        if self.since_progress < PROGRESS_EVERY { Ok(()) } else { self.progress() }
    }

    /// Handles control messages, releases acknowledged records, and queries other ranks if much is kept.
    fn progress(&mut self) -> Result<(), LoggedError> {
        self.since_progress = 0;
        // No message is needed, and contributions may follow these records in the same lane.
        let own = self.rank();
        self.logger.acknowledge(own)?;
        self.poll_control()?;
        self.driver()?.query_early(true)?;
        // A rank waiting for news is told at once.
        if self.logger.has_pending_queries() {
            self.since_progress = PROGRESS_EVERY;
        }
        Ok(())
    }

    /// Handles control messages while the program waits in an MPI call.
    pub(super) fn poll_in_call(&mut self) {
        if self.failed.is_none() && self.control.is_some() {
            self.failed = self.poll_control().err();
        }
    }

    /// Handles the arrived control messages, and answers queries.
    fn poll_control(&mut self) -> Result<(), LoggedError> {
        if let Some(failed) = self.failed.take() {
            return Err(failed);
        }
        self.free_dropped()?;
        self.driver()?.receive(|_| ())?;
        self.logger.answer_queries()?;
        while self.logger.is_releasing() {
            self.logger.release_some(usize::MAX, |_, _| ())?;
        }
        self.flush()
    }

    /// Sends the logger's control messages.
    fn flush(&mut self) -> Result<(), LoggedError> {
        Ok(self.driver()?.flush()?)
    }

    // Space in the log.

    /// Waits for space for a record with `len` bytes to `peer`, unless waits are given up at once.
    fn wait_for_space(&mut self, peer: u32, len: usize) -> Result<(), LoggedError> {
        if self.logger.check_space(peer, len).is_ok() {
            return Ok(());
        }
        self.logger.begin_wait(Instant::now());
        let found = self.find_space(peer, len);
        self.logger.end_wait(Instant::now());
        found
    }

    fn find_space(&mut self, peer: u32, len: usize) -> Result<(), LoggedError> {
        while let Err(refused) = self.logger.check_space(peer, len) {
            if !self.logger.may_wait() && self.logger.wait_for(&refused) == SpaceRefusal::Peers {
                return Err(refused.into());
            }
            if self.driver()?.begin_attempt(&refused)? == SpaceRefusal::Final {
                return Err(refused.into());
            }
            self.progress()?;
            if let SpacePoll::Never(error) = self.driver()?.end_attempt(peer, len, |_, _| ())?.poll {
                return Err(error.into());
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    // The end.

    /// Exchanges the last acknowledgements and completes the log on disk, if it has a store.
    ///
    /// Collective.
    pub(super) fn finish(&mut self) -> Result<Account, LoggedError> {
        self.logger.acknowledge_all()?;
        self.flush()?;
        let mut barrier = self.control()?.begin_barrier()?;
        while !self.control()?.has_ended(&mut barrier)? {
            self.progress()?;
            if let Some(rank) = self.logger.left().next() {
                return Err(LoggedError::PeerDropped { rank });
            }
            std::thread::yield_now();
        }
        self.driver()?.drain()?;
        self.logger.complete_all_collectives()?;
        self.logger.release_all(|_, _| ())?;
        self.hook = None;
        self.control.take().map_or(Ok(()), Control::end)?;
        let account = self.account();
        let mut log = self.logger.disable().ok_or(LoggedError::Finished)?;
        if log.options().store.is_some() {
            log.checkpoint(Epoch::AFTER_RUN, Contents::default())?;
        }
        Ok(account)
    }

    /// Returns the number of this rank's unacknowledged records.
    pub(super) fn unacknowledged(&mut self) -> Result<u64, LoggedError> {
        self.progress()?;
        self.logger.release_all(|_, _| ())?;
        Ok(self.logger.unacknowledged())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Without `finish`, as after a program error. Errors can't be reported here.
        if self.control.is_some() {
            self.logger.leave();
            let _ = self.flush();
        }
    }
}
