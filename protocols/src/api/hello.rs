//! The Hello: first frame in each direction on a new connection.

use counterfoil_ack_piggyback::state::ReceivedSetState;
use counterfoil_ack_piggyback::{ReceivedSet, StateError};
use counterfoil_log_core::{Epoch, Incarnation, Rank, Ssn};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// First frame from a rank on a connection, made for one peer.
///
/// It describes the sender's present state only, so a notice lost with an earlier connection does no harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The sender's rank.
    pub rank: Rank,
    /// The sender's incarnation.
    pub incarnation: Incarnation,
    /// The sender's epoch.
    pub epoch: Epoch,
    /// Messages received on the channel from the peer.
    pub received: ReceivedSet,
    /// Epoch begun by its newest durable checkpoint, and the last message on this channel covered by the checkpoint.
    /// [`Epoch::FIRST`] and [`Ssn::ZERO`] before any.
    pub covered: (Epoch, Ssn),
    /// Last SSN assigned to a message to the peer. In a replacement: that of its checkpoint, plus messages re-executed
    /// since.
    pub sent: Ssn,
    /// Last of these with an acknowledgement seen.
    pub acked: Ssn,
    /// Opaque protocol state; empty in the sender-based rule.
    pub opaque: Vec<u8>,
}

/// Error in encoding or decoding a Hello.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HelloError {
    /// Longer than [`Hello::BYTES_MAX`].
    #[error("a hello of {len} bytes; at most {} are allowed", Hello::BYTES_MAX)]
    TooLong {
        /// Length found.
        len: usize,
    },
    /// Another format version.
    #[error("hello of version {found}, expected {}", Hello::VERSION)]
    Version {
        /// Version found.
        found: u8,
    },
    /// Bytes other than a Hello, cut short, or with trailing data.
    #[error("malformed hello")]
    Malformed,
    /// Number outside its range, or more acknowledged than sent.
    #[error("a hello whose field `{field}` is out of range")]
    OutOfRange {
        /// Field name.
        field: &'static str,
    },
    /// Malformed received set.
    #[error("a hello whose set of received messages is malformed: {0}")]
    Received(#[from] StateError),
}

/// Encoded form: plain numbers, so the nouns need not know the encoding.
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
    opaque: Vec<u8>,
}

impl Hello {
    /// Largest encoded size, in bytes.
    pub const BYTES_MAX: usize = 256 * 1024;
    /// Maximum number of encoded exception ranges.
    ///
    /// The peer transmits messages beyond them once more, and they are dropped as duplicates.
    pub const EXCEPTIONS_MAX: usize = 4096;
    /// Encoding version: the first byte.
    pub const VERSION: u8 = 1;

    /// Encodes the Hello: one version byte, then postcard.
    ///
    /// # Errors
    /// [`HelloError::TooLong`] if the opaque state is too long.
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
            opaque: self.opaque.clone(),
        };
        let bytes = postcard::to_extend(&encoded, vec![Self::VERSION]).map_err(|_| HelloError::Malformed)?;
        if bytes.len() > Self::BYTES_MAX {
            return Err(HelloError::TooLong { len: bytes.len() });
        }
        Ok(bytes)
    }

    /// Decodes a Hello, and checks every number as far as possible without knowing the channel.
    ///
    /// # Errors
    /// [`HelloError`] for bytes failing a check.
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
            opaque: encoded.opaque,
        })
    }
}
