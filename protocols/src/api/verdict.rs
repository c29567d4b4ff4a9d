//! Verdicts: immediate answers from a protocol.

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::{Epoch, Incarnation, Ssn};

use super::EntryKey;

/// Verdict on a send.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Outgoing {
    /// Complete header: the prefix of the record and of the message on the wire.
    pub header: WireHeader,
    /// Keep the record after its transmission. `false` in rules without replay from the sender
    /// ([`super::Kept::Nothing`]), and only there.
    pub keep_record: bool,
    /// Permission to transmit.
    pub transmission: Transmission,
}

/// Permission to transmit a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmission {
    /// Once the peer is connected and the connection accepts it.
    Now,
    /// After [`super::Effect::Resume`] (Guermouche 2011, Figure 3, line 14).
    Hold,
    /// Never: the receiver's checkpoint has it already (C3, section 2.3, early messages).
    Suppress,
}

/// Verdict on an arrived message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Incoming {
    /// Deliver it to the application. If `keep` names an entry, write that to the local log first: the message, or only
    /// its determinant, according to the entry's [kind](super::EntryKind).
    Deliver {
        /// Local-log entry to write before the message takes effect.
        keep: Option<EntryKey>,
    },
    /// Hold it; the state is unchanged. Present it again after [`super::Effect::Resume`], and nothing from the same
    /// peer before it.
    Hold,
    /// Drop it.
    Discard(DiscardReason),
}

/// Reason for dropping a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscardReason {
    /// Received before, in `receive_epoch`.
    Duplicate {
        /// Epoch of its first receipt here, if still known.
        receive_epoch: Epoch,
    },
    /// Its sender has been replaced, and the replacement sends it again.
    DeadIncarnation {
        /// Sending incarnation.
        sent_by: Incarnation,
        /// The sender's current incarnation.
        now: Incarnation,
    },
    /// The checkpoint restored by this rank contains it, and the sender doesn't know (libELC, section 4.4.2).
    Orphan {
        /// Message SSN.
        ssn: Ssn,
    },
}

/// Protocol part of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Snapshot {
    /// Epoch begun by this checkpoint, and its name (Guermouche 2011 saves the image before the epoch rises;
    /// `docs/lab/errata.md` says why that doesn't work).
    pub epoch: Epoch,
    /// Protocol tables, opaque to the driver.
    pub tables: Vec<u8>,
}
