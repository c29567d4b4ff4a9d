//! The receiving end of a channel.

use counterfoil_log_core::{Epoch, Incarnation, Ssn};
use thiserror::Error;

use crate::state::{self, EpochError, RecvWindowState, StateError};
use crate::{Ack, AckPolicy, Flags, ReceiveEpochs, ReceivedSet, TooManyExceptions};

/// Knows what was received on one channel, in which epoch, and what of it the sender was told. A rank has one
/// for each source.
///
/// # Acks are cut where the receive epoch changes
///
/// An ack is cumulative and carries one epoch, that of its own SSN. If SSNs 1-5 were received in epoch 1 and 6-9
/// in epoch 2, a single ack (9, epoch 2) would tell the sender that all of them were received in epoch 2, and it
/// would log, replay and keep five messages for nothing; (9, epoch 1) would lose four. So this window gives out
/// (5, epoch 1) and then (9, epoch 2): each ack extends the one before by SSNs of one receive epoch. On a channel
/// that keeps order, which MPI's does, the sender can thus attribute every SSN exactly: the SSNs between the
/// last ack and this one were received in this one's epoch. Acks that are overtaken or lost do no harm: the next
/// one then attributes its own, later epoch to the SSNs that the lost one covered, and a record is at worst kept
/// too long.
///
/// [`piggyback`](Self::piggyback) gives one cut at a time, oldest first. [`poll_ack`](Self::poll_ack) gives all
/// of them, one at each call, once an explicit ack is due. Both advance the same mark, `told`, so no ack is given
/// twice, except where the sender may need it again: a duplicate takes the mark back to the message before it; a
/// new incarnation at either end takes it back to the beginning, where an ack that is stale to the sender does no
/// harm.
///
/// An ack never covers more than the sender's *current incarnation* has sent: a replacement that re-executes has
/// to see acks for SSNs that it knows.
///
/// Where tags allow messages to be taken out of order, the cumulative part of the [`ReceivedSet`] is what is
/// acknowledged.
#[derive(Clone, Debug)]
pub struct RecvWindow {
    policy: AckPolicy,
    received: ReceivedSet,
    epochs: ReceiveEpochs,
    /// Own epoch.
    epoch: Epoch,
    /// The sender's.
    incarnation: Incarnation,
    /// The last SSN that the sender's incarnation is known to have sent.
    offered: Ssn,
    /// Everything up to here was acknowledged.
    told: Ssn,
    /// Everything up to here is to be acknowledged explicitly.
    wanted: Ssn,
    /// The newest sender's epoch of which the first message to be logged was acknowledged explicitly.
    first_logged: Option<Epoch>,
    /// The same of duplicates. They count apart: a sender that repeats itself may send something new before it hears what was said of
    /// them, and of that it would hear nothing.
    first_repeated: Option<Epoch>,
}

/// What [`RecvWindow::handle_message`] needs to know of a message: [`WireHeader::arrival`](crate::WireHeader::arrival).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arrival {
    /// Its number.
    pub ssn: Ssn,
    /// Which incarnation of the source sent it.
    pub incarnation: Incarnation,
    /// The source's epoch when it was first sent.
    pub epoch: Epoch,
    /// Its flags.
    pub flags: Flags,
}

/// What is to be done with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a duplicate must not be delivered"]
pub enum Verdict {
    /// It is new: deliver it. It counts as received in the window's current epoch.
    Fresh,
    /// It was received before: discard it. It will be acknowledged again, with its original receive epoch.
    Duplicate {
        /// The epoch in which it was received.
        receive_epoch: Epoch,
    },
    /// It was sent by an incarnation that has been replaced: discard it, as if it had never come. If it matters,
    /// the replacement sends it again.
    DeadIncarnation,
}

/// Why a message can't be judged. The window is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecvError {
    /// Too much was taken out of order, or messages are missing. Don't take this one yet.
    #[error(transparent)]
    TooManyExceptions(#[from] TooManyExceptions),
    /// The source was replaced and nobody said so: call [`RecvWindow::set_incarnation`] first.
    #[error("a message of {seen}, but the source is known as {known}")]
    UnknownIncarnation {
        /// The message's incarnation.
        seen: Incarnation,
        /// The newest one known.
        known: Incarnation,
    },
    /// Not the number of a message.
    #[error("{ssn} isn't from 1 to {}", Ssn::MAX.0)]
    SsnOutOfRange {
        /// The number.
        ssn: Ssn,
    },
}

impl RecvWindow {
    /// A channel on which nothing was received, from the first incarnation of the source, in [`Epoch::FIRST`].
    pub fn new(policy: AckPolicy) -> Self {
        RecvWindow {
            policy,
            received: ReceivedSet::new(),
            epochs: ReceiveEpochs::new(),
            epoch: Epoch::FIRST,
            incarnation: Incarnation(0),
            offered: Ssn::ZERO,
            told: Ssn::ZERO,
            wanted: Ssn::ZERO,
            first_logged: None,
            first_repeated: None,
        }
    }

    /// Judges a message, and notes it as received if it is fresh.
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
        self.offered = self.offered.max(ssn);
        let (verdict, receive_epoch) = if fresh {
            self.epochs.record(ssn, self.epoch, highest);
            (Verdict::Fresh, self.epoch)
        } else {
            let receive_epoch = self.receive_epoch(ssn);
            // The sender wouldn't repeat what it knows to be received.
            self.told = self.told.min(ssn.prev());
            (Verdict::Duplicate { receive_epoch }, receive_epoch)
        };
        if self.wants_explicit_ack(fresh, epoch, receive_epoch, flags) {
            self.wanted = self.wanted.max(ssn);
        }
        if flags.contains(Flags::ACK_REQUESTED) {
            self.handle_ack_request(ssn);
        }
        Ok(verdict)
    }

    /// Guermouche 2011, section V.A.
    #[inline]
    fn wants_explicit_ack(&mut self, fresh: bool, sent_in: Epoch, received_in: Epoch, flags: Flags) -> bool {
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

    /// The sender asks for an explicit ack; `sent` is the last SSN that it has sent (the header's SSN).
    ///
    /// It is answered even if there is nothing new to say, with the newest ack once more.
    pub fn handle_ack_request(&mut self, sent: Ssn) {
        self.offered = self.offered.max(sent.min(Ssn::MAX));
        self.wanted = self.wanted.max(sent.min(Ssn::MAX));
        if self.told >= self.may_tell() {
            self.told = self.may_tell().prev();
        }
    }

    /// The next ack to put on a message in the other direction, if there is news. Ask only for a header that is
    /// about to be sent: the ack counts as told.
    #[inline]
    pub fn piggyback(&mut self) -> Option<Ack> {
        let may_tell = self.may_tell();
        if self.told >= may_tell {
            return None;
        }
        let (epoch, last) = self.epochs.run_of(self.told.next())?;
        self.told = last.min(may_tell);
        if self.told >= self.wanted {
            // Answered: a duplicate that takes `told` back doesn't ask again.
            self.wanted = Ssn::ZERO;
        }
        Some(Ack { ssn: self.told, epoch })
    }

    /// The next ack to send by itself, if one is due: call until `None`.
    ///
    /// Due is an ack of the first message of a sender's epoch that must be logged, of each large message, and of
    /// whatever the sender asked for; in each case unless it has gone out as a piggyback meanwhile.
    #[inline]
    pub fn poll_ack(&mut self) -> Option<Ack> {
        if self.told >= self.wanted { None } else { self.piggyback() }
    }

    /// The largest SSN that an ack may cover now.
    #[inline]
    fn may_tell(&self) -> Ssn {
        self.received.upto().min(self.offered)
    }

    /// This rank begins `epoch`: what is received from now on is received in it.
    ///
    /// # Errors
    /// [`EpochError`] if `epoch` is before the current one or beyond [`Epoch::MAX`].
    pub fn begin_epoch(&mut self, epoch: Epoch) -> Result<(), EpochError> {
        self.epoch = state::begun(self.epoch, epoch)?;
        Ok(())
    }

    /// No sender will roll back so far that it has to know apart the epochs before `epoch`: see
    /// [`ReceiveEpochs::forget_before`]. This keeps the window small.
    pub fn forget_epochs_before(&mut self, epoch: Epoch) {
        self.epochs.forget_before(epoch);
    }

    /// The source presents itself as `incarnation`, having sent everything up to `sent` when it (re)started: 0, or
    /// what its checkpoint says.
    ///
    /// If that is a new incarnation, all that it has sent and this rank has received is acknowledged again, in
    /// cuts from the beginning, because the replacement knows no more than its checkpoint: what it knows already
    /// is stale to it. Messages of earlier incarnations are discarded from now on. A rank that rolls back without
    /// dying must count as a new incarnation too. The incarnation that is known already may present itself
    /// again.
    ///
    /// # Errors
    /// [`RecvError::UnknownIncarnation`] if `incarnation` was replaced long ago.
    pub fn set_incarnation(&mut self, incarnation: Incarnation, sent: Ssn) -> Result<(), RecvError> {
        if incarnation < self.incarnation {
            return Err(RecvError::UnknownIncarnation { seen: incarnation, known: self.incarnation });
        }
        let sent = sent.min(Ssn::MAX);
        if incarnation == self.incarnation {
            self.offered = self.offered.max(sent);
            return Ok(());
        }
        self.incarnation = incarnation;
        self.offered = sent;
        self.told = Ssn::ZERO;
        self.wanted = Ssn::ZERO;
        (self.first_logged, self.first_repeated) = (None, None);
        Ok(())
    }

    /// The sender knows what was acknowledged up to `acked`, and no more: what follows will be acknowledged next.
    ///
    /// Optional after either end was replaced, if the sender says so (with
    /// [`SendWindow::acked`](crate::SendWindow::acked)): it spares acks that would be stale.
    pub fn reack_after(&mut self, acked: Ssn) {
        self.told = acked.min(self.may_tell());
    }

    /// Whether something that came from `incarnation` of the source, an ack for instance, is to be heeded.
    #[inline]
    pub fn is_current(&self, incarnation: Incarnation) -> bool {
        incarnation == self.incarnation
    }

    /// The source's incarnation.
    #[inline]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// This rank's own epoch.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What was received: the highest SSN with its exceptions.
    #[inline]
    pub fn hsr(&self) -> &ReceivedSet {
        &self.received
    }

    /// In which epochs.
    #[inline]
    pub fn receive_epochs(&self) -> &ReceiveEpochs {
        &self.epochs
    }

    /// Everything up to here was acknowledged to the sender's current incarnation.
    #[inline]
    pub fn told(&self) -> Ssn {
        self.told
    }

    fn receive_epoch(&self, ssn: Ssn) -> Epoch {
        self.epochs.run_of(ssn).map_or(self.epoch, |(epoch, _)| epoch)
    }

    /// What a checkpoint keeps.
    pub fn snapshot(&self) -> RecvWindowState {
        RecvWindowState {
            received: self.received.snapshot(),
            epochs: self.epochs.snapshot(),
            epoch: self.epoch.0,
            incarnation: self.incarnation.0,
            offered: self.offered.0,
        }
    }

    /// The window of a checkpoint. Everything will be acknowledged again, from the beginning: acks that had been
    /// given before the checkpoint may have been under way when this rank died. Explicit acks that were due are
    /// forgotten: the sender learns that this rank rolled back, and asks again or gets them piggybacked.
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
        if state.offered > Ssn::MAX.0 {
            return Err(StateError::SsnBeyondLimit { ssn: state.offered });
        }
        Ok(RecvWindow {
            received,
            epochs,
            epoch,
            incarnation: Incarnation(state.incarnation),
            offered: Ssn(state.offered),
            ..RecvWindow::new(policy)
        })
    }
}
