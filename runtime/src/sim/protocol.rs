//! What a protocol has to be able to do to run in the simulator.
//!
//! The simulator owns what belongs to no protocol: programs, lanes, checkpoints, connections, failures, time. It tells
//! the state machine of each process what happens, and carries out the [`Action`]s that it asks for, in order, before
//! anything else happens. Events and verdicts are those of `counterfoil_protocols::frame`; where that frame speaks of
//! ranks this one speaks of a [`Party`], because some rules have a process apart from the ranks.
//!
//! # What the simulator promises
//!
//! - [`SimProtocol::start`], then [`SimProtocol::on_restart`] if the rank has been there before, then
//!   [`SimProtocol::on_connect`] for each party that lives. On a connection, [`SimProtocol::on_hello`] comes first.
//! - Frames of one connection arrive in order. Those that a dead incarnation has left under way may arrive before or
//!   after [`SimProtocol::on_failure`], and before, between or after those of its successor.
//! - [`SimProtocol::on_failure`] comes once for each death, at the latest before the successor is connected.
//! - The application takes no step while [`SimProtocol::is_running`] says no, and passes over a checkpoint that
//!   [`SimProtocol::wants_checkpoint`] refuses.
//! - A lane is transmitted from only after [`Action::Replay`] has said from where, after each new connection and each
//!   [`Action::RollBack`], and only to the incarnation that was named.
//! - A checkpoint has the application's state, the protocol's tables, what was received and not taken, and the lanes,
//!   all of the moment of [`SimProtocol::on_checkpoint`]. Messages that are held are not in it: the protocol has noted
//!   nothing of them.

use counterfoil::ack::WireHeader;
use counterfoil::{Determinant, Envelope, Epoch, Incarnation, Rank, Ssn};
use counterfoil_protocols::frame::{ChoiceRecord, Incoming, NextChoice, Outgoing, Party, Snapshot};

use super::schedule::Canary;

/// Who a process is.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    /// The rank, or the coordinator.
    pub party: Party,
    /// How many ranks there are.
    pub ranks: u32,
    /// How often this party has been replaced.
    pub incarnation: Incarnation,
    /// Into how many clusters the ranks are divided (Guermouche 2011, section V.E.3); 0 is no division. Rules without clusters
    /// ignore it.
    pub clusters: u32,
    /// The epoch of the oldest checkpoint that is still there; `None` if there is none.
    pub oldest: Option<Epoch>,
    /// A mistake that the rule itself is to make, if the schedule names one of its own.
    pub canary: Option<Canary>,
}

/// What a replacement finds in stable storage.
#[derive(Clone, Copy, Debug)]
pub struct Past<'a> {
    /// The tables of the newest durable checkpoint.
    pub tables: Option<&'a [u8]>,
    /// The outcomes that were recorded, by number.
    pub choices: &'a [ChoiceRecord],
    /// The deliveries that were recorded, by number.
    pub deliveries: &'a [ChoiceRecord],
}

/// Something to do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Action {
    /// Send a frame that isn't a message. Lost if there is no connection.
    Control {
        /// To whom.
        to: Party,
        /// What; its meaning is the protocol's own.
        bytes: Vec<u8>,
    },
    /// `peer` has received all up to `upto`.
    Acknowledged {
        /// The receiver.
        peer: Rank,
        /// The last that it has.
        upto: Ssn,
    },
    /// What `peer` had acknowledged beyond `to` it has forgotten.
    ReceiverRolledBack {
        /// The receiver.
        peer: Rank,
        /// The last that it still has.
        to: Ssn,
    },
    /// Free the records to `peer` from `first` to `last`: no recovery will ask for them.
    Free {
        /// The receiver.
        peer: Rank,
        /// The first to free.
        first: Ssn,
        /// The last to free.
        last: Ssn,
    },
    /// Transmit to this incarnation of `peer` what comes after `after`, up to `upto`; [`Ssn::MAX`] is without end.
    /// Takes the place of what was said before.
    Replay {
        /// To whom.
        peer: Rank,
        /// To which incarnation.
        incarnation: Incarnation,
        /// The last that is not transmitted.
        after: Ssn,
        /// The last that is.
        upto: Ssn,
    },
    /// Transmission to `peer` goes on up to `upto`, from wherever it is (Guermouche 2011, Figure 3, line 72: the next
    /// phase is released).
    Extend {
        /// To whom.
        peer: Rank,
        /// The last that is transmitted.
        upto: Ssn,
    },
    /// What was held may go on: held messages are presented again, held records transmitted.
    Resume,
    /// Drop recorded choices numbered below `before`.
    DiscardChoices {
        /// The first that is kept.
        before: u64,
    },
    /// Record a delivery, later than a good rule does.
    KeepDelivery {
        /// Which.
        record: ChoiceRecord,
    },
    /// Drop recorded deliveries numbered below `before`.
    DiscardDeliveries {
        /// The first that is kept.
        before: u64,
    },
    /// Discard, durably, this rank's checkpoints outside `first..=last`. [`Epoch::FIRST`] as `first` keeps the start.
    KeepCheckpoints {
        /// The oldest that is kept.
        first: Epoch,
        /// The newest that is kept.
        last: Epoch,
    },
    /// Go back to the checkpoint that began `epoch`, or to the start if that is [`Epoch::FIRST`], though nobody died
    /// here. When this is done, [`SimProtocol::on_rolled_back`] is called. Connections stay, unless the rule
    /// [reconnects](SimProtocol::RECONNECTS). Later checkpoints belong to a past that is undone now: they have to be
    /// discarded with [`Action::KeepCheckpoints`] before this rank can die again.
    RollBack {
        /// Which checkpoint.
        epoch: Epoch,
    },
    /// The records to `peer` from `first` to `last` have been received, and whoever would lose them sends them again with its
    /// sender: their memory may be used. A later replay passes over them.
    Release {
        /// The receiver.
        peer: Rank,
        /// The first.
        first: Ssn,
        /// The last.
        last: Ssn,
    },
    /// This rank has told the coordinator what it knows. A recovery line that is drawn now goes by it.
    Testify,
    /// The coordinator has drawn a recovery line.
    DrawLine {
        /// By rank: the epoch that it goes back to; `None`: it stays.
        line: Vec<Option<Epoch>>,
    },
}

/// Where a protocol puts what is to be done.
pub type Actions = Vec<Action>;

/// A protocol's refusal of an event, in its own words. In a simulation all parties keep the rules, so this is always a
/// violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl<E: std::error::Error> From<E> for Refusal {
    fn from(error: E) -> Refusal {
        Refusal(error.to_string())
    }
}

/// What comes of a Hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// The peer is met.
    Met,
    /// Nobody lives at its other end: close the connection.
    Dead,
}

/// What a replacement has to do as its predecessor had done it, as far as that had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// Nothing: peers may go back too, and messages be sent anew.
    Free,
    /// What it sends: to whom, in which order, with which bytes.
    Sends,
    /// That, and in which order it receives.
    SendsAndReceives,
}

/// What the lanes may still hold when a run has come to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// Nothing that the receiver's oldest restorable checkpoint covers. For each time that the lane's rank went back,
    /// this many records more: a rule may hear that what it sends again is covered before the log has it.
    UntilCovered {
        /// How many.
        slack: u64,
    },
    /// Each message at most once.
    AllSent,
    /// Of what the receiver's oldest restorable checkpoint doesn't cover: what was received in a later epoch than it was sent
    /// in, or as a replay of such a message, and what its sender has heard nothing about.
    Logged,
}

impl Retention {
    /// Whether what is freed is to be covered by the receiver's checkpoints.
    pub(super) const fn is_bounded(self) -> bool {
        !matches!(self, Retention::AllSent)
    }
}

/// How large a rank's tables about one peer are, for rules that have them (Guermouche 2011, Figure 3, lines 3 to 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSizes {
    /// Rows of SPE: the epochs of this rank in which it sent to the peer.
    pub spe: u64,
    /// Messages in NonAck: not known to be received, and not known to be logged.
    pub unacknowledged: u64,
    /// Rows of RPP: how this rank received the peer's messages.
    pub rpp: u64,
}

/// One process's state under a protocol.
pub trait SimProtocol: Sized {
    /// Whether there is a process apart from the ranks. It has no program, no lanes and no checkpoints, and can die as
    /// any other.
    const COORDINATOR: bool = false;

    /// What the lanes may hold at the end.
    const RETENTION: Retention;

    /// What a replacement repeats.
    const REPETITION: Repetition = Repetition::Free;

    /// Whether connections are what the protocols' frame says. Nothing goes to a rank on a new connection before its Hello
    /// was heard there, and then nothing of an older one arrives any more. [`Action::RollBack`] drops what is held and what is
    /// under way to this rank, and connects it with all others anew. A lane that survives its process is cut to the end that
    /// it has in the checkpoint that is restored: what comes after it is sent again.
    const RECONNECTS: bool = false;

    /// Whether this mistake can change anything in a run of this rule. Of those that rules have themselves, only its own can.
    fn heeds(canary: Canary) -> bool {
        !canary.is_of_a_rule()
    }

    /// A process that has done nothing yet.
    ///
    /// # Errors
    /// As all of these methods: what the protocol can't accept.
    fn start(seat: Seat) -> Result<Self, Refusal>;

    /// A checkpoint of the start, if the rule has one; it is durable at once. Asked for once, of the first process of a
    /// rank; the epoch is its name in [`Action::RollBack`].
    fn first_checkpoint(&self) -> Option<Snapshot> {
        None
    }

    /// Under which incarnation this process presents itself. `process`: how often it was replaced.
    fn incarnation(&self, process: Incarnation) -> Incarnation {
        process
    }

    /// Whether the application may go on.
    fn is_running(&self) -> bool {
        true
    }

    /// Whether a recovery is under way, as far as this process knows. None may be when a run ends.
    fn is_recovering(&self) -> bool {
        false
    }

    /// How large the tables about a peer are; `None` if the rule has none that the oracles know, or none about this peer.
    fn table_sizes(&self, peer: Rank) -> Option<TableSizes> {
        let _ = peer;
        None
    }

    /// The application is where it can take a checkpoint: should it? If not, it goes on without.
    fn wants_checkpoint(&self) -> bool {
        true
    }

    /// Only of the coordinator: begins to find out what may be freed, for the `number`th time; `None` at the end, when all
    /// has come to rest. Says whether it did.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_collect(&mut self, number: Option<u32>, actions: &mut Actions) -> Result<bool, Refusal> {
        let _ = (number, actions);
        Ok(false)
    }

    /// This process takes the place of one that died.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_restart(&mut self, past: Past<'_>, actions: &mut Actions) -> Result<(), Refusal>;

    /// What to say first on a new connection.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_connect(&mut self, peer: Party) -> Result<Vec<u8>, Refusal>;

    /// What a peer said first.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_hello(&mut self, peer: Party, hello: &[u8], actions: &mut Actions) -> Result<Greeting, Refusal>;

    /// The application sends.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_send(&mut self, envelope: &Envelope, actions: &mut Actions) -> Result<Outgoing, Refusal>;

    /// A record goes on the wire, for the first time or again.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_transmit(&mut self, header: &mut WireHeader, actions: &mut Actions) -> Result<(), Refusal>;

    /// A message has arrived.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_arrival(&mut self, header: &WireHeader, actions: &mut Actions) -> Result<Incoming, Refusal>;

    /// A message has arrived behind one of the same sender that is held, and waits with it: it will be presented later.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_waiting(&mut self, header: &WireHeader, actions: &mut Actions) -> Result<(), Refusal> {
        let _ = (header, actions);
        Ok(())
    }

    /// A frame that isn't a message has arrived.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_control(&mut self, from: Party, bytes: &[u8], actions: &mut Actions) -> Result<(), Refusal>;

    /// A receive that can take one of several messages begins. `None`: the rule doesn't care which. Not asked in a program that
    /// [doesn't name](super::Schedule::unnamed) such receives.
    fn on_choice(&mut self) -> Option<NextChoice> {
        None
    }

    /// Its outcome. What is returned is recorded before the application sees the message.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_chosen(&mut self, choice: Determinant) -> Result<Option<ChoiceRecord>, Refusal> {
        let _ = choice;
        Ok(None)
    }

    /// The application takes a checkpoint.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_checkpoint(&mut self, actions: &mut Actions) -> Result<Snapshot, Refusal>;

    /// The checkpoint that began `epoch` is durable. The simulator keeps all older ones until
    /// [`Action::KeepCheckpoints`].
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_durable(&mut self, epoch: Epoch, actions: &mut Actions) -> Result<(), Refusal>;

    /// A peer has died.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_failure(&mut self, peer: Party, actions: &mut Actions) -> Result<(), Refusal>;

    /// What [`Action::RollBack`] asked for is done; `None` if it went back to the start.
    ///
    /// # Errors
    /// [`Refusal`].
    fn on_rolled_back(&mut self, tables: Option<&[u8]>, actions: &mut Actions) -> Result<(), Refusal> {
        let _ = (tables, actions);
        Err(Refusal("this protocol never rolls a living rank back".into()))
    }
}
