//! The sending end of a channel.

use counterfoil_log_core::{Epoch, Ssn};
use thiserror::Error;

use crate::state::{self, EpochError, SendWindowState, StateError};
use crate::unacked::UnackedBytes;
use crate::{Ack, AckError, AckPolicy, Acked, Flags};

/// Numbers the messages of one channel and knows which of them are acknowledged. A rank has one for each
/// destination that it sends to.
///
/// # The already-logged mark
///
/// Guermouche 2011, section V.A: once an ack shows that the receiver is in a later epoch than this rank,
/// everything that this rank sends until its own epoch changes will be received in a later epoch too, and has to
/// be logged. Such messages are marked [`Flags::LOGGED`], and the receiver needn't acknowledge them one by one.
/// The window derives the mark from the newest receive epoch that was acknowledged: it falls by itself when this
/// rank [begins](Self::begin_epoch) an epoch that the receiver isn't known to be past, and it falls when the
/// [receiver rolls back](Self::receiver_rolled_back), because its epochs begin anew.
///
/// Messages with the mark stay unacknowledged like all others until a cumulative ack covers them: only then
/// their receive epoch is known, which replay (Figure 3, line 65) and collection need.
#[derive(Clone, Debug)]
pub struct SendWindow {
    policy: AckPolicy,
    sent: Ssn,
    acked: Ssn,
    unacked: UnackedBytes,
    /// Own epoch.
    epoch: Epoch,
    /// The newest receive epoch that was acknowledged since the receiver last rolled back.
    receiver_epoch: Option<Epoch>,
    /// Whether an ack was asked for and none has come.
    asked: bool,
}

/// The number and the flags of a new message: see [`SendWindow::stamp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Its number.
    pub ssn: Ssn,
    /// [`Flags::LARGE`] and [`Flags::LOGGED`] as they apply. A caller may add [`Flags::ACK_REQUESTED`].
    pub flags: Flags,
}

/// Why a message can't be numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StampError {
    /// The channel has used up its numbers.
    #[error("the channel is at its last number, {}", Ssn::MAX)]
    SsnLimit,
}

impl SendWindow {
    /// A channel on which nothing was sent, in [`Epoch::FIRST`]. Any policy works; see
    /// [`AckPolicy::validate`].
    pub fn new(policy: AckPolicy) -> Self {
        SendWindow {
            policy,
            sent: Ssn::ZERO,
            acked: Ssn::ZERO,
            unacked: UnackedBytes::default(),
            epoch: Epoch::FIRST,
            receiver_epoch: None,
            asked: false,
        }
    }

    /// Numbers a message of `len` payload bytes.
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

    /// Takes an ack into account. The caller has made sure that it comes from the receiver's current incarnation
    /// ([`RecvWindow::is_current`](crate::RecvWindow::is_current)).
    ///
    /// # Errors
    /// [`AckError::BeyondSent`] if it covers what was never sent; the window is unchanged.
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
        self.asked = false;
        Ok(Acked::Run { first, last: ack.ssn, epoch: ack.epoch })
    }

    /// Whether the receiver should be asked for an ack now, because more messages or bytes are unacknowledged
    /// than the policy allows. True once, and then not before something was acknowledged.
    #[inline]
    pub fn poll_ack_request(&mut self) -> bool {
        let too_much = self.unacked_records() > self.policy.unacked_records_max
            || self.unacked_bytes() > self.policy.unacked_bytes_max;
        let ask = too_much && !self.asked;
        self.asked |= ask;
        ask
    }

    /// This rank begins `epoch`.
    ///
    /// # Errors
    /// [`EpochError`] if `epoch` is before the current one or beyond [`Epoch::MAX`].
    pub fn begin_epoch(&mut self, epoch: Epoch) -> Result<(), EpochError> {
        self.epoch = state::begun(self.epoch, epoch)?;
        Ok(())
    }

    /// The receiver restored a checkpoint in which it had received everything up to `to`, its restored HSR.
    ///
    /// What it had acknowledged beyond `to` is unacknowledged again and will be acknowledged anew, perhaps with
    /// other receive epochs. (The messages count again at once in [`unacked_records`](Self::unacked_records),
    /// not in [`unacked_bytes`](Self::unacked_bytes): their lengths are the log's to know.) The already-logged
    /// mark falls, and a request for an ack that the dead receiver never answered can be made again.
    pub fn receiver_rolled_back(&mut self, to: Ssn) {
        self.acked = self.acked.min(to);
        self.receiver_epoch = None;
        self.asked = false;
    }

    /// The number that the next message gets.
    #[inline]
    pub fn next_ssn(&self) -> Ssn {
        self.sent.next()
    }

    /// The last number that was given out; [`Ssn::ZERO`] if none was.
    #[inline]
    pub fn sent(&self) -> Ssn {
        self.sent
    }

    /// Everything up to here is acknowledged.
    #[inline]
    pub fn acked(&self) -> Ssn {
        self.acked
    }

    /// How many messages are unacknowledged.
    #[inline]
    pub fn unacked_records(&self) -> u64 {
        self.sent.0 - self.acked.0
    }

    /// How many payload bytes are unacknowledged. Exact while at most 64 messages are; beyond that it may count
    /// some acknowledged ones too, at most 1/32 of the most messages that were unacknowledged at once since there
    /// last was none.
    #[inline]
    pub fn unacked_bytes(&self) -> u64 {
        self.unacked.bytes()
    }

    /// Whether everything sent from now on in this epoch is known to be logged.
    #[inline]
    pub fn already_logged(&self) -> bool {
        self.receiver_epoch > Some(self.epoch)
    }

    /// This rank's own epoch.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What a checkpoint keeps.
    pub fn snapshot(&self) -> SendWindowState {
        SendWindowState {
            sent: self.sent.0,
            acked: self.acked.0,
            unacked_bytes: self.unacked_bytes(),
            epoch: self.epoch.0,
        }
    }

    /// The window of a checkpoint. The already-logged mark isn't restored: the next ack tells where the receiver
    /// is now.
    ///
    /// If the receiver was replaced after the checkpoint was taken, the receive epochs in it may be wrong by now:
    /// call [`receiver_rolled_back`](Self::receiver_rolled_back) with [`Ssn::ZERO`], and all of them are told
    /// again.
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
        Ok(SendWindow {
            sent: Ssn(state.sent),
            acked: Ssn(state.acked),
            unacked: UnackedBytes::restored(state.unacked_bytes),
            epoch: StateError::check_epoch(state.epoch)?,
            ..SendWindow::new(policy)
        })
    }
}
