//! A channel's sending end.

use counterfoil_log_core::{Epoch, Ssn};
use thiserror::Error;

use crate::state::{self, EpochError, SendWindowState, StateError};
use crate::unacked::UnackedBytes;
use crate::{Ack, AckError, AckPolicy, Acked, Flags};

/// Numbers one channel's messages and tracks their acknowledgement.
///
/// A rank has one for each destination that it sends to.
///
/// # The already-logged mark
///
/// Guermouche 2011, section V.A: once an ack shows that the receiver is in a later epoch than this rank, everything
/// sent here until this rank's own epoch changes will be received in a later epoch too, and has to be logged. Such
/// messages are marked [`Flags::LOGGED`], and the receiver needn't acknowledge them one by one. The window derives the
/// mark from the newest acknowledged receive epoch. Two events clear it: this rank [begins](Self::begin_epoch) an epoch
/// that the receiver isn't known to be past, or the [receiver rolls back](Self::receiver_rolled_back), because its
/// epochs begin anew.
///
/// Messages with the mark stay unacknowledged like all others until a cumulative ack covers them. Only then is
/// their receive epoch known, which replay (Figure 3, line 65) and collection need.
#[derive(Clone, Debug)]
pub struct SendWindow {
    policy: AckPolicy,
    sent: Ssn,
    acked: Ssn,
    unacked: UnackedBytes,
    /// Own epoch.
    epoch: Epoch,
    /// The newest receive epoch acknowledged since the receiver's last rollback.
    receiver_epoch: Option<Epoch>,
    /// An ack was requested and none has arrived since.
    ack_requested: bool,
}

/// SSN and flags of a new message; returned by [`SendWindow::stamp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Its SSN.
    pub ssn: Ssn,
    /// [`Flags::LARGE`] and [`Flags::LOGGED`] where they apply. A caller may add [`Flags::ACK_REQUESTED`].
    pub flags: Flags,
}

/// A message can't be numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StampError {
    /// The channel has used up its SSNs.
    #[error("the channel is at its last number, {}", Ssn::MAX)]
    SsnLimit,
}

impl SendWindow {
    /// Creates a window for an unused channel, in [`Epoch::FIRST`].
    ///
    /// Any policy works; see [`AckPolicy::validate`].
    pub fn new(policy: AckPolicy) -> Self {
        SendWindow {
            policy,
            sent: Ssn::ZERO,
            acked: Ssn::ZERO,
            unacked: UnackedBytes::default(),
            epoch: Epoch::FIRST,
            receiver_epoch: None,
            ack_requested: false,
        }
    }

    /// Makes a window from a log's view of the channel: the last SSN `sent`, the highest `acked`, and the payload bytes
    /// after `acked`.
    ///
    /// The already-logged mark isn't known: the next ack carries the receiver's epoch. An `acked` above `sent` is taken
    /// for `sent`.
    pub fn resume(policy: AckPolicy, epoch: Epoch, (sent, acked): (Ssn, Ssn), unacked_bytes: u64) -> Self {
        let unacked = UnackedBytes::restored(unacked_bytes);
        SendWindow { sent, acked: acked.min(sent), unacked, epoch, ..SendWindow::new(policy) }
    }

    /// Assigns SSN and flags to a message of `len` payload bytes.
    ///
    /// # Errors
    /// [`StampError::SsnLimit`] after 2^62 messages.
    #[inline]
    pub fn stamp(&mut self, len: usize) -> Result<Stamp, StampError> {
        if self.sent >= Ssn::MAX {
            return Err(StampError::SsnLimit);
        }
        self.sent = self.sent.next();
        self.unacked.sent(self.sent, len as u64);
        let mut flags = Flags::NONE;
        if len > self.policy.small_message_limit {
            flags |= Flags::LARGE;
        }
        if self.already_logged() {
            flags |= Flags::LOGGED;
        }
        Ok(Stamp { ssn: self.sent, flags })
    }

    /// Handles an ack.
    ///
    /// The caller must have checked that it comes from the receiver's current incarnation
    /// ([`RecvWindow::is_current`](crate::RecvWindow::is_current)).
    ///
    /// # Errors
    /// [`AckError::BeyondSent`] if it covers an SSN never sent; the window is unchanged.
    #[inline]
    pub fn handle_ack(&mut self, ack: Ack) -> Result<Acked, AckError> {
        if ack.ssn > self.sent {
            return Err(AckError::BeyondSent { acked: ack.ssn, sent: self.sent });
        }
        if ack.ssn <= self.acked {
            return Ok(Acked::Stale);
        }
        let first = self.acked.next();
        self.acked = ack.ssn;
        self.unacked.acked(ack.ssn, ack.ssn == self.sent);
        self.receiver_epoch = self.receiver_epoch.max(Some(ack.epoch));
        self.ack_requested = false;
        Ok(Acked::Run { first, last: ack.ssn, epoch: ack.epoch })
    }

    /// Returns `true` if the caller should request an ack now, because more messages or bytes are unacknowledged than
    /// the policy allows.
    ///
    /// After that it returns `false` until something is acknowledged.
    #[inline]
    pub fn poll_ack_request(&mut self) -> bool {
        let too_much = self.unacked_records() > self.policy.unacked_records_max
            || self.unacked_bytes() > self.policy.unacked_bytes_max;
        let is_due = too_much && !self.ack_requested;
        self.ack_requested |= is_due;
        is_due
    }

    /// Begins `epoch` at this rank.
    ///
    /// # Errors
    /// [`EpochError`] if `epoch` is before the current one or beyond [`Epoch::MAX`].
    pub fn begin_epoch(&mut self, epoch: Epoch) -> Result<(), EpochError> {
        self.epoch = state::check_begin(self.epoch, epoch)?;
        Ok(())
    }

    /// Handles the receiver's rollback to a checkpoint in which it had received everything up to `to`, its restored
    /// HSR.
    ///
    /// The messages beyond `to` are unacknowledged again; the receiver will acknowledge them anew, perhaps with other
    /// receive epochs. (They count again at once in [`unacked_records`](Self::unacked_records), but not in
    /// [`unacked_bytes`](Self::unacked_bytes): only the log knows their lengths.) The already-logged mark is cleared,
    /// and a request never answered by the dead receiver can be repeated.
    pub fn receiver_rolled_back(&mut self, to: Ssn) {
        self.acked = self.acked.min(to);
        self.receiver_epoch = None;
        self.ack_requested = false;
    }

    /// Returns the next SSN.
    #[inline]
    pub fn next_ssn(&self) -> Ssn {
        self.sent.next()
    }

    /// Returns the last assigned SSN; [`Ssn::ZERO`] if none was.
    #[inline]
    pub fn sent(&self) -> Ssn {
        self.sent
    }

    /// Returns the highest acknowledged SSN.
    #[inline]
    pub fn acked(&self) -> Ssn {
        self.acked
    }

    /// Returns the unacknowledged message count.
    #[inline]
    pub fn unacked_records(&self) -> u64 {
        self.sent.0 - self.acked.0
    }

    /// Returns the number of unacknowledged payload bytes.
    ///
    /// Exact while at most 64 messages are unacknowledged. Beyond that it may include acknowledged messages: at most
    /// 1/32 of the peak unacknowledged count since it was last zero.
    #[inline]
    pub fn unacked_bytes(&self) -> u64 {
        self.unacked.bytes()
    }

    /// Returns `true` if everything sent from now on in this epoch is known to be logged.
    #[inline]
    pub fn already_logged(&self) -> bool {
        self.receiver_epoch > Some(self.epoch)
    }

    /// Returns this rank's own epoch.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the state for a checkpoint.
    pub fn snapshot(&self) -> SendWindowState {
        SendWindowState {
            sent: self.sent.0,
            acked: self.acked.0,
            unacked_bytes: self.unacked_bytes(),
            epoch: self.epoch.0,
        }
    }

    /// Restores the window of a checkpoint.
    ///
    /// The already-logged mark isn't restored: the next ack carries the receiver's epoch.
    ///
    /// If the receiver was replaced after the checkpoint, the receive epochs known here may be wrong: call
    /// [`receiver_rolled_back`](Self::receiver_rolled_back) with [`Ssn::ZERO`], and the receiver acknowledges
    /// everything again.
    ///
    /// # Errors
    /// [`StateError`] if no window can have written `state`.
    pub fn restore(policy: AckPolicy, state: &SendWindowState) -> Result<Self, StateError> {
        if state.sent > Ssn::MAX.0 {
            return Err(StateError::SsnBeyondLimit { ssn: state.sent });
        }
        if state.acked > state.sent {
            return Err(StateError::AckedBeyondLast { acked: state.acked, last: state.sent });
        }
        let epoch = StateError::check_epoch(state.epoch)?;
        Ok(SendWindow::resume(policy, epoch, (Ssn(state.sent), Ssn(state.acked)), state.unacked_bytes))
    }
}
