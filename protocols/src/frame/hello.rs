//! What two ranks tell each other whenever they are connected (again).

use counterfoil_ack_piggyback::state::ReceivedSetState;
use counterfoil_ack_piggyback::{ReceivedSet, StateError};
use counterfoil_log_core::{Epoch, Incarnation, Rank, Ssn};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The first thing that a rank says on a connection, to one peer.
///
/// Everything in it is a fact about the speaker's present state, so that a notice that was lost with an earlier
/// connection does no harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Who speaks.
    pub rank: Rank,
    /// In which incarnation.
    pub incarnation: Incarnation,
    /// In which epoch.
    pub epoch: Epoch,
    /// What it has received on the channel from the peer to itself.
    pub received: ReceivedSet,
    /// The epoch that its newest durable checkpoint began, and the last message of that channel which the checkpoint
    /// covers. [`Epoch::FIRST`] and [`Ssn::ZERO`] before any.
    pub covered: (Epoch, Ssn),
    /// The last number that it has given to a message to the peer so far. In a replacement: as far as its checkpoint
    /// goes, plus what it has re-executed since.
    pub sent: Ssn,
    /// Up to which of these it has seen acknowledgements.
    pub acked: Ssn,
    /// The protocol's own facts; empty in the sender-based rule.
    pub own: Vec<u8>,
}

/// A Hello that can't be written or read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HelloError {
    /// Longer than [`Hello::BYTES_MAX`].
    #[error("a hello of {len} bytes; at most {} are allowed", Hello::BYTES_MAX)]
    TooLong {
        /// Its length.
        len: usize,
    },
    /// Another version of this format.
    #[error("hello of version {found}, expected {}", Hello::VERSION)]
    Version {
        /// The version that it says it has.
        found: u8,
    },
    /// Not a hello, or cut short, or followed by something.
    #[error("malformed hello")]
    Malformed,
    /// A number outside its range, or more acknowledged than sent.
    #[error("a hello whose field `{field}` is out of range")]
    OutOfRange {
        /// Which one.
        field: &'static str,
    },
    /// What it says that it has received is no set.
    #[error("a hello whose set of received messages is malformed: {0}")]
    Received(#[from] StateError),
}

/// The encoded form: plain numbers, so that the nouns need not know the encoding.
#[derive(Serialize, Deserialize)]
struct Encoded {
    rank: u32,
    incarnation: u32,
    epoch: u32,
    received: ReceivedSetState,
    covered_epoch: u32,
    covered_upto: u64,
    sent: u64,
    acked: u64,
    own: Vec<u8>,
}

impl Hello {
    /// The largest encoded size, in bytes.
    pub const BYTES_MAX: usize = 256 * 1024;
    /// How many ranges of exceptions are told. What lies beyond is left out: the peer then sends it once more, and it is
    /// dropped as a duplicate.
    pub const EXCEPTIONS_MAX: usize = 4096;
    /// The version of the encoding: its first byte.
    pub const VERSION: u8 = 1;

    /// Encodes it: one byte of version, then postcard.
    ///
    /// # Errors
    /// [`HelloError::TooLong`], if the protocol's own facts are.
    pub fn encode(&self) -> Result<Vec<u8>, HelloError> {
        let mut received = self.received.snapshot();
        received.exceptions.truncate(Self::EXCEPTIONS_MAX);
        let encoded = Encoded {
            rank: self.rank.0,
            incarnation: self.incarnation.0,
            epoch: self.epoch.0,
            received,
            covered_epoch: self.covered.0.0,
            covered_upto: self.covered.1.0,
            sent: self.sent.0,
            acked: self.acked.0,
            own: self.own.clone(),
        };
        let bytes = postcard::to_extend(&encoded, vec![Self::VERSION]).map_err(|_| HelloError::Malformed)?;
        if bytes.len() > Self::BYTES_MAX {
            return Err(HelloError::TooLong { len: bytes.len() });
        }
        Ok(bytes)
    }

    /// Decodes it, and checks every number that can be judged without knowing the channel.
    ///
    /// # Errors
    /// [`HelloError`].
    pub fn decode(bytes: &[u8]) -> Result<Hello, HelloError> {
        if bytes.len() > Self::BYTES_MAX {
            return Err(HelloError::TooLong { len: bytes.len() });
        }
        let (&version, rest) = bytes.split_first().ok_or(HelloError::Malformed)?;
        if version != Self::VERSION {
            return Err(HelloError::Version { found: version });
        }
        let (encoded, rest) = postcard::take_from_bytes::<Encoded>(rest).map_err(|_| HelloError::Malformed)?;
        if !rest.is_empty() {
            return Err(HelloError::Malformed);
        }
        let epochs = Epoch::FIRST.0..=Epoch::MAX.0;
        let received = ReceivedSet::restore(&encoded.received)?;
        for (field, in_range) in [
            ("rank", encoded.rank <= Rank::MAX.0),
            ("epoch", epochs.contains(&encoded.epoch)),
            ("covered epoch", epochs.contains(&encoded.covered_epoch)),
            ("covered", encoded.covered_upto <= Ssn::MAX.0),
            ("sent", encoded.sent <= Ssn::MAX.0),
            ("acked", encoded.acked <= encoded.sent),
        ] {
            if !in_range {
                return Err(HelloError::OutOfRange { field });
            }
        }
        Ok(Hello {
            rank: Rank(encoded.rank),
            incarnation: Incarnation(encoded.incarnation),
            epoch: Epoch(encoded.epoch),
            received,
            covered: (Epoch(encoded.covered_epoch), Ssn(encoded.covered_upto)),
            sent: Ssn(encoded.sent),
            acked: Ssn(encoded.acked),
            own: encoded.own,
        })
    }
}
