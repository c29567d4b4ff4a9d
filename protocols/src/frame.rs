//! The frame: events in, effects out.
//!
//! A driver owns the log, the connections and the files. It tells a [`Protocol`] what happened (`handle_*`), obeys the
//! verdict that it gets back, and then carries out what [`Protocol::poll_effect`] hands it until that says `None`. Which
//! paper needs which event and effect, and why the frame has this shape: `docs/protocols.md`, sections 1 to 3.
//!
//! # The order that a driver keeps
//!
//! - *Start*: construct; if there is a checkpoint, [`Protocol::restore`]; then [`Protocol::handle_recovered_choice`] for
//!   every choice and [`Protocol::handle_recovered_delivery`] for every delivery that the local log still has; only then meet
//!   peers.
//! - *Meet a peer*: send [`Protocol::hello`] as the first thing on a connection, and give the peer's to
//!   [`Protocol::handle_hello`] before anything else that arrives on it. Transmit nothing to that peer until the
//!   [`Effect::Replay`] that this produces says from where. One connection at a time: once a newer one has taken the place
//!   of an older, nothing that came on the older may be acted upon with the newer (a Hello of a dead incarnation would
//!   decide what its successor is sent).
//! - *Send*: claim the record first, then [`Protocol::handle_send`]: a number that was given out is never taken back.
//!   Then, whenever the record goes on the wire, [`Protocol::handle_transmit`].
//! - *Choice*: [`Protocol::next_choice`] when the call is made, [`Protocol::handle_choice`] when its outcome is known;
//!   append the record that this returns to a log that survives the process, *then* let the call return.
//! - *Checkpoint*: [`Protocol::handle_checkpoint`], write the file, make it durable, then
//!   [`Protocol::handle_checkpoint_durable`]. Nothing is sent, received or chosen between the first and the last byte
//!   that the file is made of.

mod boxed;
mod choice;
mod collective;
mod effect;
mod error;
mod hello;
mod verdict;

use std::fmt;

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::{Determinant, Envelope, Epoch, Rank};

pub use choice::{CHOICE_RECORD_BYTES, ChoiceRecord, NextChoice};
pub use collective::{CollectiveCall, CollectiveClass, CollectivePlan};
pub use effect::{Effect, EntryKey, EntryKind, Party};
pub use error::{ChoiceError, Misbehaviour, ProtocolError, RestoreError};
pub use hello::{Hello, HelloError};
pub use verdict::{DiscardReason, Incoming, Outgoing, Snapshot, Transmission};

/// A paper's rule as a state machine of one rank.
pub trait Protocol: fmt::Debug {
    /// The epoch that this rank is in.
    fn epoch(&self) -> Epoch;

    /// The application sends: gives the message its number and its header.
    ///
    /// # Errors
    /// An envelope that isn't this rank's, or a limit; no number was given out.
    fn handle_send(&mut self, envelope: &Envelope) -> Result<Outgoing, ProtocolError>;

    /// A record is about to go on the wire, for the first time or again: refreshes the fields of its header that are
    /// only true now (incarnation, piggybacked acknowledgement, the mark of a replay). The number stays. Once for each
    /// transmission: what is piggybacked counts as said.
    ///
    /// # Errors
    /// A header that isn't one of this rank's messages.
    fn handle_transmit(&mut self, header: &mut WireHeader) -> Result<(), ProtocolError>;

    /// A message has arrived (where the driver sees messages only when the application takes them, as over MPI: it is
    /// about to be taken). An acknowledgement on it is taken into account before the verdict.
    ///
    /// # Errors
    /// A header that no peer that keeps the rules sends; the connection that it came from is not to be trusted.
    fn handle_message(&mut self, header: &WireHeader) -> Result<Incoming, ProtocolError>;

    /// A message has arrived behind one of the same sender that is held, and waits with it: it will be presented later. An
    /// acknowledgement on it is taken into account now, because those that come after it are.
    ///
    /// # Errors
    /// As [`Protocol::handle_message`].
    fn handle_waiting(&mut self, header: &WireHeader) -> Result<(), ProtocolError> {
        let _ = header;
        Ok(())
    }

    /// A frame that isn't a message has arrived: acknowledgement, request for one, or a notice with a body.
    ///
    /// Frames of a dead incarnation are ignored.
    ///
    /// # Errors
    /// As [`Protocol::handle_message`], or a body that doesn't parse.
    fn handle_control(&mut self, from: Party, header: &WireHeader, body: &[u8]) -> Result<(), ProtocolError>;

    /// A call whose outcome is not determined by the program begins (wildcard receive, probe, test): counts it, and says
    /// what it must choose if this execution repeats an earlier one.
    fn next_choice(&mut self) -> NextChoice;

    /// The outcome of the call that [`Protocol::next_choice`] counted as `choice.sequence`. A record that is returned
    /// must be in a log that survives the process before the outcome is seen by anyone.
    ///
    /// # Errors
    /// An outcome other than the forced one; a call that wasn't counted; a call that was decided before.
    fn handle_choice(&mut self, choice: Determinant) -> Result<Option<ChoiceRecord>, ChoiceError>;

    /// A choice that an earlier incarnation recorded, read back from the log, in any order.
    ///
    /// # Errors
    /// Bytes that aren't a choice, or that contradict another record.
    fn handle_recovered_choice(&mut self, record: &[u8]) -> Result<(), ChoiceError>;

    /// A delivery that an earlier incarnation recorded ([`EntryKind::Delivery`]), read back from the log, in any order. The
    /// default is that of a rule that records none.
    ///
    /// # Errors
    /// Bytes that aren't such a record, or that contradict another one.
    fn handle_recovered_delivery(&mut self, record: &[u8]) -> Result<(), ChoiceError> {
        Err(ChoiceError::NotRecorded { len: record.len() })
    }

    /// A collective begins. The default is that its hops are ordinary messages.
    ///
    /// # Errors
    /// A call that contradicts what is known of it.
    fn handle_collective(&mut self, call: &CollectiveCall) -> Result<CollectivePlan, ProtocolError> {
        let _ = call;
        Ok(CollectivePlan::AsMessages)
    }

    /// The words that [`CollectivePlan::Exchange`] asked for have arrived, from whom data flows to this rank. Returns the
    /// local-log entry under which to keep the result before the application sees it.
    ///
    /// # Errors
    /// As [`Protocol::handle_collective`].
    fn handle_collective_words(
        &mut self,
        call: &CollectiveCall,
        words: &[(Rank, u64)],
    ) -> Result<Option<EntryKey>, ProtocolError> {
        let _ = (call, words);
        Ok(None)
    }

    /// Whether the application may go on. Where it may not, no event of its own comes before [`Effect::Resume`].
    fn is_running(&self) -> bool {
        true
    }

    /// The checkpoint of the first epoch, of a rank that has done nothing, in rules that go back to it as to any other. A
    /// replacement that finds none is [restored](Protocol::restore) from this.
    fn first_checkpoint(&self) -> Option<Snapshot> {
        None
    }

    /// The application could take a checkpoint here: should it? The default is yes.
    fn wants_checkpoint(&self) -> bool {
        true
    }

    /// A checkpoint is being taken: begins the next epoch and returns the tables that belong into the checkpoint. One that was
    /// taken before and isn't durable yet is given up by this.
    ///
    /// # Errors
    /// No epoch is left, or a call that [`Protocol::next_choice`] counted is undecided; nothing is changed then.
    fn handle_checkpoint(&mut self) -> Result<Snapshot, ProtocolError>;

    /// The checkpoint that began `epoch` would now survive anything that the driver promises to survive.
    ///
    /// # Errors
    /// An epoch whose checkpoint was not taken.
    fn handle_checkpoint_durable(&mut self, epoch: Epoch) -> Result<(), ProtocolError>;

    /// What [`Effect::SealLog`] asked for is durable.
    ///
    /// # Errors
    /// An epoch whose log was not to be sealed.
    fn handle_log_sealed(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        Err(ProtocolError::NotSealing { epoch })
    }

    /// Puts back the tables of a [`Snapshot`]: in a replacement, before any peer is met, or after [`Effect::RollBack`].
    ///
    /// # Errors
    /// Damaged bytes, or another rank's, job's or version's; nothing is changed then.
    fn restore(&mut self, tables: &[u8]) -> Result<(), RestoreError>;

    /// A peer has died, or the connection to it is gone.
    ///
    /// # Errors
    /// A peer that isn't of this job.
    fn handle_peer_lost(&mut self, peer: Rank) -> Result<(), ProtocolError>;

    /// What to tell `peer` first on a new connection. Changes nothing: it may be asked for again.
    ///
    /// # Errors
    /// A peer that isn't of this job.
    fn hello(&self, peer: Rank) -> Result<Hello, ProtocolError>;

    /// What `peer` said first on a new connection.
    ///
    /// # Errors
    /// A dead incarnation, contradictions, or a peer that needs what is no longer kept; it isn't met then.
    fn handle_hello(&mut self, peer: Rank, hello: &Hello) -> Result<(), ProtocolError>;

    /// The next thing to do, in order; `None` when there is nothing. To be asked after every other call.
    fn poll_effect(&mut self) -> Option<Effect>;
}
