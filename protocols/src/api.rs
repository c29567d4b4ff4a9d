//! The interface of all protocols: events in, effects out.
//!
//! A driver owns the log, the connections and the files. It reports events to a [`Protocol`] (`handle_*`), obeys the
//! verdict that it gets back, and then carries out effects until [`Protocol::poll_effect`] returns `None`.
//! `docs/book/src/explanation/rules.md` says why the interface has this shape.
//!
//! # Order of calls
//!
//! - *Start*: construct; if there is a checkpoint, [`Protocol::restore`]; then [`Protocol::handle_recovered_choice`]
//!   for every choice, [`Protocol::handle_recovered_delivery`] for every delivery and
//!   [`Protocol::handle_recovered_entry`] for every other entry that the local log still has; only then connect to
//!   peers.
//! - *Connect*: send [`Protocol::hello`] as the first frame on a connection, and pass the peer's to
//!   [`Protocol::handle_hello`] before any other frame from it. Transmit nothing to that peer until the resulting
//!   [`Effect::Replay`] says where to begin. One connection at a time: once a newer one has replaced an older, no frame
//!   from the older may be acted upon with the newer (a Hello of a dead incarnation would decide what its successor is
//!   sent).
//! - *Send*: claim the record first, then [`Protocol::handle_send`]: an assigned SSN is never taken back. Then,
//!   whenever the record goes on the wire, [`Protocol::handle_transmit`].
//! - *Choice*: [`Protocol::next_choice`] when the call is made, [`Protocol::handle_choice`] when its outcome is known;
//!   append the returned record to a log that survives the process, *then* let the call return.
//! - *Collective*: [`Protocol::handle_collective`], and then what the plan says; [`CollectivePlan`].
//! - *Checkpoint*: [`Protocol::handle_checkpoint`], write the file, make it durable, then
//!   [`Protocol::handle_checkpoint_durable`]. Nothing is sent, received or chosen while the contents of the file are
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

/// Logging rule of a paper as the state machine of one rank. A boxed one is for a rule that is chosen at run time.
#[auto_impl(Box)]
pub trait Protocol: fmt::Debug {
    /// Returns the properties of the rule, which never change.
    fn properties(&self) -> Properties;

    /// Returns the rank's current epoch.
    fn epoch(&self) -> Epoch;

    /// Returns the incarnation in this process's Hellos and headers: the number of times that the rank was replaced,
    /// or, under rules that roll back ranks that are alive, a number that rises with each rollback, too.
    fn incarnation(&self) -> Incarnation;

    /// Assigns SSN and header to a message that the application sends.
    ///
    /// # Errors
    /// Envelope of another rank, or a limit reached; no SSN was assigned.
    fn handle_send(&mut self, envelope: &Envelope) -> Result<Outgoing, ProtocolError>;

    /// Refreshes the header of a record that is about to go on the wire, for the first time or again: incarnation,
    /// piggybacked acknowledgement and replay mark. The SSN stays. Call it once for each transmission: what is
    /// piggybacked counts as sent.
    ///
    /// # Errors
    /// Header of anything but a message of this rank.
    fn handle_transmit(&mut self, header: &mut WireHeader) -> Result<(), ProtocolError>;

    /// Judges a message that has arrived (or, where the driver sees messages only when the application takes them, as
    /// over MPI, one that is about to be taken). Its piggybacked acknowledgement is processed before the verdict.
    ///
    /// # Errors
    /// Header that a correct peer never sends; don't trust the connection any further.
    fn handle_message(&mut self, header: &WireHeader) -> Result<Incoming, ProtocolError>;

    /// Reports a message that is deferred because an earlier one of the same sender is held; it will be presented
    /// later. Its acknowledgement is processed now, because those on later frames are too.
    ///
    /// # Errors
    /// See [`Protocol::handle_message`].
    fn handle_deferred(&mut self, header: &WireHeader) -> Result<(), ProtocolError> {
        let _ = header;
        Ok(())
    }

    /// Handles a frame that isn't a message: acknowledgement, acknowledgement request, or a notice with a body.
    ///
    /// Ignores frames of a dead incarnation.
    ///
    /// # Errors
    /// See [`Protocol::handle_message`]; also a body that doesn't parse.
    fn handle_control(&mut self, from: Party, header: &WireHeader, body: &[u8]) -> Result<(), ProtocolError>;

    /// Counts a call whose outcome the program doesn't determine (wildcard receive, probe, test), and returns the
    /// outcome to force if this execution repeats an earlier one.
    fn next_choice(&mut self) -> NextChoice;

    /// Takes the outcome of the call that [`Protocol::next_choice`] counted as `choice.sequence`. A returned record
    /// must be in a log that survives the process before anything depends on the outcome.
    ///
    /// # Errors
    /// Outcome other than the forced one; a call that wasn't counted or is already decided.
    fn handle_choice(&mut self, choice: Determinant) -> Result<Option<ChoiceRecord>, ChoiceError>;

    /// Takes a choice that an earlier incarnation recorded, read back from the log, in any order.
    ///
    /// # Errors
    /// Bytes that aren't a choice, or that contradict another record.
    fn handle_recovered_choice(&mut self, record: &[u8]) -> Result<(), ChoiceError>;

    /// Takes a delivery that an earlier incarnation recorded ([`EntryKind::Delivery`]), read back from the log, in any
    /// order. The default is for rules that record none.
    ///
    /// # Errors
    /// Bytes that aren't such a record, or that contradict another record.
    fn handle_recovered_delivery(&mut self, record: &[u8]) -> Result<(), ChoiceError> {
        Err(ChoiceError::NotRecorded { len: record.len() })
    }

    /// Takes an entry that an earlier incarnation kept ([`EntryKind::Message`], [`EntryKind::Collective`],
    /// [`EntryKind::Note`]), read back from the log: the notes first, and each kind ascending by number; an entry may
    /// come twice. For a message, returns `true` if it is to be presented to the program as received and not yet taken.
    /// The default is for rules that keep none.
    ///
    /// # Errors
    /// Entry that the rule never keeps.
    fn handle_recovered_entry(&mut self, entry: EntryKey, bytes: &[u8]) -> Result<bool, ProtocolError> {
        let _ = bytes;
        Err(ProtocolError::UnexpectedEntry { entry })
    }

    /// Takes a copy of an entry of a peer's local log ([`Effect::SendEntry`]). Returns `true` if it is to be kept in
    /// this rank's local log, under the same key. The default is for rules that send none.
    ///
    /// # Errors
    /// Entry that the rule never sends; don't trust the connection any further.
    fn handle_entry(&mut self, from: Rank, entry: EntryKey, bytes: &[u8]) -> Result<bool, ProtocolError> {
        let _ = (from, bytes);
        Err(ProtocolError::UnexpectedEntry { entry })
    }

    /// Begins a collective, or asks for a plan again. By default its hops are ordinary messages.
    ///
    /// # Errors
    /// Call that contradicts an earlier event of the same collective.
    fn handle_collective(&mut self, call: &CollectiveCall) -> Result<CollectivePlan, ProtocolError> {
        let _ = call;
        Ok(CollectivePlan::AsMessages)
    }

    /// Takes the words that [`CollectivePlan::Exchange`] or [`CollectivePlan::Piggyback`] asked for, its own among
    /// them, ascending by rank. Returns the local-log entry under which to keep the result before the application sees
    /// it. The call may still fail.
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

    /// Reports that a collective is complete here: it ran natively, and its result is kept if it was to be; or the plan
    /// was [`CollectivePlan::Recorded`] or [`CollectivePlan::Skip`]. The next call, or a checkpoint, is beyond it.
    ///
    /// # Errors
    /// See [`Protocol::handle_collective`].
    fn handle_collective_completed(&mut self, call: &CollectiveCall) -> Result<(), ProtocolError> {
        let _ = call;
        Ok(())
    }

    /// Reports that a participant was lost before a collective that ran natively was complete here. Some ranks may have
    /// completed it.
    ///
    /// # Errors
    /// See [`Protocol::handle_collective`].
    fn handle_collective_failed(&mut self, call: &CollectiveCall) -> Result<(), ProtocolError> {
        let _ = call;
        Ok(())
    }

    /// Reports that the program has rebuilt what this rank had lost, or has loaded it. By default ignored: other rules
    /// restore it themselves.
    ///
    /// # Errors
    /// None so far.
    fn handle_rebuilt(&mut self) -> Result<(), ProtocolError> {
        Ok(())
    }

    /// Returns `false` while the application is blocked: no event of its own may come before [`Effect::Resume`].
    fn is_running(&self) -> bool {
        true
    }

    /// Returns `true` while a recovery is under way, as far as this rank knows.
    fn is_recovering(&self) -> bool {
        !self.is_running()
    }

    /// Returns the checkpoint of the first epoch (a rank that has done nothing), in rules that may roll back to it. A
    /// replacement that finds no checkpoint is [restored](Protocol::restore) from this.
    fn first_checkpoint(&self) -> Option<Snapshot> {
        None
    }

    /// Reports that the application offers a checkpoint at this point; returns `true` (the default) if it should be
    /// taken. Also called where one that the rule has asked for is taken in place of it.
    fn wants_checkpoint(&mut self) -> bool {
        true
    }

    /// Same as [`wants_checkpoint`](Protocol::wants_checkpoint) (the default) where checkpoints are taken by interval,
    /// and this rank's clock says that one is due. Those of other ranks may say otherwise.
    fn wants_due_checkpoint(&mut self) -> bool {
        self.wants_checkpoint()
    }

    /// Begins the next epoch and returns the tables to put into the checkpoint. An earlier checkpoint that isn't
    /// durable yet is abandoned.
    ///
    /// # Errors
    /// No epoch is left, or a call that [`Protocol::next_choice`] counted is undecided and a later one isn't; nothing
    /// is changed. A program that is restored makes undecided calls again, first and in the same order.
    fn handle_checkpoint(&mut self) -> Result<Snapshot, ProtocolError>;

    /// Reports that a checkpoint which the rule has asked for ([`Effect::TakeCheckpoint`]) can't be taken in the
    /// collective that is held: the program has no source of its state, and offers a checkpoint only after the call. By
    /// default the call stays held.
    ///
    /// # Errors
    /// See [`Protocol::handle_collective`].
    fn handle_checkpoint_refused(&mut self) -> Result<(), ProtocolError> {
        Ok(())
    }

    /// Reports that the checkpoint that began `epoch` would survive every failure that the driver protects against.
    ///
    /// # Errors
    /// Epoch without a checkpoint in progress.
    fn handle_checkpoint_durable(&mut self, epoch: Epoch) -> Result<(), ProtocolError>;

    /// Reports that the local log named by [`Effect::SealLog`] is durable.
    ///
    /// # Errors
    /// Epoch whose log was not to be sealed.
    fn handle_log_sealed(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        Err(ProtocolError::NotSealing { epoch })
    }

    /// Restores the tables of a [`Snapshot`]: in a replacement before it connects to any peer, or after
    /// [`Effect::RollBack`]. `oldest`: epoch of the oldest checkpoint that is left. [`Effect::KeepCheckpoints`] has had
    /// those before it discarded, perhaps after these tables were written.
    ///
    /// # Errors
    /// Damaged bytes, or tables of another rank, job or version; nothing is changed.
    fn restore(&mut self, tables: &[u8], oldest: Epoch) -> Result<(), RestoreError>;

    /// Reports that a peer has died or the connection to it is gone.
    ///
    /// # Errors
    /// Peer outside this job.
    fn handle_peer_lost(&mut self, peer: Rank) -> Result<(), ProtocolError>;

    /// Returns the first frame for a new connection to `peer`. Changes nothing and may be called again.
    ///
    /// # Errors
    /// Peer outside this job.
    fn hello(&self, peer: Rank) -> Result<Hello, ProtocolError>;

    /// Handles the first frame of `peer` on a new connection.
    ///
    /// # Errors
    /// Dead incarnation, contradictory numbers, or a peer that needs records that are no longer kept; the peer stays
    /// unconnected.
    fn handle_hello(&mut self, peer: Rank, hello: &Hello) -> Result<(), ProtocolError>;

    /// Returns the next effect, in order; `None` when there is none. Call it after every other call.
    fn poll_effect(&mut self) -> Option<Effect>;

    /// Returns the state that oracles and reports read; by default there is none.
    fn inspect(&self) -> &dyn Inspect {
        &inspect::Nothing
    }
}
