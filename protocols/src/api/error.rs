//! Errors, one enum per kind of operation.

use counterfoil_ack_piggyback::{Kind, PolicyError, RecvError, StateError, TooManyExceptions, WireHeader};
use counterfoil_log_core::{Determinant, Epoch, Incarnation, Rank, Ssn};
use thiserror::Error;

use super::EntryKey;

/// Reason for refusing an event.
///
/// The event changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// Acknowledgement policy with contradictory numbers.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// No such rank in this job.
    #[error("{rank} is not in a job of {ranks} ranks")]
    UnknownRank {
        /// Named rank.
        rank: Rank,
        /// Job size in ranks.
        ranks: u32,
    },
    /// Frame from or to another rank than expected: driver mistake, or a confused peer.
    #[error("a frame from {source_rank} to {destination} was presented to {rank}")]
    Misdirected {
        /// Frame sender.
        source_rank: Rank,
        /// Frame destination.
        destination: Rank,
        /// Rank to which it was presented.
        rank: Rank,
    },
    /// Control frame where a message was expected, or the reverse.
    #[error("unexpected frame of kind {kind:?} from {peer}")]
    UnexpectedKind {
        /// Frame sender.
        peer: Rank,
        /// Frame kind.
        kind: Kind,
    },
    /// The rule has no coordinator.
    #[error("this protocol has no coordinator")]
    NoCoordinator,
    /// Frame from an incarnation without a received Hello. Driver mistake: Hello comes first.
    #[error("a frame of {peer}, {incarnation}, before its hello (known is {known})")]
    UnknownIncarnation {
        /// Frame sender.
        peer: Rank,
        /// The sender's incarnation.
        incarnation: Incarnation,
        /// Newest incarnation with a received Hello.
        known: Incarnation,
    },
    /// Hello from a replaced incarnation. Close the connection: the process at its other end is dead.
    #[error("hello of {peer}, {incarnation}, which {now} has replaced")]
    DeadHello {
        /// Hello sender.
        peer: Rank,
        /// The sender's incarnation.
        incarnation: Incarnation,
        /// Newest incarnation known.
        now: Incarnation,
    },
    /// Impossible claim by a peer. Don't trust the connection.
    #[error("{peer} contradicts the rules: {how}")]
    PeerMisbehaved {
        /// Misbehaving peer.
        peer: Rank,
        /// Broken rule.
        how: Misbehaviour,
    },
    /// Too many gaps between the messages taken from a peer: the set of exceptions is at its limit. Take other messages
    /// from this peer first.
    #[error("too much of {peer} was taken out of order")]
    OutOfOrder {
        /// Frame sender.
        peer: Rank,
        /// Limit from the policy.
        #[source]
        limit: TooManyExceptions,
    },
    /// Message out of turn in its channel, under a rule recording the delivery order. Driver mistake: messages are to
    /// be presented in channel order; or the recorded order is another execution's.
    #[error("message {found} of {peer}, where {expected} is the next")]
    UnexpectedSsn {
        /// Frame sender.
        peer: Rank,
        /// Next SSN.
        expected: Ssn,
        /// Message SSN.
        found: Ssn,
    },
    /// Delivery record missing although records of later deliveries exist: the log is damaged, and the delivery order
    /// is lost.
    #[error("the record of delivery {missing} is missing, and that of delivery {present} is there")]
    MissingDelivery {
        /// First missing delivery.
        missing: u64,
        /// First later delivery with a record.
        present: u64,
    },
    /// Checkpoint while recorded deliveries are still to be repeated: it would cover deliveries on which others depend
    /// and which have not happened again. See [`super::Protocol::wants_checkpoint`].
    #[error("a checkpoint while {pending} recorded deliveries have to be repeated")]
    DeliveriesPending {
        /// Their number.
        pending: usize,
    },
    /// Replacement without collected messages, because its predecessor had reported a durable checkpoint covering them.
    /// That checkpoint was lost, or another one was restored; only an older state of the whole job helps.
    #[error("{peer} needs messages from {needs}, but all up to {collected} were covered and may be collected")]
    Unrecoverable {
        /// Peer in need of them.
        peer: Rank,
        /// First missing message.
        needs: Ssn,
        /// Last covered message.
        collected: Ssn,
    },
    /// Rank death under a rule that keeps nothing ([`crate::unlogged`]).
    #[error(
        "{rank} has died, and nothing was kept of what was sent to it; a job that is to survive this needs another rule"
    )]
    NothingKept {
        /// The dead rank.
        rank: Rank,
    },
    /// All SSNs on a channel are used ([`Ssn::MAX`]).
    #[error("all sequence numbers of the channel to {peer} are used")]
    SsnsExhausted {
        /// The receiver.
        peer: Rank,
    },
    /// All epochs are used ([`Epoch::MAX`]).
    #[error("all epochs are used")]
    EpochsExhausted,
    /// Checkpoint while the outcome of a counted call is unknown: a restart from it could not number the calls as this
    /// execution did. Complete such requests first.
    #[error("a checkpoint while {open} non-deterministic calls are undecided")]
    ChoicesOpen {
        /// Their number.
        open: usize,
    },
    /// Report of a durable checkpoint other than the one being taken.
    #[error("no checkpoint of {epoch} was being taken")]
    NotCheckpointing {
        /// Named epoch.
        epoch: Epoch,
    },
    /// Report of a sealed local log without a requested seal.
    #[error("no local log of {epoch} was being sealed")]
    NotSealing {
        /// Named epoch.
        epoch: Epoch,
    },
    /// Collective already completed by this rank. Driver mistake, or a program restarted from a state other than its
    /// checkpoint's.
    #[error("collective {number} of communicator {comm}, of which all before {next} are complete")]
    CollectiveCompleted {
        /// The communicator's context number.
        comm: u32,
        /// Call number.
        number: u64,
        /// Number of the first incomplete call.
        next: u64,
    },
    /// Local-log entry, from this rank or a peer, that the rule neither keeps nor sends.
    #[error("entry {} of kind {:?} of a local log, which the rule doesn't keep", entry.number, entry.kind)]
    UnexpectedEntry {
        /// Entry key.
        entry: EntryKey,
    },
}

/// Rule violation by a peer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Misbehaviour {
    /// Acknowledgement or receipt claimed for an SSN never assigned.
    #[error("it has {claimed}, but only {sent} messages were sent")]
    ReceivedMoreThanSent {
        /// Highest SSN claimed.
        claimed: Ssn,
        /// Highest SSN sent.
        sent: Ssn,
    },
    /// Its durable checkpoint would cover messages it doesn't have.
    #[error("its durable checkpoint covers up to {covered}, but it has received only up to {received}")]
    CoversMoreThanReceived {
        /// Last message covered.
        covered: Ssn,
        /// Last message received.
        received: Ssn,
    },
    /// Its Hello names another rank than the connection's.
    #[error("it calls itself {name}")]
    WrongRank {
        /// Rank in its Hello.
        name: Rank,
    },
    /// The SSN of its message is outside the valid range.
    #[error("{ssn} is not the number of a message")]
    SsnOutOfRange {
        /// Message SSN.
        ssn: Ssn,
    },
    /// Equally many completed collectives on a communicator, but other kinds: the ranks don't run the same program.
    #[error("it has made other collective calls on communicator {comm} than this rank")]
    OtherCollectives {
        /// The communicator's context number.
        comm: u32,
    },
    /// Message unable to cross the open line in this direction (Bronevetsky, Claim 1).
    #[error("a message sent in {sent_in}, which {received_in} can't receive now")]
    OutOfLine {
        /// The sender's epoch.
        sent_in: Epoch,
        /// The receiver's epoch.
        received_in: Epoch,
    },
    /// Malformed notice.
    #[error("a notice of {len} bytes with the tag {tag} that can't be read")]
    MalformedNotice {
        /// Notice tag.
        tag: i32,
        /// Its length.
        len: usize,
    },
}

/// Reason for refusing to restore tables.
///
/// The protocol is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// Tables with another version.
    #[error("protocol tables of version {found}, expected {expected}")]
    Version {
        /// Version found.
        found: u8,
        /// Version written by this program.
        expected: u8,
    },
    /// Bytes other than such tables, cut short, or with trailing data.
    #[error("malformed protocol tables ({len} bytes)")]
    Malformed {
        /// Length in bytes.
        len: usize,
    },
    /// Tables from another rank.
    #[error("protocol tables of {found}, expected those of {expected}")]
    OtherRank {
        /// Writing rank.
        found: Rank,
        /// Restoring rank.
        expected: Rank,
    },
    /// Tables from a job with another size.
    #[error("protocol tables of a job of {found} ranks, expected {expected}")]
    OtherJob {
        /// Size of the other job.
        found: u32,
        /// Size of this job.
        expected: u32,
    },
    /// Channel numbers impossible for a window.
    #[error("protocol tables of the channel with {peer}")]
    Window {
        /// Channel peer.
        peer: Rank,
        /// Window error.
        #[source]
        source: StateError,
    },
    /// Contradictory numbers.
    #[error("protocol tables contradict themselves: {what}")]
    Contradiction {
        /// The contradiction.
        what: &'static str,
    },
    /// The protocol has already sent, received, chosen or connected.
    #[error("tables can only be restored into a protocol that has done nothing yet")]
    NotFresh,
}

/// Reason for refusing a choice or a recorded delivery.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChoiceError {
    /// Recovered record other than a choice.
    #[error("malformed choice record ({len} bytes)")]
    Malformed {
        /// Length in bytes.
        len: usize,
    },
    /// Outcome other than the forced one: the execution does not repeat its predecessor.
    #[error("forced to {forced:?}, but {found:?} was chosen")]
    Diverged {
        /// Choice by the earlier incarnation.
        forced: Determinant,
        /// Choice made now.
        found: Determinant,
    },
    /// No undecided call with this number: it was never counted, or is already decided.
    #[error("non-deterministic call {sequence} is not undecided")]
    NotOpen {
        /// Call number.
        sequence: u64,
    },
    /// Source outside the job.
    #[error("{rank} is not in a job of {ranks} ranks")]
    UnknownRank {
        /// The rank.
        rank: Rank,
        /// Job size in ranks.
        ranks: u32,
    },
    /// Two different records for one call.
    #[error("two different records of non-deterministic call {}: {first:?}, {second:?}", first.sequence)]
    Contradiction {
        /// Record read first.
        first: Determinant,
        /// Record read later.
        second: Determinant,
    },
    /// Recorded delivery, under a rule without delivery records.
    #[error("a recorded delivery ({len} bytes), which this rule never writes")]
    NotRecorded {
        /// Length in bytes.
        len: usize,
    },
    /// Record presented after re-execution had passed its number.
    #[error("choice {sequence} was recovered after the execution had passed it")]
    TooLate {
        /// Call number.
        sequence: u64,
    },
}

impl ProtocolError {
    /// Converts a refusal by the receive window for the channel from `peer`.
    pub fn from_recv(peer: Rank, error: RecvError) -> ProtocolError {
        match error {
            RecvError::TooManyExceptions(limit) => ProtocolError::OutOfOrder { peer, limit },
            RecvError::UnknownIncarnation { seen, known } => {
                ProtocolError::UnknownIncarnation { peer, incarnation: seen, known }
            }
            RecvError::SsnOutOfRange { ssn } => {
                ProtocolError::PeerMisbehaved { peer, how: Misbehaviour::SsnOutOfRange { ssn } }
            }
        }
    }

    /// Checks that `rank` exists in a job of `ranks`.
    ///
    /// # Errors
    /// [`ProtocolError::UnknownRank`].
    pub fn check_rank(rank: Rank, ranks: u32) -> Result<(), ProtocolError> {
        if rank.0 < ranks && rank <= Rank::MAX { Ok(()) } else { Err(ProtocolError::UnknownRank { rank, ranks }) }
    }

    /// Checks that `peer` is a rank in the job, other than `rank`.
    ///
    /// # Errors
    /// [`ProtocolError::UnknownRank`], [`ProtocolError::Misdirected`].
    pub fn check_peer(peer: Rank, rank: Rank, ranks: u32) -> Result<(), ProtocolError> {
        if peer.0 >= ranks {
            return Err(ProtocolError::UnknownRank { rank: peer, ranks });
        }
        if peer == rank {
            return Err(ProtocolError::Misdirected { source_rank: rank, destination: rank, rank });
        }
        Ok(())
    }

    /// Checks that `rank` is the source of a message.
    ///
    /// # Errors
    /// [`ProtocolError::Misdirected`].
    pub fn check_sender(source: Rank, destination: Rank, rank: Rank) -> Result<(), ProtocolError> {
        if source == rank { Ok(()) } else { Err(ProtocolError::Misdirected { source_rank: source, destination, rank }) }
    }

    /// Checks that a header to be transmitted belongs to a message from `rank`.
    ///
    /// # Errors
    /// [`ProtocolError::Misdirected`], [`ProtocolError::UnexpectedKind`].
    pub fn check_transmitted(header: &WireHeader, rank: Rank) -> Result<(), ProtocolError> {
        ProtocolError::check_sender(header.source(), header.destination(), rank)?;
        ProtocolError::check_message(header)
    }

    /// Checks that a frame is addressed to `rank` and comes from within `ranks`.
    ///
    /// # Errors
    /// [`ProtocolError::UnknownRank`], [`ProtocolError::Misdirected`].
    pub fn check_arrival(header: &WireHeader, rank: Rank, ranks: u32) -> Result<(), ProtocolError> {
        let (source_rank, destination) = (header.source(), header.destination());
        if source_rank.0 >= ranks {
            return Err(ProtocolError::UnknownRank { rank: source_rank, ranks });
        }
        if destination != rank {
            return Err(ProtocolError::Misdirected { source_rank, destination, rank });
        }
        Ok(())
    }

    /// Checks that a frame is a message.
    ///
    /// # Errors
    /// [`ProtocolError::UnexpectedKind`].
    pub fn check_message(header: &WireHeader) -> Result<(), ProtocolError> {
        match header.kind() {
            Kind::Message => Ok(()),
            kind => Err(ProtocolError::UnexpectedKind { peer: header.source(), kind }),
        }
    }

    /// Does [`check_arrival`](Self::check_arrival) for a frame on the connection with `peer`.
    ///
    /// # Errors
    /// See [`check_arrival`](Self::check_arrival); also [`ProtocolError::Misdirected`] for a frame from another rank.
    pub fn check_arrival_from(peer: Rank, header: &WireHeader, rank: Rank, ranks: u32) -> Result<(), ProtocolError> {
        ProtocolError::check_arrival(header, rank, ranks)?;
        let (source_rank, destination) = (header.source(), header.destination());
        if source_rank == peer { Ok(()) } else { Err(ProtocolError::Misdirected { source_rank, destination, rank }) }
    }

    /// Returns `true` if the incarnation in a frame is `known`, the living one of `peer`, and `false` if it is dead.
    ///
    /// # Errors
    /// [`ProtocolError::UnknownIncarnation`] for a newer one.
    pub fn check_incarnation(peer: Rank, incarnation: Incarnation, known: Incarnation) -> Result<bool, ProtocolError> {
        if incarnation > known {
            return Err(ProtocolError::UnknownIncarnation { peer, incarnation, known });
        }
        Ok(incarnation == known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_one_of_the_job() {
        for (rank, ranks, is_known) in [
            (0, 1, true),
            (1, 2, true),
            (2, 2, false),
            (Rank::MAX.0, u32::MAX, true),
            (Rank::MAX.0 + 1, u32::MAX, false),
        ] {
            let checked = ProtocolError::check_rank(Rank(rank), ranks);
            let unknown = Err(ProtocolError::UnknownRank { rank: Rank(rank), ranks });
            assert_eq!(checked, if is_known { Ok(()) } else { unknown }, "rank {rank} of {ranks}");
        }
    }
}
