//! Effects: requests from a protocol to its driver.

use counterfoil_ack_piggyback::{Ack, WireHeader};
use counterfoil_log_core::{Epoch, Incarnation, Phase, Rank, Ssn};

use super::CollectiveCall;

/// Request to the driver.
///
/// Effects are carried out in the order in which they were polled.
///
/// A driver unable to carry one out must stop with an error rather than go on without it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Effect {
    /// Send a frame other than a message. It isn't logged; if `to` is unreachable it may be dropped, because its
    /// content is repeated when the connection is made anew.
    Transmit {
        /// Destination.
        to: Party,
        /// Complete frame header.
        header: WireHeader,
        /// Body; its length is in the header.
        body: Vec<u8>,
    },
    /// `peer` has received all messages up to `ack.ssn`; those acknowledged for the first time (or again, after
    /// [`Effect::ReceiverRolledBack`]) were received in `ack.epoch`.
    Acknowledged {
        /// The receiver.
        peer: Rank,
        /// SSN and receive epoch.
        ack: Ack,
        /// Their send phase.
        phase: Phase,
        /// `false`: the rule no longer needs the records; release them whatever `Options::keep` says.
        keep: bool,
    },
    /// `peer` has lost the messages acknowledged beyond `to`: these records are unacknowledged again.
    ReceiverRolledBack {
        /// Receiver, now in a new incarnation.
        peer: Rank,
        /// Last message still held by it.
        to: Ssn,
    },
    /// No recovery will ask for messages to `peer` up to `upto` again: they may be collected.
    Covered {
        /// The receiver.
        peer: Rank,
        /// Epoch begun by the receiver's durable checkpoint.
        epoch: Epoch,
        /// Last message in this checkpoint.
        upto: Ssn,
    },
    /// Transmit to `peer` the records after `after`, in order, and go on with new ones if `upto` is [`Ssn::MAX`].
    /// Replaces the earlier transmit position for `peer`. `after` is never below what was [`Effect::Covered`]; if it is
    /// beyond what this execution has sent so far, the records up to it are not transmitted.
    ///
    /// Applies to the connection with the Hello. On any other connection, to another incarnation of the peer (with its
    /// Hello still under way, or its death not yet noticed), nothing may be transmitted.
    Replay {
        /// Destination.
        peer: Rank,
        /// The peer's incarnation.
        incarnation: Incarnation,
        /// Last SSN *not* sent.
        after: Ssn,
        /// Last SSN sent.
        upto: Ssn,
    },
    /// Present held messages again, transmit held records, and ask again for the plan of a collective held or running
    /// natively.
    Resume,
    /// Drop recorded choices numbered below `before` from the local log: they won't be needed again, nor will anything
    /// else in the log from before the checkpoint, except kept entries ([`Effect::KeepEntry`]).
    DiscardChoices {
        /// First number kept.
        before: u64,
        /// Epoch begun by the checkpoint after this many choices.
        epoch: Epoch,
    },
    /// Drop recorded deliveries ([`EntryKind::Delivery`]) numbered below `before` from the local log: they won't be
    /// needed again.
    DiscardDeliveries {
        /// First number kept.
        before: u64,
    },
    /// Take a checkpoint as soon as possible, even while the application waits in a call (which it repeats when
    /// restored), and regardless of [`super::Protocol::wants_checkpoint`]. Not in the midst of a natively run
    /// collective.
    TakeCheckpoint,
    /// Keep these bytes in the local log.
    KeepEntry {
        /// Entry key.
        entry: EntryKey,
        /// Entry content.
        bytes: Vec<u8>,
    },
    /// Send a copy of a local-log entry to a peer, which gets it in [`super::Protocol::handle_entry`] (ULML, section
    /// 2.2). It may be dropped like the frame of an [`Effect::Transmit`].
    SendEntry {
        /// Destination.
        to: Rank,
        /// Entry key.
        entry: EntryKey,
    },
    /// Durably drop the entries of this kind numbered `first..=last` from the local log: no recovery needs them, or
    /// they belong to an undone timeline. Others stay, regardless of checkpoints.
    DiscardEntries {
        /// Entry kind.
        kind: EntryKind,
        /// Lowest number dropped.
        first: u64,
        /// Highest number dropped.
        last: u64,
    },
    /// Take part once more in this call, made before the restored state, with dummy arguments, before the program goes
    /// on: others repeat it (C3, section 5.3). The same events are reported as when the program makes a call; the
    /// result is dropped. Only for calls without data flow from this rank.
    RunCollective {
        /// The call.
        call: CollectiveCall,
    },
    /// Make the local log for the checkpoint that began `epoch` durable, then report
    /// [`super::Protocol::handle_log_sealed`].
    SealLog {
        /// Epoch begun by the checkpoint.
        epoch: Epoch,
    },
    /// Durably discard this rank's checkpoints outside `first..=last`.
    KeepCheckpoints {
        /// Oldest checkpoint still needed by a possible recovery.
        first: Epoch,
        /// Newest checkpoint in the current timeline.
        last: Epoch,
    },
    /// Roll back to the checkpoint that began `epoch`: image, lanes, and [`super::Protocol::restore`].
    RollBack {
        /// Epoch begun by the checkpoint.
        epoch: Epoch,
    },
    /// A rank is lost, and the job is started again (Checkpoint-on-Failure, Algorithm 1): no call by the program goes
    /// on, the program saves its state, and the process exits.
    SaveAndExit {
        /// `false`: exit without saving, since the program's state isn't rebuilt.
        saves: bool,
    },
}

/// Control message sender or receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Party {
    /// A rank in the job.
    Rank(Rank),
    /// Separate process needed by some rules: recovery process (Guermouche 2011, Figure 4), initiator (C3).
    Coordinator,
}

impl From<Rank> for Party {
    fn from(rank: Rank) -> Self {
        Party::Rank(rank)
    }
}

/// Local-log entry key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryKey {
    /// Entry kind.
    pub kind: EntryKind,
    /// Entry number within its kind.
    pub number: u64,
}

/// Local-log entry kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EntryKind {
    /// Outcome of a non-deterministic call, numbered by [`super::ChoiceRecord::sequence`].
    Choice = 1,
    /// Delivered message, with its header. On a restart, presented as received and not yet taken.
    Message = 2,
    /// Whole result of a collective.
    Collective = 3,
    /// Private protocol notes.
    Note = 4,
    /// Delivery of a message, without the message: a [`super::ChoiceRecord`] with source and SSN, numbered by its place
    /// in the rank's receive order, from 0 since program start. On a restart, passed to
    /// [`super::Protocol::handle_recovered_delivery`].
    Delivery = 5,
    /// Cancelled receive, numbered by its place among the rank's requests, from 0 since program start. On a restart,
    /// the runtime lets it take no message.
    Cancelled = 6,
    /// Run of calls without a match: numbered by the first like [`EntryKind::Choice`], with the call count (u64,
    /// little-endian). On a restart, the runtime lets them find nothing.
    Nothing = 7,
    /// Clock reading with a new value, numbered since the checkpoint that began the epoch: clock (u8), epoch (u32) and
    /// value (u64), little-endian. On a restart, the runtime repeats it.
    Reading = 8,
}
