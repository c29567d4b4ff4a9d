//! Errors, one enum for each kind of operation.

use counterfoil_ack_piggyback::{Kind, PolicyError, RecvError, StateError, TooManyExceptions, WireHeader};
use counterfoil_log_core::{Determinant, Epoch, Incarnation, Rank, Ssn};
use thiserror::Error;

use super::EntryKey;

/// Reason for refusing an event. The event changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// Acknowledgement policy whose numbers contradict each other.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// No such rank in this job.
    #[error("{rank} is not in a job of {ranks} ranks")]
    UnknownRank {
        /// Rank that was named.
        rank: Rank,
        /// Number of ranks in the job.
        ranks: u32,
    },
    /// Frame from or to another rank than expected: mistake of the driver, or a confused peer.
    #[error("a frame from {source_rank} to {destination} was presented to {rank}")]
    Misdirected {
        /// Sender of the frame.
        source_rank: Rank,
        /// Destination of the frame.
        destination: Rank,
        /// Rank that it was presented to.
        rank: Rank,
    },
    /// Control frame where a message was expected, or the reverse.
    #[error("unexpected frame of kind {kind:?} from {peer}")]
    UnexpectedKind {
        /// Sender of the frame.
        peer: Rank,
        /// Kind of the frame.
        kind: Kind,
    },
    /// The rule has no coordinator.
    #[error("this protocol has no coordinator")]
    NoCoordinator,
    /// Frame of an incarnation that hasn't sent its Hello. Mistake of the driver: Hello comes first.
    #[error("a frame of {peer}, {incarnation}, before its hello (known is {known})")]
    UnknownIncarnation {
        /// Sender of the frame.
        peer: Rank,
        /// Incarnation of the sender.
        incarnation: Incarnation,
        /// Newest incarnation that has sent a Hello.
        known: Incarnation,
    },
    /// Hello of an incarnation that has been replaced. Close the connection: the process at its other end is dead.
    #[error("hello of {peer}, {incarnation}, which {now} has replaced")]
    DeadHello {
        /// Sender of the Hello.
        peer: Rank,
        /// Incarnation of the sender.
        incarnation: Incarnation,
        /// Newest incarnation known.
        now: Incarnation,
    },
    /// Impossible claim of a peer. Don't trust the connection.
    #[error("{peer} contradicts the rules: {how}")]
    PeerMisbehaved {
        /// Peer that misbehaved.
        peer: Rank,
        /// Rule that it broke.
        how: Misbehaviour,
    },
    /// Too many gaps between the messages taken from a peer: the set of exceptions is at its limit. Take other messages
    /// of that peer first.
    #[error("too much of {peer} was taken out of order")]
    OutOfOrder {
        /// Sender of the frame.
        peer: Rank,
        /// Limit from the policy.
        #[source]
        limit: TooManyExceptions,
    },
    /// Message that isn't the next of its channel, under a rule that records the delivery order. Mistake of the driver:
    /// messages are to be presented in channel order; or the recorded order is another execution's.
    #[error("message {found} of {peer}, where {expected} is the next")]
    UnexpectedSsn {
        /// Sender of the frame.
        peer: Rank,
        /// SSN that is next.
        expected: Ssn,
        /// SSN of the message.
        found: Ssn,
    },
    /// Delivery record missing although those of later deliveries exist: the log is damaged, and the delivery order is
    /// lost.
    #[error("the record of delivery {missing} is missing, and that of delivery {present} is there")]
    MissingDelivery {
        /// First delivery that is missing.
        missing: u64,
        /// First later delivery that exists.
        present: u64,
    },
    /// Checkpoint while recorded deliveries are still to be repeated: it would cover deliveries that others depend on
    /// and that have not happened again. See [`super::Protocol::wants_checkpoint`].
    #[error("a checkpoint while {pending} recorded deliveries have to be repeated")]
    DeliveriesPending {
        /// Number of them.
        pending: usize,
    },
    /// Replacement that lacks collected messages, because its predecessor had reported a durable checkpoint that
    /// covered them. That checkpoint was lost, or another one was restored; only an older state of the whole job helps.
    #[error("{peer} needs messages from {needs}, but all up to {collected} were covered and may be collected")]
    Unrecoverable {
        /// Peer that needs them.
        peer: Rank,
        /// First message that it lacks.
        needs: Ssn,
        /// Last message that it had covered.
        collected: Ssn,
    },
    /// Rank that died under a rule that keeps nothing ([`crate::unlogged`]).
    #[error(
        "{rank} has died, and nothing was kept of what was sent to it; a job that is to survive this needs another rule"
    )]
    NothingKept {
        /// The dead rank.
        rank: Rank,
    },
    /// All SSNs of a channel are used ([`Ssn::MAX`]).
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
        /// Number of them.
        open: usize,
    },
    /// Durable checkpoint reported that isn't the one being taken.
    #[error("no checkpoint of {epoch} was being taken")]
    NotCheckpointing {
        /// Epoch that was named.
        epoch: Epoch,
    },
    /// Sealed local log reported that was not to be sealed.
    #[error("no local log of {epoch} was being sealed")]
    NotSealing {
        /// Epoch that was named.
        epoch: Epoch,
    },
    /// Collective that this rank has completed. Mistake of the driver, or a program that restarted from another state
    /// than its checkpoint's.
    #[error("collective {number} of communicator {comm}, of which all before {next} are complete")]
    CollectiveCompleted {
        /// Context number of the communicator.
        comm: u32,
        /// Number of the call.
        number: u64,
        /// Number of the first call that isn't complete.
        next: u64,
    },
    /// Entry of a local log, of this rank or of a peer, that the rule neither keeps nor sends.
    #[error("entry {} of kind {:?} of a local log, which the rule doesn't keep", entry.number, entry.kind)]
    UnexpectedEntry {
        /// Key of the entry.
        entry: EntryKey,
    },
}

/// Violation of the rules by a peer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Misbehaviour {
    /// It acknowledged, or claims to have, an SSN that was never assigned.
    #[error("it has {claimed}, but only {sent} messages were sent")]
    ReceivedMoreThanSent {
        /// Highest SSN that it claims.
        claimed: Ssn,
        /// Highest SSN that was sent.
        sent: Ssn,
    },
    /// Its durable checkpoint would cover messages that it doesn't have.
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
        /// SSN of the message.
        ssn: Ssn,
    },
    /// It has completed as many collectives of a communicator, but of other kinds: the ranks don't run the same
    /// program.
    #[error("it has made other collective calls on communicator {comm} than this rank")]
    OtherCollectives {
        /// Context number of the communicator.
        comm: u32,
    },
    /// Message that can't cross the open line in this direction (Bronevetsky, Claim 1).
    #[error("a message sent in {sent_in}, which {received_in} can't receive now")]
    OutOfLine {
        /// The sender's epoch.
        sent_in: Epoch,
        /// The receiver's epoch.
        received_in: Epoch,
    },
    /// Notice that doesn't parse.
    #[error("a notice of {len} bytes with the tag {tag} that can't be read")]
    MalformedNotice {
        /// Tag of the notice.
        tag: i32,
        /// Its length.
        len: usize,
    },
}

/// Reason for refusing to restore tables. The protocol is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// Tables of another version.
    #[error("protocol tables of version {found}, expected {expected}")]
    Version {
        /// Version found.
        found: u8,
        /// Version that this program writes.
        expected: u8,
    },
    /// Bytes that are not such tables, are cut short, or have trailing data.
    #[error("malformed protocol tables ({len} bytes)")]
    Malformed {
        /// Number of bytes.
        len: usize,
    },
    /// Tables of another rank.
    #[error("protocol tables of {found}, expected those of {expected}")]
    OtherRank {
        /// Rank that wrote them.
        found: Rank,
        /// Rank that restores.
        expected: Rank,
    },
    /// Tables of a job of another size.
    #[error("protocol tables of a job of {found} ranks, expected {expected}")]
    OtherJob {
        /// Size of that job.
        found: u32,
        /// Size of this job.
        expected: u32,
    },
    /// Channel numbers that are not those of a window.
    #[error("protocol tables of the channel with {peer}")]
    Window {
        /// Peer of the channel.
        peer: Rank,
        /// Error of the window.
        #[source]
        source: StateError,
    },
    /// Numbers that contradict each other.
    #[error("protocol tables contradict themselves: {what}")]
    Contradiction {
        /// Name of the contradiction.
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
    /// Bytes of a recovered record that are not a choice.
    #[error("malformed choice record ({len} bytes)")]
    Malformed {
        /// Number of bytes.
        len: usize,
    },
    /// Outcome other than the forced one: the execution does not repeat its predecessor.
    #[error("forced to {forced:?}, but {found:?} was chosen")]
    Diverged {
        /// Choice of the earlier incarnation.
        forced: Determinant,
        /// Choice made now.
        found: Determinant,
    },
    /// No undecided call of this number: it was never counted, or is already decided.
    #[error("non-deterministic call {sequence} is not undecided")]
    NotOpen {
        /// Number of the call.
        sequence: u64,
    },
    /// Source outside the job.
    #[error("{rank} is not in a job of {ranks} ranks")]
    UnknownRank {
        /// The rank.
        rank: Rank,
        /// Number of ranks in the job.
        ranks: u32,
    },
    /// Two different records of one call.
    #[error("two different records of non-deterministic call {}: {first:?}, {second:?}", first.sequence)]
    Contradiction {
        /// Record that was read first.
        first: Determinant,
        /// Record that was read later.
        second: Determinant,
    },
    /// Recorded delivery, under a rule that records none.
    #[error("a recorded delivery ({len} bytes), which this rule never writes")]
    NotRecorded {
        /// Number of bytes.
        len: usize,
    },
    /// Record presented after re-execution had passed its number.
    #[error("choice {sequence} was recovered after the execution had passed it")]
    TooLate {
        /// Number of the call.
        sequence: u64,
    },
}

impl ProtocolError {
    /// Converts a refusal by the receive window of the channel from `peer`.
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

    /// Checks that a job of `ranks` can have `rank`.
    ///
    /// # Errors
    /// [`ProtocolError::UnknownRank`].
    pub fn check_rank(rank: Rank, ranks: u32) -> Result<(), ProtocolError> {
        if rank.0 < ranks && rank <= Rank::MAX { Ok(()) } else { Err(ProtocolError::UnknownRank { rank, ranks }) }
    }

    /// Checks that `peer` is another rank of the job than `rank`.
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

    /// Checks that a header to be transmitted is that of a message of `rank`.
    ///
    /// # Errors
    /// [`ProtocolError::Misdirected`], [`ProtocolError::UnexpectedKind`].
    pub fn check_transmitted(header: &WireHeader, rank: Rank) -> Result<(), ProtocolError> {
        ProtocolError::check_sender(header.source(), header.destination(), rank)?;
        ProtocolError::check_message(header)
    }

    /// Checks that a frame is addressed to `rank` and comes from one of `ranks`.
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

    /// Does [`check_arrival`](Self::check_arrival) for a frame that came on the connection with `peer`.
    ///
    /// # Errors
    /// Those of it, and [`ProtocolError::Misdirected`] for a frame of another rank.
    pub fn check_arrival_from(peer: Rank, header: &WireHeader, rank: Rank, ranks: u32) -> Result<(), ProtocolError> {
        ProtocolError::check_arrival(header, rank, ranks)?;
        let (source_rank, destination) = (header.source(), header.destination());
        if source_rank == peer { Ok(()) } else { Err(ProtocolError::Misdirected { source_rank, destination, rank }) }
    }

    /// Returns `true` if a frame's incarnation is `known`, the living one of `peer`, and `false` if it is dead.
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
