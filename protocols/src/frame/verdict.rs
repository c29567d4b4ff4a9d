//! What a protocol answers at once.

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::{Epoch, Incarnation, Ssn};

use super::EntryKey;

/// The verdict on a send.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Outgoing {
    /// The header, complete: the prefix of the record, and of the message on the wire.
    pub header: WireHeader,
    /// Keep the record after it was transmitted. `false` only in rules that never replay from the sender.
    pub keep_record: bool,
    /// Whether it may go on the wire.
    pub transmission: Transmission,
}

/// Whether a record may go on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmission {
    /// As soon as the connection takes it (and the peer is there).
    Now,
    /// After [`super::Effect::Resume`] (Guermouche 2011, Figure 3, line 14).
    Hold,
    /// Never: the receiver's checkpoint has it already (C3, section 2.3, early messages).
    Suppress,
}

/// The verdict on a message that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Incoming {
    /// It is the application's. If `keep` names an entry, write that to the local log first: the message, or only its
    /// determinant, as the [kind](super::EntryKind) of the entry says.
    Deliver {
        /// What to keep before the message takes effect, and where.
        keep: Option<EntryKey>,
    },
    /// Not yet: nothing was noted. Present it again after [`super::Effect::Resume`], and nothing of the same peer before it.
    Hold,
    /// Drop it.
    Discard(DiscardReason),
}

/// Why a message is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscardReason {
    /// It was received before, in `receive_epoch`.
    Duplicate {
        /// The epoch of this rank in which it was received the first time, as far as that is still known.
        receive_epoch: Epoch,
    },
    /// Its sender has been replaced since, and the replacement sends it again.
    DeadIncarnation {
        /// Who sent it.
        sent_by: Incarnation,
        /// The sender's incarnation now.
        now: Incarnation,
    },
    /// The checkpoint that this rank restarted from has it, and the sender doesn't know (libELC, section 4.4.2).
    Orphan {
        /// Its number.
        ssn: Ssn,
    },
}

/// What a protocol puts into a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Snapshot {
    /// The epoch that this checkpoint begins, and its name (Guermouche 2011 saves the image before the epoch rises;
    /// `docs/errata.md` says why that doesn't work).
    pub epoch: Epoch,
    /// The protocol's tables, opaque to everyone else.
    pub tables: Vec<u8>,
}
