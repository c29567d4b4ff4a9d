//! What a protocol asks its driver to do.

use counterfoil_ack_piggyback::{Ack, WireHeader};
use counterfoil_log_core::{Epoch, Incarnation, Phase, Rank, Ssn};

/// Something to do. Effects are carried out in the order in which they were polled.
///
/// A driver that meets one that it can't carry out must stop with an error, not go on without.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Effect {
    /// Send a frame that isn't a message. It isn't logged; if `to` can't be reached it may be dropped, because whatever
    /// it says is said again when the connection is made anew.
    Transmit {
        /// To whom.
        to: Party,
        /// The frame's header, complete.
        header: WireHeader,
        /// The body; its length is in the header.
        body: Vec<u8>,
    },
    /// `peer` has received all up to `ack.ssn`; those that this acknowledges for the first time (or again, after
    /// [`Effect::ReceiverRolledBack`]) were received in `ack.epoch`.
    Acknowledged {
        /// The receiver.
        peer: Rank,
        /// Number and receive epoch.
        ack: Ack,
        /// The phase that they were sent in.
        phase: Phase,
        /// `false`: the rule has no more use for them, release them whatever `Options::keep` says.
        keep: bool,
    },
    /// What `peer` had acknowledged beyond `to` it has forgotten: these records are unacknowledged again.
    ReceiverRolledBack {
        /// The receiver, now in a new incarnation.
        peer: Rank,
        /// The last message that it still has.
        to: Ssn,
    },
    /// No recovery will ask for messages to `peer` up to `upto` again: they may be collected.
    Covered {
        /// The receiver.
        peer: Rank,
        /// The epoch that the receiver's durable checkpoint began.
        epoch: Epoch,
        /// The last message that is in that checkpoint.
        upto: Ssn,
    },
    /// Transmit to `peer` the records after `after`, in order, and go on with new ones if `upto` is [`Ssn::MAX`]. Replaces
    /// the position that transmission to `peer` had before. `after` is never below what was [`Effect::Covered`]; it may be beyond
    /// what this execution has sent so far, and then what comes before it is not transmitted.
    ///
    /// This is about the connection that the Hello came on. Where there is another one, to another incarnation of the peer
    /// (whose Hello may still be under way, or whose death was not noticed yet), nothing may be transmitted on that.
    Replay {
        /// To whom.
        peer: Rank,
        /// To which incarnation.
        incarnation: Incarnation,
        /// The last number that is *not* sent.
        after: Ssn,
        /// The last number that is sent.
        upto: Ssn,
    },
    /// What was held may go on: present held messages again, transmit held records.
    Resume,
    /// Recorded choices numbered below `before` won't be asked for again: drop them from the local log.
    DiscardChoices {
        /// The first that is kept.
        before: u64,
    },
    /// Recorded deliveries ([`EntryKind::Delivery`]) numbered below `before` won't be asked for again: drop them from the local
    /// log.
    DiscardDeliveries {
        /// The first that is kept.
        before: u64,
    },
    /// Take a checkpoint at the next point where the application can.
    TakeCheckpoint,
    /// Keep these bytes in the local log.
    KeepEntry {
        /// Under which key.
        entry: EntryKey,
        /// What.
        bytes: Vec<u8>,
    },
    /// Send a copy of an entry of the local log to a peer, as a control message (ULML, section 2.2).
    SendEntry {
        /// To whom.
        to: Rank,
        /// Which.
        entry: EntryKey,
    },
    /// Make the local log of the checkpoint that began `epoch` durable, then report [`super::Protocol::handle_log_sealed`].
    SealLog {
        /// Which checkpoint it belongs to.
        epoch: Epoch,
    },
    /// Discard, durably, this rank's checkpoints outside `first..=last`.
    KeepCheckpoints {
        /// The oldest that a recovery may still need.
        first: Epoch,
        /// The newest that belongs to the living timeline.
        last: Epoch,
    },
    /// Go back to the checkpoint that began `epoch`: image, lanes, and [`super::Protocol::restore`].
    RollBack {
        /// Which checkpoint.
        epoch: Epoch,
    },
    /// Save the application's image now, exit, and expect to be loaded again (Checkpoint-on-Failure, Algorithm 1).
    SaveAndExit,
}

/// Who sends or receives a control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Party {
    /// A rank of the job.
    Rank(Rank),
    /// The process apart from the ranks that some rules need: recovery process (Guermouche 2011, Figure 4), initiator (C3).
    Coordinator,
}

impl From<Rank> for Party {
    fn from(rank: Rank) -> Self {
        Party::Rank(rank)
    }
}

/// Names an entry of the local log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EntryKey {
    /// What it is.
    pub kind: EntryKind,
    /// Which one of its kind.
    pub number: u64,
}

/// What an entry of the local log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EntryKind {
    /// The outcome of a non-deterministic call, numbered by [`super::ChoiceRecord::sequence`].
    Choice = 1,
    /// A message that was delivered, with its header. On a restart, presented as received and not yet taken.
    Message = 2,
    /// The result of a collective, whole.
    Collective = 3,
    /// The protocol's own notes.
    Note = 4,
    /// That a message was delivered, without the message: a [`super::ChoiceRecord`] of source and SSN, numbered by its place
    /// in the rank's receive order, from 0 since the start of the program. On a restart, given to
    /// [`super::Protocol::handle_recovered_delivery`].
    Delivery = 5,
}
