//! The interface to all protocols: events in, effects out.
//!
//! A driver owns the log, the connections and the files. It reports events to a [`Protocol`] (`handle_*`), obeys the
//! returned verdict, and then carries out effects until [`Protocol::poll_effect`] returns `None`.
//! `docs/book/src/explanation/rules.md` says why the interface has this shape.
//!
//! # Order of calls
//!
//! - *Start*: construct; if there is a checkpoint, [`Protocol::restore`]; then [`Protocol::handle_recovered_choice`]
//!   for every choice, [`Protocol::handle_recovered_delivery`] for every delivery and
//!   [`Protocol::handle_recovered_entry`] for every other entry still in the local log; only then connect to peers.
//! - *Connect*: send [`Protocol::hello`] as the first frame on a connection, and pass the peer's to
//!   [`Protocol::handle_hello`] before any other frame from it. Transmit nothing to this peer until the resulting
//!   [`Effect::Replay`] gives the starting point. One connection at a time: once a newer one has replaced an older, no
//!   frame from the older may be acted upon with the newer (a dead incarnation's Hello would decide what its successor
//!   is sent).
//! - *Send*: claim the record first, then [`Protocol::handle_send`]: an assigned SSN is never taken back. Then,
//!   whenever the record goes on the wire, [`Protocol::handle_transmit`].
//! - *Choice*: [`Protocol::next_choice`] when the call is made, [`Protocol::handle_choice`] when its outcome is known;
//!   append the returned record to a log surviving the process, *then* let the call return.
//! - *Collective*: [`Protocol::handle_collective`], and then what the plan says; [`CollectivePlan`].
//! - *Checkpoint*: [`Protocol::handle_checkpoint`], write the file, make it durable, then
//!   [`Protocol::handle_checkpoint_durable`]. Nothing is sent, received or chosen while the file's contents are
//!   collected.

mod choice;
mod collective;
mod coordinator;
mod effect;
mod error;
mod forward;
mod hello;
mod inspect;
mod properties;
mod rule;
mod verdict;

use std::fmt;

use auto_impl::auto_impl;
use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::{Determinant, Envelope, Epoch, Incarnation, Rank};

pub use choice::{CHOICE_RECORD_BYTES, ChoiceRecord, NextChoice};
pub use collective::{CALL_BITS, CollectiveCall, CollectiveClass, CollectivePlan, Scope};
pub use coordinator::{COMMAND, Coordinator, CoordinatorError, Floor, Restart, command_header, report_effect};
pub use effect::{Effect, EntryKey, EntryKind, Party};
pub use error::{ChoiceError, Misbehaviour, ProtocolError, RestoreError};
pub use hello::{Hello, HelloError};
pub use inspect::{Inspect, TableSizes};
pub use properties::{Kept, NativeCollectives, Properties, Repetition};
pub use rule::{Bits, MakeCoordinator, MakeRank, Moment, Rule, RuleOption, RuleOptions, RuleSettings};
pub use verdict::{DiscardReason, Incoming, Outgoing, Snapshot, Transmission};

/// Logging rule of a paper, as a state machine for one rank.
///
/// A boxed one is for a rule chosen at run time.
#[auto_impl(Box)]
pub trait Protocol: fmt::Debug {
    /// Returns the rule's properties, which never change.
    fn properties(&self) -> Properties;

    /// Returns the rank's current epoch.
    fn epoch(&self) -> Epoch;

    /// Returns the incarnation in this process's Hellos and headers: the replacement count of the rank, or, under rules
    /// that roll back live ranks, a number that also rises with each rollback.
    fn incarnation(&self) -> Incarnation;

    /// Assigns SSN and header to a message sent by the application.
    ///
    /// # Errors
    /// Envelope from another rank, or a limit reached; no SSN was assigned.
    fn handle_send(&mut self, envelope: &Envelope) -> Result<Outgoing, ProtocolError>;

    /// Refreshes the header of a record for transmission, for the first time or again: incarnation, piggybacked
    /// acknowledgement and replay mark.
    ///
    /// The SSN stays. Call it once for each transmission: what is piggybacked counts as sent.
    ///
    /// # Errors
    /// Header other than of a message from this rank.
    fn handle_transmit(&mut self, header: &mut WireHeader) -> Result<(), ProtocolError>;

    /// Judges an arrived message (or, where the driver sees messages only when the application takes them, as over MPI,
    /// one about to be taken).
    ///
    /// Its piggybacked acknowledgement is processed before the verdict.
    ///
    /// # Errors
    /// Header never sent by a correct peer; don't trust the connection any further.
    fn handle_message(&mut self, header: &WireHeader) -> Result<Incoming, ProtocolError>;

    /// Reports a message deferred because an earlier one from the same sender is held; it will be presented later.
    ///
    /// Its acknowledgement is processed now, because those on later frames are too.
    ///
    /// # Errors
    /// See [`Protocol::handle_message`].
    fn handle_deferred(&mut self, header: &WireHeader) -> Result<(), ProtocolError> {
        let _ = header;
        Ok(())
    }

    /// Handles a frame other than a message: acknowledgement, acknowledgement request, or a notice with a body.
    ///
    /// Ignores frames from a dead incarnation.
    ///
    /// # Errors
    /// See [`Protocol::handle_message`]; also a malformed body.
    fn handle_control(&mut self, from: Party, header: &WireHeader, body: &[u8]) -> Result<(), ProtocolError>;

    /// Counts a non-deterministic call (wildcard receive, probe, test), and returns the outcome to force if this
    /// execution repeats an earlier one.
    fn next_choice(&mut self) -> NextChoice;

    /// Takes the outcome of the call counted by [`Protocol::next_choice`] as `choice.sequence`.
    ///
    /// A returned record must be in a log surviving the process before anything depends on the outcome.
    ///
    /// # Errors
    /// Outcome other than the forced one; an uncounted or already decided call.
    fn handle_choice(&mut self, choice: Determinant) -> Result<Option<ChoiceRecord>, ChoiceError>;

    /// Takes a choice recorded by an earlier incarnation, read back from the log, in any order.
    ///
    /// # Errors
    /// Bytes other than a choice, or a contradiction to another record.
    fn handle_recovered_choice(&mut self, record: &[u8]) -> Result<(), ChoiceError>;

    /// Takes a delivery recorded by an earlier incarnation ([`EntryKind::Delivery`]), read back from the log, in any
    /// order.
    ///
    /// The default is for rules without delivery records.
    ///
    /// # Errors
    /// Bytes other than such a record, or a contradiction to another record.
    fn handle_recovered_delivery(&mut self, record: &[u8]) -> Result<(), ChoiceError> {
        Err(ChoiceError::NotRecorded { len: record.len() })
    }

    /// Takes an entry kept by an earlier incarnation ([`EntryKind::Message`], [`EntryKind::Collective`],
    /// [`EntryKind::Note`]), read back from the log: the notes first, and each kind ascending by number; an entry may
    /// come twice.
    ///
    /// For a message, returns `true` if it is to be presented to the program as received and not yet taken. The default
    /// is for rules without kept entries.
    ///
    /// # Errors
    /// Entry never kept by the rule.
    fn handle_recovered_entry(&mut self, entry: EntryKey, bytes: &[u8]) -> Result<bool, ProtocolError> {
        let _ = bytes;
        Err(ProtocolError::UnexpectedEntry { entry })
    }

    /// Takes a copy of an entry in a peer's local log ([`Effect::SendEntry`]).
    ///
    /// Returns `true` if it is to be kept in this rank's local log, under the same key. The default is for rules that
    /// never send one.
    ///
    /// # Errors
    /// Entry never sent by the rule; don't trust the connection any further.
    fn handle_entry(&mut self, from: Rank, entry: EntryKey, bytes: &[u8]) -> Result<bool, ProtocolError> {
        let _ = (from, bytes);
        Err(ProtocolError::UnexpectedEntry { entry })
    }

    /// Begins a collective, or asks for a plan again.
    ///
    /// By default its hops are ordinary messages.
    ///
    /// # Errors
    /// Call contradicting an earlier event in the same collective.
    fn handle_collective(&mut self, call: &CollectiveCall) -> Result<CollectivePlan, ProtocolError> {
        let _ = call;
        Ok(CollectivePlan::AsMessages)
    }

    /// Takes the words requested by [`CollectivePlan::Exchange`] or [`CollectivePlan::Piggyback`], its own among them,
    /// ascending by rank.
    ///
    /// Returns the local-log entry under which to keep the result before the application sees it. The call may still
    /// fail.
    ///
    /// # Errors
    /// See [`Protocol::handle_collective`].
    fn handle_collective_words(
        &mut self,
        call: &CollectiveCall,
        words: &[(Rank, u64)],
    ) -> Result<Option<EntryKey>, ProtocolError> {
        let _ = (call, words);
        Ok(None)
    }

    /// Reports a collective as complete here: it ran natively, and its result is kept if it was to be; or the plan was
    /// [`CollectivePlan::Recorded`] or [`CollectivePlan::Skip`].
    ///
    /// The next call, or a checkpoint, is beyond it.
    ///
    /// # Errors
    /// See [`Protocol::handle_collective`].
    fn handle_collective_completed(&mut self, call: &CollectiveCall) -> Result<(), ProtocolError> {
        let _ = call;
        Ok(())
    }

    /// Reports the loss of a participant before a natively run collective was complete here.
    ///
    /// Some ranks may have completed it.
    ///
    /// # Errors
    /// See [`Protocol::handle_collective`].
    fn handle_collective_failed(&mut self, call: &CollectiveCall) -> Result<(), ProtocolError> {
        let _ = call;
        Ok(())
    }

    /// Reports that the program has rebuilt or loaded this rank's lost state.
    ///
    /// By default ignored: other rules restore it themselves.
    ///
    /// # Errors
    /// None so far.
    fn handle_rebuilt(&mut self) -> Result<(), ProtocolError> {
        Ok(())
    }

    /// Returns `false` while the application is blocked: it may cause no event before [`Effect::Resume`].
    fn is_running(&self) -> bool {
        true
    }

    /// Returns `true` while a recovery is under way, as far as this rank knows.
    fn is_recovering(&self) -> bool {
        !self.is_running()
    }

    /// Returns the checkpoint of the first epoch (a rank in its initial state), in rules that may roll back to it.
    ///
    /// A replacement without any checkpoint is [restored](Protocol::restore) from this.
    fn first_checkpoint(&self) -> Option<Snapshot> {
        None
    }

    /// Reports a checkpoint offered by the application at this point; returns `true` (the default) if it should be
    /// taken.
    ///
    /// Also called where one requested by the rule is taken in its place.
    fn wants_checkpoint(&mut self) -> bool {
        true
    }

    /// Same as [`wants_checkpoint`](Protocol::wants_checkpoint) (the default) where checkpoints are taken by interval,
    /// and one is due by this rank's clock.
    ///
    /// Other ranks' clocks may differ.
    fn wants_due_checkpoint(&mut self) -> bool {
        self.wants_checkpoint()
    }

    /// Begins the next epoch and returns the tables to put into the checkpoint.
    ///
    /// An earlier checkpoint not yet durable is abandoned.
    ///
    /// # Errors
    /// No epoch is left, or a call counted by [`Protocol::next_choice`] is undecided and a later one isn't; nothing is
    /// changed. A restored program makes undecided calls again, first and in the same order.
    fn handle_checkpoint(&mut self) -> Result<Snapshot, ProtocolError>;

    /// Reports that a requested checkpoint ([`Effect::TakeCheckpoint`]) can't be taken in the held collective: the
    /// program has no source of its state, and offers a checkpoint only after the call. By default the call stays held.
    ///
    /// # Errors
    /// See [`Protocol::handle_collective`].
    fn handle_checkpoint_refused(&mut self) -> Result<(), ProtocolError> {
        Ok(())
    }

    /// Reports the checkpoint that began `epoch` as durable: it would survive every failure covered by the driver.
    ///
    /// # Errors
    /// Epoch without a checkpoint in progress.
    fn handle_checkpoint_durable(&mut self, epoch: Epoch) -> Result<(), ProtocolError>;

    /// Reports the local log named by [`Effect::SealLog`] as durable.
    ///
    /// # Errors
    /// Epoch without a requested seal.
    fn handle_log_sealed(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        Err(ProtocolError::NotSealing { epoch })
    }

    /// Restores the tables from a [`Snapshot`]: in a replacement before it connects to any peer, or after
    /// [`Effect::RollBack`].
    ///
    /// `oldest`: epoch of the oldest remaining checkpoint. [`Effect::KeepCheckpoints`] has discarded older ones,
    /// perhaps after these tables were written.
    ///
    /// # Errors
    /// Damaged bytes, or tables from another rank, job or version; nothing is changed.
    fn restore(&mut self, tables: &[u8], oldest: Epoch) -> Result<(), RestoreError>;

    /// Reports a peer's death or the loss of its connection.
    ///
    /// # Errors
    /// Peer outside this job.
    fn handle_peer_lost(&mut self, peer: Rank) -> Result<(), ProtocolError>;

    /// Returns the first frame for a new connection to `peer`.
    ///
    /// Changes nothing and may be called again.
    ///
    /// # Errors
    /// Peer outside this job.
    fn hello(&self, peer: Rank) -> Result<Hello, ProtocolError>;

    /// Handles `peer`'s first frame on a new connection.
    ///
    /// # Errors
    /// Dead incarnation, contradictory numbers, or a peer in need of records no longer kept; the peer stays
    /// unconnected.
    fn handle_hello(&mut self, peer: Rank, hello: &Hello) -> Result<(), ProtocolError>;

    /// Returns the next effect, in order; `None` when there is none.
    ///
    /// Call it after every other call.
    fn poll_effect(&mut self) -> Option<Effect>;

    /// Returns the state read by oracles and reports; none by default.
    fn inspect(&self) -> &dyn Inspect {
        &inspect::Nothing
    }
}
