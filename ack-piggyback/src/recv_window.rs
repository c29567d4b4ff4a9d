//! A channel's receiving end.

use counterfoil_log_core::{Epoch, Incarnation, Ssn};
use thiserror::Error;

use crate::state::{self, EpochError, RecvWindowState, StateError};
use crate::{Ack, AckPolicy, Flags, ReceiveEpochs, ReceivedSet, TooManyExceptions};

/// Tracks the messages received on one channel, their receive epochs, and the acks sent for them.
///
/// A rank has one for each source.
///
/// # Acks are split where the receive epoch changes
///
/// An ack is cumulative and carries one epoch, that of its own SSN. If SSNs 1-5 were received in epoch 1 and 6-9 in
/// epoch 2, a single ack (9, epoch 2) would attribute them all to epoch 2, and the sender would log, replay and keep
/// five messages for nothing; (9, epoch 1) would lose four. The window therefore generates (5, epoch 1) and then (9,
/// epoch 2): each ack extends the previous one by SSNs from one receive epoch. On an ordered channel, such as MPI's,
/// the sender can attribute every SSN exactly: the SSNs between the previous ack and this one were received in this
/// one's epoch. Overtaken or lost acks do no harm: the next ack attributes its own, later epoch to the lost SSNs, and a
/// record is at worst kept too long.
///
/// [`piggyback`](Self::piggyback) returns one part at a time, oldest first. [`poll_ack`](Self::poll_ack) returns them
/// all, one at each call, once an explicit ack is due. Both advance `acked`, so no ack is sent twice, except where the
/// sender may need it again: a duplicate moves `acked` back to the message before it; a new incarnation at either end
/// moves it back to the beginning, and the sender ignores stale acks.
///
/// An ack never covers more than the sender's *current incarnation* has sent, so a re-executing replacement only gets
/// acks for SSNs it knows.
///
/// On a channel received out of order, only the [`ReceivedSet`]'s cumulative part is acknowledged.
#[derive(Clone, Debug)]
pub struct RecvWindow {
    policy: AckPolicy,
    received: ReceivedSet,
    epochs: ReceiveEpochs,
    /// Own epoch.
    epoch: Epoch,
    /// The source's incarnation.
    incarnation: Incarnation,
    /// The last SSN known to be sent by the source's incarnation.
    source_sent: Ssn,
    /// The highest SSN acknowledged to the source.
    acked: Ssn,
    /// The highest SSN in need of an explicit ack.
    ack_due: Ssn,
    /// The sender's newest epoch with an explicit ack for its first message to be logged.
    first_logged: Option<Epoch>,
    /// Like `first_logged`, for duplicates. They count separately: a re-executing sender may send a new message before
    /// the ack for a duplicate reaches it, and this message would get no explicit ack.
    first_repeated: Option<Epoch>,
}

/// Input for [`RecvWindow::handle_message`]; see [`WireHeader::arrival`](crate::WireHeader::arrival).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arrival {
    /// Its SSN.
    pub ssn: Ssn,
    /// The sending incarnation.
    pub incarnation: Incarnation,
    /// The source's epoch when it was first sent.
    pub epoch: Epoch,
    /// Its flags.
    pub flags: Flags,
}

/// Received message classification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a duplicate must not be delivered"]
pub enum Verdict {
    /// New: deliver it. It counts as received in the window's current epoch.
    Fresh,
    /// Received before: discard it. It will be acknowledged again, with its original receive epoch.
    Duplicate {
        /// The epoch in which it was received.
        receive_epoch: Epoch,
    },
    /// Sent by a replaced incarnation: discard it, as if it had never arrived. The replacement sends it again if it is
    /// needed.
    DeadIncarnation,
}

/// A message can't be classified.
///
/// The window is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecvError {
    /// Too many messages arrived out of order, or some are missing. Don't receive this one yet.
    #[error(transparent)]
    TooManyExceptions(#[from] TooManyExceptions),
    /// The source's incarnation isn't the known one: call [`RecvWindow::set_incarnation`] first.
    #[error("a message of {seen}, but the source is known as {known}")]
    UnknownIncarnation {
        /// The message's incarnation.
        seen: Incarnation,
        /// The newest known incarnation.
        known: Incarnation,
    },
    /// The SSN is out of range.
    #[error("{ssn} isn't from 1 to {}", Ssn::MAX.0)]
    SsnOutOfRange {
        /// The SSN.
        ssn: Ssn,
    },
}

impl RecvWindow {
    /// Creates a window for an unused channel, with the source in its first incarnation and this rank in
    /// [`Epoch::FIRST`].
    pub fn new(policy: AckPolicy) -> Self {
        RecvWindow {
            policy,
            received: ReceivedSet::new(),
            epochs: ReceiveEpochs::new(),
            epoch: Epoch::FIRST,
            incarnation: Incarnation(0),
            source_sent: Ssn::ZERO,
            acked: Ssn::ZERO,
            ack_due: Ssn::ZERO,
            first_logged: None,
            first_repeated: None,
        }
    }

    /// Classifies a message, and records it as received if it is fresh.
    ///
    /// # Errors
    /// [`RecvError`]; the window is then unchanged.
    #[inline]
    pub fn handle_message(&mut self, arrival: Arrival) -> Result<Verdict, RecvError> {
        let Arrival { ssn, incarnation, epoch, flags } = arrival;
        if incarnation < self.incarnation {
            return Ok(Verdict::DeadIncarnation);
        }
        if incarnation > self.incarnation {
            return Err(RecvError::UnknownIncarnation { seen: incarnation, known: self.incarnation });
        }
        if ssn < Ssn::FIRST || ssn > Ssn::MAX {
            return Err(RecvError::SsnOutOfRange { ssn });
        }
        let highest = self.received.highest();
        let fresh = self.received.insert(ssn, self.policy.exceptions_max)?;
        self.source_sent = self.source_sent.max(ssn);
        let (verdict, receive_epoch) = if fresh {
            self.epochs.record(ssn, self.epoch, highest);
            (Verdict::Fresh, self.epoch)
        } else {
            let receive_epoch = self.receive_epoch(ssn);
            // The sender doesn't repeat messages it knows to be acknowledged.
            self.acked = self.acked.min(ssn.prev());
            (Verdict::Duplicate { receive_epoch }, receive_epoch)
        };
        if self.needs_explicit_ack(fresh, epoch, receive_epoch, flags) {
            self.ack_due = self.ack_due.max(ssn);
        }
        if flags.contains(Flags::ACK_REQUESTED) {
            self.handle_ack_request(ssn);
        }
        Ok(verdict)
    }

    /// Decides on an explicit ack (Guermouche 2011, section V.A).
    #[inline]
    fn needs_explicit_ack(&mut self, fresh: bool, sent_in: Epoch, received_in: Epoch, flags: Flags) -> bool {
        if flags.contains(Flags::LOGGED) {
            return false;
        }
        let newest = if fresh { &mut self.first_logged } else { &mut self.first_repeated };
        let is_first = sent_in < received_in && *newest < Some(sent_in);
        if is_first {
            *newest = Some(sent_in);
        }
        is_first || flags.contains(Flags::LARGE)
    }

    /// Handles a request for an explicit ack; `sent` is the sender's last SSN (the header's SSN).
    ///
    /// If nothing new can be acknowledged, the answer repeats the newest ack.
    pub fn handle_ack_request(&mut self, sent: Ssn) {
        self.source_sent = self.source_sent.max(sent.min(Ssn::MAX));
        self.ack_due = self.ack_due.max(sent.min(Ssn::MAX));
        if self.acked >= self.ack_limit() {
            self.acked = self.ack_limit().prev();
        }
    }

    /// Returns the next ack to put on a message in the other direction, if anything is new.
    ///
    /// Call this only for a header about to be sent: the ack counts as sent.
    #[inline]
    pub fn piggyback(&mut self) -> Option<Ack> {
        let ack_limit = self.ack_limit();
        if self.acked >= ack_limit {
            return None;
        }
        let (epoch, last) = self.epochs.run_of(self.acked.next())?;
        self.acked = last.min(ack_limit);
        if self.acked >= self.ack_due {
            // Answered: a duplicate moving `acked` back doesn't make it due again.
            self.ack_due = Ssn::ZERO;
        }
        Some(Ack { ssn: self.acked, epoch })
    }

    /// Returns the next due explicit ack; call until `None`.
    ///
    /// An ack is due for the first message to be logged from each sender's epoch, for each large message, and for each
    /// request by the sender, unless a piggybacked ack has covered it meanwhile.
    #[inline]
    pub fn poll_ack(&mut self) -> Option<Ack> {
        if self.acked >= self.ack_due { None } else { self.piggyback() }
    }

    /// Returns the largest SSN an ack may cover now.
    #[inline]
    fn ack_limit(&self) -> Ssn {
        self.received.upto().min(self.source_sent)
    }

    /// Begins `epoch` at this rank: messages received from now on are received in it.
    ///
    /// # Errors
    /// [`EpochError`] if `epoch` is before the current one or beyond [`Epoch::MAX`].
    pub fn begin_epoch(&mut self, epoch: Epoch) -> Result<(), EpochError> {
        self.epoch = state::check_begin(self.epoch, epoch)?;
        Ok(())
    }

    /// Merges the receive epochs before `epoch`, when no sender can roll back far enough to need them apart: see
    /// [`ReceiveEpochs::forget_before`].
    ///
    /// This keeps the window small.
    pub fn forget_epochs_before(&mut self, epoch: Epoch) {
        self.epochs.forget_before(epoch);
    }

    /// Sets the source's incarnation.
    ///
    /// `sent` is the last SSN it had sent when it (re)started: 0, or the one in its checkpoint.
    ///
    /// For a new incarnation, everything received up to `sent` is acknowledged again, in parts from the beginning,
    /// because the replacement only knows its checkpoint; it ignores stale acks. Messages from earlier incarnations are
    /// discarded from now on. A rollback without a death must count as a new incarnation too. The call may be repeated
    /// for the current incarnation.
    ///
    /// # Errors
    /// [`RecvError::UnknownIncarnation`] if `incarnation` is older than the known one.
    pub fn set_incarnation(&mut self, incarnation: Incarnation, sent: Ssn) -> Result<(), RecvError> {
        if incarnation < self.incarnation {
            return Err(RecvError::UnknownIncarnation { seen: incarnation, known: self.incarnation });
        }
        let sent = sent.min(Ssn::MAX);
        if incarnation == self.incarnation {
            self.source_sent = self.source_sent.max(sent);
            return Ok(());
        }
        self.incarnation = incarnation;
        self.source_sent = sent;
        self.acked = Ssn::ZERO;
        self.ack_due = Ssn::ZERO;
        (self.first_logged, self.first_repeated) = (None, None);
        Ok(())
    }

    /// Resumes acknowledging after `acked`, the highest acknowledged SSN known to the sender.
    ///
    /// Optional after either end was replaced, if the sender reports its
    /// [`SendWindow::acked`](crate::SendWindow::acked): it saves stale acks.
    pub fn reack_after(&mut self, acked: Ssn) {
        self.acked = acked.min(self.ack_limit());
    }

    /// Returns `true` if `incarnation` is the source's current one.
    ///
    /// Anything else from the source, such as an ack, is to be ignored.
    #[inline]
    pub fn is_current(&self, incarnation: Incarnation) -> bool {
        incarnation == self.incarnation
    }

    /// Returns the source's incarnation.
    #[inline]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Returns this rank's own epoch.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the received SSNs: the highest one with its exceptions.
    #[inline]
    pub fn hsr(&self) -> &ReceivedSet {
        &self.received
    }

    /// Returns the receive epochs.
    #[inline]
    pub fn receive_epochs(&self) -> &ReceiveEpochs {
        &self.epochs
    }

    /// Returns the highest SSN acknowledged to the sender's current incarnation.
    #[inline]
    pub fn acked(&self) -> Ssn {
        self.acked
    }

    fn receive_epoch(&self, ssn: Ssn) -> Epoch {
        self.epochs.run_of(ssn).map_or(self.epoch, |(epoch, _)| epoch)
    }

    /// Returns the state for a checkpoint.
    pub fn snapshot(&self) -> RecvWindowState {
        RecvWindowState {
            received: self.received.snapshot(),
            epochs: self.epochs.snapshot(),
            epoch: self.epoch.0,
            incarnation: self.incarnation.0,
            source_sent: self.source_sent.0,
        }
    }

    /// Restores a checkpointed window.
    ///
    /// Everything will be acknowledged again, from the beginning: acks sent before the checkpoint may have been in
    /// flight when this rank died. Due explicit acks are dropped: the sender learns of the rollback, and requests them
    /// again or gets them piggybacked.
    ///
    /// # Errors
    /// [`StateError`] if no window can have written `state`, or not under this policy.
    pub fn restore(policy: AckPolicy, state: &RecvWindowState) -> Result<Self, StateError> {
        let received = ReceivedSet::restore(&state.received)?;
        let (count, max) = (received.exceptions().len(), policy.exceptions_max);
        if count > max {
            return Err(StateError::TooManyExceptions { count, max });
        }
        let epoch = StateError::check_epoch(state.epoch)?;
        let epochs = ReceiveEpochs::restore(&state.epochs, epoch, received.highest())?;
        if state.source_sent > Ssn::MAX.0 {
            return Err(StateError::SsnBeyondLimit { ssn: state.source_sent });
        }
        Ok(RecvWindow {
            received,
            epochs,
            epoch,
            incarnation: Incarnation(state.incarnation),
            source_sent: Ssn(state.source_sent),
            ..RecvWindow::new(policy)
        })
    }
}
