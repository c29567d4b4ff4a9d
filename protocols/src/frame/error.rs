//! What can go wrong, one enum for each kind of operation.

use counterfoil_ack_piggyback::{Kind, PolicyError, RecvError, StateError, TooManyExceptions, WireHeader};
use counterfoil_log_core::{Determinant, Epoch, Incarnation, Rank, Ssn};
use thiserror::Error;

/// Why an event was refused. Nothing of it was taken into account.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// An acknowledgement policy whose numbers contradict each other.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// No such rank in this job.
    #[error("{rank} is not in a job of {ranks} ranks")]
    UnknownRank {
        /// The rank that was named.
        rank: Rank,
        /// How many there are.
        ranks: u32,
    },
    /// A message or frame that goes from elsewhere, or to elsewhere. Driver's mistake, or a confused peer.
    #[error("a frame from {source_rank} to {destination} was presented to {rank}")]
    Misdirected {
        /// Who sent it.
        source_rank: Rank,
        /// Whom it is for.
        destination: Rank,
        /// Who was asked.
        rank: Rank,
    },
    /// A control frame where a message was expected, or the reverse.
    #[error("unexpected frame of kind {kind:?} from {peer}")]
    UnexpectedKind {
        /// Who sent it.
        peer: Rank,
        /// What it is.
        kind: Kind,
    },
    /// The rule has no coordinator.
    #[error("this protocol has no coordinator")]
    NoCoordinator,
    /// A frame of an incarnation that hasn't said Hello. Driver's mistake: Hello comes first.
    #[error("a frame of {peer}, {incarnation}, before its hello (known is {known})")]
    NotMet {
        /// Who sent it.
        peer: Rank,
        /// In which incarnation.
        incarnation: Incarnation,
        /// The newest incarnation that has said Hello.
        known: Incarnation,
    },
    /// A Hello of an incarnation that has been replaced. Close the connection: nobody lives at its other end.
    #[error("hello of {peer}, {incarnation}, which {now} has replaced")]
    DeadHello {
        /// Who spoke.
        peer: Rank,
        /// In which incarnation.
        incarnation: Incarnation,
        /// The newest one known.
        now: Incarnation,
    },
    /// A peer said what can't be true. Don't trust the connection.
    #[error("{peer} contradicts the rules: {how}")]
    PeerMisbehaved {
        /// Who.
        peer: Rank,
        /// In which way.
        how: Misbehaviour,
    },
    /// So much is missing between the messages taken from a peer that the set of exceptions is at its limit. Take others of
    /// that peer first.
    #[error("too much of {peer} was taken out of order")]
    OutOfOrder {
        /// Who sent it.
        peer: Rank,
        /// The limit, from the policy.
        #[source]
        limit: TooManyExceptions,
    },
    /// A message that isn't the next of its channel, under a rule that records in which order messages are delivered. Driver's
    /// mistake: messages are to be presented in channel order; or the record of the order is another execution's.
    #[error("message {found} of {peer}, where {expected} is the next")]
    OutOfTurn {
        /// Who sent it.
        peer: Rank,
        /// The number that is next.
        expected: Ssn,
        /// Its number.
        found: Ssn,
    },
    /// The record of a delivery is missing, and those of later ones are there: the log that they come from is damaged, and
    /// nobody knows any more in which order messages were delivered.
    #[error("the record of delivery {missing} is missing, and that of delivery {present} is there")]
    OrderLost {
        /// The first that is missing.
        missing: u64,
        /// The first behind it that is there.
        present: u64,
    },
    /// A checkpoint while recorded deliveries still have to be repeated: it would cover some that others depend on and that
    /// have not happened again. See [`super::Protocol::wants_checkpoint`].
    #[error("a checkpoint while {rest} recorded deliveries have to be repeated")]
    Repeating {
        /// How many.
        rest: usize,
    },
    /// A replacement lacks messages that were collected, because its predecessor had said that a durable checkpoint
    /// covered them. Its checkpoint was lost or is not the one that was durable; only an older state of the whole job helps.
    #[error("{peer} needs messages from {needs}, but all up to {collected} were covered and may be collected")]
    Unrecoverable {
        /// Who needs them.
        peer: Rank,
        /// The first that it lacks.
        needs: Ssn,
        /// The last that it had covered.
        collected: Ssn,
    },
    /// The numbers of a channel have run out ([`Ssn::MAX`]).
    #[error("all sequence numbers of the channel to {peer} are used")]
    SsnsExhausted {
        /// The receiver.
        peer: Rank,
    },
    /// The epochs have run out ([`Epoch::MAX`]).
    #[error("all epochs are used")]
    EpochsExhausted,
    /// A checkpoint while the outcome of a counted call is still unknown: a restart from it could not number the calls
    /// as this execution did. Complete such requests first.
    #[error("a checkpoint while {open} non-deterministic calls are undecided")]
    ChoicesOpen {
        /// How many.
        open: usize,
    },
    /// A checkpoint was reported durable that isn't the one being taken.
    #[error("no checkpoint of {epoch} was being taken")]
    NotCheckpointing {
        /// The epoch that was named.
        epoch: Epoch,
    },
    /// A local log was reported sealed that was not to be.
    #[error("no local log of {epoch} was being sealed")]
    NotSealing {
        /// The epoch that was named.
        epoch: Epoch,
    },
}

/// How a peer broke the rules.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Misbehaviour {
    /// It acknowledged, or claims to have, a number that was never given out.
    #[error("it has {claimed}, but only {sent} messages were sent")]
    ReceivedMoreThanSent {
        /// What it claims.
        claimed: Ssn,
        /// What was sent.
        sent: Ssn,
    },
    /// Its durable checkpoint would cover what it doesn't have.
    #[error("its durable checkpoint covers up to {covered}, but it has received only up to {received}")]
    CoversMoreThanReceived {
        /// Covered.
        covered: Ssn,
        /// Received.
        received: Ssn,
    },
    /// It calls itself another rank than the connection's.
    #[error("it calls itself {name}")]
    OtherName {
        /// The name in its Hello.
        name: Rank,
    },
    /// The number of its message is not one.
    #[error("{ssn} is not the number of a message")]
    SsnOutOfRange {
        /// What it is.
        ssn: Ssn,
    },
    /// A notice that doesn't parse.
    #[error("a notice of {len} bytes with the tag {tag} that can't be read")]
    MalformedNotice {
        /// Its tag.
        tag: i32,
        /// Its length.
        len: usize,
    },
}

/// Why tables can't be put back. The protocol is as it was.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// Another version of the tables.
    #[error("protocol tables of version {found}, expected {expected}")]
    Version {
        /// The version found.
        found: u8,
        /// The version that this program writes.
        expected: u8,
    },
    /// The bytes are not such tables, or are cut short, or something follows them.
    #[error("malformed protocol tables ({len} bytes)")]
    Malformed {
        /// How many bytes there were.
        len: usize,
    },
    /// The tables of another rank.
    #[error("protocol tables of {found}, expected those of {expected}")]
    OtherRank {
        /// Whose they are.
        found: Rank,
        /// Who asked.
        expected: Rank,
    },
    /// The tables of a job of another size.
    #[error("protocol tables of a job of {found} ranks, expected {expected}")]
    OtherJob {
        /// Its size.
        found: u32,
        /// The size of this job.
        expected: u32,
    },
    /// The numbers of a channel are not those of a window.
    #[error("protocol tables of the channel with {peer}")]
    Window {
        /// The other end of the channel.
        peer: Rank,
        /// What is wrong with them.
        #[source]
        source: StateError,
    },
    /// Numbers that contradict each other.
    #[error("protocol tables contradict themselves: {what}")]
    Contradiction {
        /// Which numbers.
        what: &'static str,
    },
    /// Something was sent, received, chosen or met before.
    #[error("tables can only be restored into a protocol that has done nothing yet")]
    NotFresh,
}

/// Why a choice can't be taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChoiceError {
    /// The bytes of a recovered record are not a choice.
    #[error("malformed choice record ({len} bytes)")]
    Malformed {
        /// How many bytes there were.
        len: usize,
    },
    /// The outcome isn't the one that was forced: the execution does not repeat.
    #[error("forced to {forced:?}, but {found:?} was chosen")]
    Diverged {
        /// What the earlier incarnation chose.
        forced: Determinant,
        /// What was chosen now.
        found: Determinant,
    },
    /// No call of this number is undecided: it was never counted, or was decided before.
    #[error("non-deterministic call {sequence} is not undecided")]
    NotOpen {
        /// Its number.
        sequence: u64,
    },
    /// A source that isn't a rank of the job.
    #[error("{rank} is not in a job of {ranks} ranks")]
    UnknownRank {
        /// The rank.
        rank: Rank,
        /// How many there are.
        ranks: u32,
    },
    /// Two records of one call that differ.
    #[error("two different records of non-deterministic call {}: {first:?}, {second:?}", first.sequence)]
    Contradiction {
        /// The one that was read first.
        first: Determinant,
        /// The other.
        second: Determinant,
    },
    /// A recorded delivery, under a rule that records none.
    #[error("a recorded delivery ({len} bytes), which this rule never writes")]
    NotRecorded {
        /// How many bytes there were.
        len: usize,
    },
    /// A record was presented after re-execution had begun to ask for choices.
    #[error("choice {sequence} was recovered after the execution had passed it")]
    TooLate {
        /// Its number.
        sequence: u64,
    },
}

impl ProtocolError {
    /// Why the receive window of the channel from `peer` refuses a message.
    pub(crate) fn of_message(peer: Rank, error: RecvError) -> ProtocolError {
        match error {
            RecvError::TooManyExceptions(limit) => ProtocolError::OutOfOrder { peer, limit },
            RecvError::UnknownIncarnation { seen, known } => ProtocolError::NotMet { peer, incarnation: seen, known },
            RecvError::SsnOutOfRange { ssn } => {
                ProtocolError::PeerMisbehaved { peer, how: Misbehaviour::SsnOutOfRange { ssn } }
            }
        }
    }

    /// Whether a message from `source` to `destination` is one that `rank` may send.
    pub(crate) fn check_sender(source: Rank, destination: Rank, rank: Rank) -> Result<(), ProtocolError> {
        if source == rank { Ok(()) } else { Err(ProtocolError::Misdirected { source_rank: source, destination, rank }) }
    }

    /// Whether the header of a record that goes on the wire is one of `rank`'s messages.
    pub(crate) fn check_transmitted(header: &WireHeader, rank: Rank) -> Result<(), ProtocolError> {
        ProtocolError::check_sender(header.source(), header.destination(), rank)?;
        ProtocolError::check_message(header)
    }

    /// Whether a frame that arrives at `rank` is for it, and from one of `ranks`.
    pub(crate) fn check_arrival(header: &WireHeader, rank: Rank, ranks: u32) -> Result<(), ProtocolError> {
        let (source_rank, destination) = (header.source(), header.destination());
        if source_rank.0 >= ranks {
            return Err(ProtocolError::UnknownRank { rank: source_rank, ranks });
        }
        if destination != rank {
            return Err(ProtocolError::Misdirected { source_rank, destination, rank });
        }
        Ok(())
    }

    /// Whether a frame is a message.
    pub(crate) fn check_message(header: &WireHeader) -> Result<(), ProtocolError> {
        match header.kind() {
            Kind::Message => Ok(()),
            kind => Err(ProtocolError::UnexpectedKind { peer: header.source(), kind }),
        }
    }

    /// As [`check_arrival`](Self::check_arrival), of a frame that came on the connection with `peer`.
    pub(crate) fn check_arrival_from(
        peer: Rank,
        header: &WireHeader,
        rank: Rank,
        ranks: u32,
    ) -> Result<(), ProtocolError> {
        ProtocolError::check_arrival(header, rank, ranks)?;
        let (source_rank, destination) = (header.source(), header.destination());
        if source_rank == peer { Ok(()) } else { Err(ProtocolError::Misdirected { source_rank, destination, rank }) }
    }

    /// Whether a frame of this incarnation of `peer` comes from the living one, `known`; one that isn't known yet is refused.
    pub(crate) fn check_living(
        peer: Rank,
        incarnation: Incarnation,
        known: Incarnation,
    ) -> Result<bool, ProtocolError> {
        if incarnation > known {
            return Err(ProtocolError::NotMet { peer, incarnation, known });
        }
        Ok(incarnation == known)
    }
}
