//! Interface that a protocol implements to run in the simulator.
//!
//! The simulator owns everything outside the protocol: programs, lanes, checkpoints, connections, failures, time. It
//! reports events to the state machine of each process, and carries out the resulting [`Action`]s, in order, before the
//! next event. Events and verdicts are those of `counterfoil_protocols::api`; where that interface has ranks this one
//! has a [`Party`], because some rules have a process apart from the ranks.
//!
//! # Guarantees of the simulator
//!
//! - [`SimProtocol::start`], then [`SimProtocol::on_restart`] for a replacement, then [`SimProtocol::on_connect`] for
//!   each living party. On a connection, [`SimProtocol::on_hello`] comes first.
//! - Frames of one connection arrive in order. Those that a dead incarnation has left under way may arrive before or
//!   after [`SimProtocol::on_failure`], and before, between or after those of its successor.
//! - [`SimProtocol::on_failure`] comes once for each death, at the latest before the successor is connected.
//! - The application takes no step while [`SimProtocol::is_running`] returns `false`, and skips a checkpoint that
//!   [`SimProtocol::wants_checkpoint`] refuses.
//! - A lane is transmitted only after [`Action::Replay`] has set the position, after each new connection and each
//!   [`Action::RollBack`], and only to the named incarnation.
//! - A checkpoint contains the application's state, the protocol's tables, messages received and not taken, and the
//!   lanes, all as of [`SimProtocol::on_checkpoint`]. Held messages are not in it: the protocol has no record of them.

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::{Determinant, Envelope, Epoch, Incarnation, Rank, Ssn};
use counterfoil_protocols::api::{ChoiceRecord, Incoming, NextChoice, Outgoing, Party, Snapshot};

use super::schedule::Canary;

/// Identity and settings of a process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessSettings {
    /// Rank, or the coordinator.
    pub party: Party,
    /// Number of ranks.
    pub ranks: u32,
    /// Number of times that this party was replaced.
    pub incarnation: Incarnation,
    /// Number of clusters of the ranks (Guermouche 2011, section V.E.3); 0 is no division. Rules without clusters
    /// ignore it.
    pub clusters: u32,
    /// Planted mistake of the rule itself, if the schedule names one.
    pub canary: Option<Canary>,
}

/// Contents of stable storage that a replacement finds.
#[derive(Clone, Copy, Debug)]
pub struct StableStorage<'a> {
    /// Tables of the newest durable checkpoint.
    pub tables: Option<&'a [u8]>,
    /// Epoch of the oldest checkpoint that is left; [`Epoch::FIRST`] without any.
    pub oldest: Epoch,
    /// Recorded outcomes, by number.
    pub choices: &'a [ChoiceRecord],
    /// Recorded deliveries, by number.
    pub deliveries: &'a [ChoiceRecord],
}

/// Request of a protocol to the simulator.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Action {
    /// Send a frame that isn't a message. Lost if there is no connection.
    Control {
        /// Destination.
        to: Party,
        /// Content, opaque to the simulator.
        bytes: Vec<u8>,
    },
    /// `peer` has received all messages up to `upto`.
    Acknowledged {
        /// Receiver of the messages.
        peer: Rank,
        /// Last message that it has.
        upto: Ssn,
    },
    /// `peer` has lost the messages that it had acknowledged beyond `to`.
    ReceiverRolledBack {
        /// Receiver of the messages.
        peer: Rank,
        /// Last message that it still has.
        to: Ssn,
    },
    /// Free the records to `peer` from `first` to `last`: no recovery will ask for them.
    Free {
        /// Receiver of the messages.
        peer: Rank,
        /// First record to free.
        first: Ssn,
        /// Last record to free.
        last: Ssn,
    },
    /// Transmit the records after `after`, up to `upto`, to this incarnation of `peer`; [`Ssn::MAX`] is without end.
    /// Replaces the earlier position.
    Replay {
        /// Destination.
        peer: Rank,
        /// Incarnation of the peer.
        incarnation: Incarnation,
        /// Last record that is not transmitted.
        after: Ssn,
        /// Last record that is transmitted.
        upto: Ssn,
    },
    /// Continue the transmission to `peer` up to `upto` from its present position (Guermouche 2011, Figure 3, line 72:
    /// the next phase is released).
    Extend {
        /// Destination.
        peer: Rank,
        /// Last record that is transmitted.
        upto: Ssn,
    },
    /// Present held messages again and transmit held records.
    Resume,
    /// Drop recorded choices numbered below `before`.
    DiscardChoices {
        /// First number that is kept.
        before: u64,
    },
    /// Record a delivery, later than a correct rule does.
    KeepDelivery {
        /// Record of the delivery.
        record: ChoiceRecord,
    },
    /// Drop recorded deliveries numbered below `before`.
    DiscardDeliveries {
        /// First number that is kept.
        before: u64,
    },
    /// Durably discard this rank's checkpoints outside `first..=last`. [`Epoch::FIRST`] as `first` keeps the start.
    KeepCheckpoints {
        /// Oldest checkpoint that is kept.
        first: Epoch,
        /// Newest checkpoint that is kept.
        last: Epoch,
    },
    /// Roll this living rank back to the checkpoint that began `epoch`, or to the start if that is [`Epoch::FIRST`].
    /// [`SimProtocol::on_rolled_back`] is called afterwards. Connections stay, unless the rule
    /// [reconnects](SimProtocol::RECONNECTS). Later checkpoints belong to an undone past: they have to be discarded
    /// with [`Action::KeepCheckpoints`] before this rank can die again.
    RollBack {
        /// Epoch that the checkpoint began.
        epoch: Epoch,
    },
    /// Release the memory of the records to `peer` from `first` to `last`: they have been received, and whenever the
    /// receiver loses them, their sender rolls back and sends them again. A later replay skips them.
    Release {
        /// Receiver of the messages.
        peer: Rank,
        /// First record.
        first: Ssn,
        /// Last record.
        last: Ssn,
    },
    /// This rank has sent its table to the coordinator: a recovery line computed from now on uses it.
    ReportTable,
    /// The coordinator has computed a recovery line.
    SetLine {
        /// By rank: epoch that it rolls back to; `None` if it stays.
        line: Vec<Option<Epoch>>,
    },
}

/// List to which a protocol appends its actions.
pub type Actions = Vec<Action>;

/// Refusal of an event by a protocol, in its own words. In a simulation all parties keep the rules, so it is always a
/// violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl<E: std::error::Error> From<E> for Refusal {
    fn from(error: E) -> Refusal {
        Refusal(error.to_string())
    }
}

/// Result of a Hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloOutcome {
    /// Accepted.
    Accepted,
    /// Sent by a dead process: close the connection.
    Dead,
}

/// Part of its predecessor's execution that a replacement has to repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// Nothing: peers may roll back too, and messages may be sent anew.
    Free,
    /// Its sends: destinations, order and bytes.
    Sends,
    /// Its sends, and the order in which it receives.
    SendsAndReceives,
}

/// Records that the lanes may still hold at the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// No record that the receiver's oldest restorable checkpoint covers, but `slack` more for each restart or rollback
    /// of the lane's rank: a rule may learn that a message is covered before the log has it again.
    UntilCovered {
        /// Number of records.
        slack: u64,
    },
    /// Each message at most once.
    AllSent,
    /// Of the messages that the receiver's oldest restorable checkpoint doesn't cover: those received in a later epoch
    /// than sent in, or as a replay of such a message, and those whose receipt the sender doesn't know.
    Logged,
}

impl Retention {
    /// Returns `true` if the receiver's checkpoints must cover what is freed.
    pub(crate) const fn is_bounded(self) -> bool {
        !matches!(self, Retention::AllSent)
    }
}

/// Sizes of a rank's tables about one peer, for rules that have them (Guermouche 2011, Figure 3, lines 3 to 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSizes {
    /// Rows of SPE: the epochs of this rank in which it sent to the peer.
    pub spe: u64,
    /// Messages in NonAck: not known to be received, and not known to be logged.
    pub unacknowledged: u64,
    /// Rows of RPP: receipts of the peer's messages.
    pub rpp: u64,
    /// Runs of the peer's messages that were received in one epoch, as far as the acknowledgements know them.
    pub receive_epochs: u64,
}

/// State of one process under a protocol.
pub trait SimProtocol: Sized {
    /// `true` if there is a process apart from the ranks. It has no program, no lanes and no checkpoints, and can die
    /// like any other.
    const COORDINATOR: bool = false;

    /// Records that the lanes may hold at the end.
    const RETENTION: Retention;

    /// Part of its predecessor's execution that a replacement repeats.
    const REPETITION: Repetition = Repetition::Free;

    /// `true` if connections are as `counterfoil_protocols::api` demands. Nothing goes to a rank on a new connection
    /// before its Hello was handled there, and then nothing of an older one arrives any more. [`Action::RollBack`]
    /// drops messages that are held or under way to this rank, and reconnects it with all others. A lane that survives
    /// its process is cut to its end in the restored checkpoint: later records are sent again.
    const RECONNECTS: bool = false;

    /// Returns `true` if this mistake can change anything in a run of this rule. Of the mistakes of rules, only its own
    /// can.
    fn is_affected_by(canary: Canary) -> bool {
        !canary.is_of_a_rule()
    }

    /// Creates a process that has done nothing yet.
    ///
    /// # Errors
    /// [`Refusal`], as for all of these methods.
    fn start(settings: ProcessSettings) -> Result<Self, Refusal>;

    /// Returns a checkpoint of the start, if the rule has one; it is durable at once. Asked of the first process of a
    /// rank only; the epoch is its name in [`Action::RollBack`].
    fn first_checkpoint(&self) -> Option<Snapshot> {
        None
    }

    /// Returns the incarnation in this process's Hellos. `process`: number of replacements.
    fn incarnation(&self, process: Incarnation) -> Incarnation {
        process
    }

    /// Returns `false` while the application is blocked.
    fn is_running(&self) -> bool {
        true
    }

    /// Returns `true` while a recovery is under way, as far as this process knows. None may be when a run ends.
    fn is_recovering(&self) -> bool {
        false
    }

    /// Returns the sizes of the tables about a peer; `None` if the rule has none that the oracles know, or none about
    /// this peer.
    fn table_sizes(&self, peer: Rank) -> Option<TableSizes> {
        let _ = peer;
        None
    }

    /// Returns `true` if the application should take a checkpoint where it is. Otherwise it goes on without.
    fn wants_checkpoint(&self) -> bool {
        true
    }

    /// Begins the collection of this number in the coordinator; `None` at the end, when nothing moves any more. Returns
    /// `true` if it did.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_collect(&mut self, number: Option<u32>, actions: &mut Actions) -> Result<bool, Refusal> {
        let _ = (number, actions);
        Ok(false)
    }

    /// Restores a process that replaces a dead one.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_restart(&mut self, storage: StableStorage<'_>, actions: &mut Actions) -> Result<(), Refusal>;

    /// Returns the first frame for a new connection.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_connect(&mut self, peer: Party) -> Result<Vec<u8>, Refusal>;

    /// Handles the first frame of a peer.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_hello(&mut self, peer: Party, hello: &[u8], actions: &mut Actions) -> Result<HelloOutcome, Refusal>;

    /// Handles a send of the application.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_send(&mut self, envelope: &Envelope, actions: &mut Actions) -> Result<Outgoing, Refusal>;

    /// Refreshes a record that goes on the wire, for the first time or again.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_transmit(&mut self, header: &mut WireHeader, actions: &mut Actions) -> Result<(), Refusal>;

    /// Judges a message that has arrived.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_arrival(&mut self, header: &WireHeader, actions: &mut Actions) -> Result<Incoming, Refusal>;

    /// Reports a message that is deferred because an earlier one of the same sender is held; it will be presented
    /// later.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_deferred(&mut self, header: &WireHeader, actions: &mut Actions) -> Result<(), Refusal> {
        let _ = (header, actions);
        Ok(())
    }

    /// Handles a frame that isn't a message.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_control(&mut self, from: Party, bytes: &[u8], actions: &mut Actions) -> Result<(), Refusal>;

    /// Begins a receive that can take one of several messages. `None` if the rule doesn't care which. Not called in a
    /// program that [doesn't name](super::Schedule::unnamed) such receives.
    fn on_choice(&mut self) -> Option<NextChoice> {
        None
    }

    /// Takes the outcome of that receive. A returned record is stored before the application sees the message.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_chosen(&mut self, choice: Determinant) -> Result<Option<ChoiceRecord>, Refusal> {
        let _ = choice;
        Ok(None)
    }

    /// Takes a checkpoint of the application.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_checkpoint(&mut self, actions: &mut Actions) -> Result<Snapshot, Refusal>;

    /// Reports that the checkpoint that began `epoch` is durable. The simulator keeps all older ones until
    /// [`Action::KeepCheckpoints`].
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_durable(&mut self, epoch: Epoch, actions: &mut Actions) -> Result<(), Refusal>;

    /// Reports the death of a peer.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_failure(&mut self, peer: Party, actions: &mut Actions) -> Result<(), Refusal>;

    /// Reports that [`Action::RollBack`] is carried out; `None` if it rolled back to the start. `oldest` as in
    /// [`StableStorage`].
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_rolled_back(&mut self, tables: Option<&[u8]>, oldest: Epoch, actions: &mut Actions) -> Result<(), Refusal> {
        let _ = (tables, oldest, actions);
        Err(Refusal("this protocol never rolls a living rank back".into()))
    }
}
