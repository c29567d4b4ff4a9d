//! Effects: requests of a protocol to its driver.

use counterfoil_ack_piggyback::{Ack, WireHeader};
use counterfoil_log_core::{Epoch, Incarnation, Phase, Rank, Ssn};

use super::CollectiveCall;

/// Request to the driver. Effects are carried out in the order in which they were polled.
///
/// A driver that can't carry one out must stop with an error rather than go on without it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Effect {
    /// Send a frame that isn't a message. It isn't logged; if `to` is unreachable it may be dropped, because its
    /// content is repeated when the connection is made anew.
    Transmit {
        /// Destination.
        to: Party,
        /// Complete header of the frame.
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
        /// Phase that they were sent in.
        phase: Phase,
        /// `false`: the rule no longer needs the records; release them whatever `Options::keep` says.
        keep: bool,
    },
    /// `peer` has lost the messages that it had acknowledged beyond `to`: these records are unacknowledged again.
    ReceiverRolledBack {
        /// Receiver, now in a new incarnation.
        peer: Rank,
        /// Last message that it still has.
        to: Ssn,
    },
    /// No recovery will ask for messages to `peer` up to `upto` again: they may be collected.
    Covered {
        /// The receiver.
        peer: Rank,
        /// Epoch that the receiver's durable checkpoint began.
        epoch: Epoch,
        /// Last message that is in that checkpoint.
        upto: Ssn,
    },
    /// Transmit to `peer` the records after `after`, in order, and go on with new ones if `upto` is [`Ssn::MAX`].
    /// Replaces the earlier transmit position for `peer`. `after` is never below what was [`Effect::Covered`]; if it is
    /// beyond what this execution has sent so far, the records up to it are not transmitted.
    ///
    /// Applies to the connection that the Hello came on. On any other connection, to another incarnation of the peer
    /// (whose Hello may still be under way, or whose death is not yet noticed), nothing may be transmitted.
    Replay {
        /// Destination.
        peer: Rank,
        /// Incarnation of the peer.
        incarnation: Incarnation,
        /// Last SSN that is *not* sent.
        after: Ssn,
        /// Last SSN that is sent.
        upto: Ssn,
    },
    /// Present held messages again, transmit held records, and ask for the plan of a collective again that is held or
    /// runs natively.
    Resume,
    /// Drop recorded choices numbered below `before` from the local log: they won't be needed again, and nor will
    /// anything else that the log has from before the checkpoint, but for entries that are kept
    /// ([`Effect::KeepEntry`]).
    DiscardChoices {
        /// First number that is kept.
        before: u64,
        /// Epoch that the checkpoint began at which so many choices were made.
        epoch: Epoch,
    },
    /// Drop recorded deliveries ([`EntryKind::Delivery`]) numbered below `before` from the local log: they won't be
    /// needed again.
    DiscardDeliveries {
        /// First number that is kept.
        before: u64,
    },
    /// Take a checkpoint as soon as possible, even while the application waits in a call (which it makes again when it
    /// is restored), and whatever [`super::Protocol::wants_checkpoint`] says. Not in the midst of a collective that
    /// runs natively.
    TakeCheckpoint,
    /// Keep these bytes in the local log.
    KeepEntry {
        /// Key of the entry.
        entry: EntryKey,
        /// Content of the entry.
        bytes: Vec<u8>,
    },
    /// Send a copy of an entry of the local log to a peer, which gets it in [`super::Protocol::handle_entry`] (ULML,
    /// section 2.2). It may be dropped like the frame of an [`Effect::Transmit`].
    SendEntry {
        /// Destination.
        to: Rank,
        /// Key of the entry.
        entry: EntryKey,
    },
    /// Durably drop the entries of this kind numbered `first..=last` from the local log: no recovery needs them, or
    /// they belong to an undone timeline. Others stay, whatever checkpoints are taken.
    DiscardEntries {
        /// Kind of the entries.
        kind: EntryKind,
        /// Lowest number that is dropped.
        first: u64,
        /// Highest number that is dropped.
        last: u64,
    },
    /// Take part once more in this call, which the restored program is beyond, with dummy arguments, before the program
    /// goes on: others repeat it (C3, section 5.3). The same events are reported as when the program makes a call; the
    /// result is dropped. Only for calls in which no data flows from this rank.
    RunCollective {
        /// The call.
        call: CollectiveCall,
    },
    /// Make the local log of the checkpoint that began `epoch` durable, then report
    /// [`super::Protocol::handle_log_sealed`].
    SealLog {
        /// Epoch that the checkpoint began.
        epoch: Epoch,
    },
    /// Durably discard this rank's checkpoints outside `first..=last`.
    KeepCheckpoints {
        /// Oldest checkpoint that a recovery may still need.
        first: Epoch,
        /// Newest checkpoint of the current timeline.
        last: Epoch,
    },
    /// Roll back to the checkpoint that began `epoch`: image, lanes, and [`super::Protocol::restore`].
    RollBack {
        /// Epoch that the checkpoint began.
        epoch: Epoch,
    },
    /// A rank is lost, and the job is started again (Checkpoint-on-Failure, Algorithm 1): no call of the program goes
    /// on, the program saves its state, and the process exits.
    SaveAndExit {
        /// `false`: exit without saving, since the program's state isn't rebuilt.
        saves: bool,
    },
}

/// Sender or receiver of a control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Party {
    /// A rank of the job.
    Rank(Rank),
    /// Process apart from the ranks that some rules need: recovery process (Guermouche 2011, Figure 4), initiator (C3).
    Coordinator,
}

impl From<Rank> for Party {
    fn from(rank: Rank) -> Self {
        Party::Rank(rank)
    }
}

/// Key of an entry in the local log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryKey {
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Number of the entry within its kind.
    pub number: u64,
}

/// Kind of an entry in the local log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EntryKind {
    /// Outcome of a non-deterministic call, numbered by [`super::ChoiceRecord::sequence`].
    Choice = 1,
    /// Delivered message, with its header. On a restart, presented as received and not yet taken.
    Message = 2,
    /// Whole result of a collective.
    Collective = 3,
    /// Private notes of the protocol.
    Note = 4,
    /// Delivery of a message, without the message: a [`super::ChoiceRecord`] of source and SSN, numbered by its place
    /// in the rank's receive order, from 0 since the start of the program. On a restart, passed to
    /// [`super::Protocol::handle_recovered_delivery`].
    Delivery = 5,
    /// Receive that was cancelled, numbered by its place among the rank's requests, from 0 since the start of the
    /// program. On a restart, the runtime lets it take no message.
    Cancelled = 6,
    /// Run of calls that found nothing: numbered by the first as [`EntryKind::Choice`] is, with the number of calls
    /// (u64, little-endian). On a restart, the runtime lets them find nothing.
    Nothing = 7,
    /// Reading of a clock that has a new value, numbered since the checkpoint that began the epoch: clock (u8), epoch
    /// (u32) and value (u64), little-endian. On a restart, the runtime repeats it.
    Reading = 8,
}
