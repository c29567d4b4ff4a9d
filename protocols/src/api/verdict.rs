//! Verdicts: answers that a protocol gives at once.

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::{Epoch, Incarnation, Ssn};

use super::EntryKey;

/// Verdict on a send.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Outgoing {
    /// Complete header: the prefix of the record, and of the message on the wire.
    pub header: WireHeader,
    /// Keep the record after it was transmitted. `false` in rules that never replay from the sender
    /// ([`super::Kept::Nothing`]), and only there.
    pub keep_record: bool,
    /// Permission to transmit.
    pub transmission: Transmission,
}

/// Permission to transmit a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmission {
    /// As soon as the connection accepts it (and the peer is connected).
    Now,
    /// After [`super::Effect::Resume`] (Guermouche 2011, Figure 3, line 14).
    Hold,
    /// Never: the receiver's checkpoint has it already (C3, section 2.3, early messages).
    Suppress,
}

/// Verdict on a message that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Incoming {
    /// Deliver it to the application. If `keep` names an entry, write that to the local log first: the message, or only
    /// its determinant, as the [kind](super::EntryKind) of the entry says.
    Deliver {
        /// Local-log entry to write before the message takes effect.
        keep: Option<EntryKey>,
    },
    /// Hold it; the state is unchanged. Present it again after [`super::Effect::Resume`], and nothing of the same peer
    /// before it.
    Hold,
    /// Drop it.
    Discard(DiscardReason),
}

/// Reason for dropping a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscardReason {
    /// It was received before, in `receive_epoch`.
    Duplicate {
        /// Epoch of this rank in which it was received first, if still known.
        receive_epoch: Epoch,
    },
    /// Its sender has been replaced, and the replacement sends it again.
    DeadIncarnation {
        /// Incarnation that sent it.
        sent_by: Incarnation,
        /// Current incarnation of the sender.
        now: Incarnation,
    },
    /// The checkpoint that this rank restarted from contains it, and the sender doesn't know (libELC, section 4.4.2).
    Orphan {
        /// SSN of the message.
        ssn: Ssn,
    },
}

/// Part of a checkpoint that the protocol contributes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Snapshot {
    /// Epoch that this checkpoint begins, and its name (Guermouche 2011 saves the image before the epoch rises;
    /// `docs/lab/errata.md` says why that doesn't work).
    pub epoch: Epoch,
    /// Tables of the protocol, opaque to the driver.
    pub tables: Vec<u8>,
}
