//! Every number that the acknowledgement rules depend on.

use thiserror::Error;

/// When acks are asked for and given, and what a window may hold. Valid as it is by [`Default`];
/// [`validate`](AckPolicy::validate) refuses numbers that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckPolicy {
    /// A message of at most this many payload bytes is small: it is copied and gets no ack of its own. Larger
    /// ones are marked [`Flags::LARGE`](crate::Flags::LARGE). Default 1024 (Guermouche 2011, section V.C: 1 KB).
    pub small_message_limit: usize,
    /// Ask for an ack when more than this many messages of a channel are unacknowledged. Default 1024.
    pub unacked_records_max: u64,
    /// Ask for an ack when more than this many payload bytes of a channel are unacknowledged. Default 4 MiB.
    pub unacked_bytes_max: u64,
    /// How many separate ranges of SSNs a channel may have received beyond its first gap. A message that would
    /// begin one more is refused with [`TooManyExceptions`](crate::TooManyExceptions). Default 4096: 64 KiB for
    /// a channel that uses them all.
    pub exceptions_max: usize,
}

impl AckPolicy {
    /// The largest `exceptions_max`: 16 MiB for one channel.
    pub const EXCEPTIONS_LIMIT: usize = 1 << 20;

    /// Checks that the numbers make sense together.
    ///
    /// # Errors
    /// [`PolicyError`] names the field and its bounds.
    pub fn validate(&self) -> Result<(), PolicyError> {
        if self.unacked_records_max == 0 {
            return Err(PolicyError::NoRecords);
        }
        if self.unacked_bytes_max < self.small_message_limit as u64 {
            return Err(PolicyError::BytesBelowSmallMessage {
                unacked_bytes_max: self.unacked_bytes_max,
                small_message_limit: self.small_message_limit,
            });
        }
        if self.exceptions_max > Self::EXCEPTIONS_LIMIT {
            return Err(PolicyError::TooManyExceptions { exceptions_max: self.exceptions_max });
        }
        Ok(())
    }
}

impl Default for AckPolicy {
    fn default() -> Self {
        AckPolicy {
            small_message_limit: 1024,
            unacked_records_max: 1024,
            unacked_bytes_max: 4 << 20,
            exceptions_max: 4096,
        }
    }
}

/// Why [`AckPolicy::validate`] refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// With no message allowed unacknowledged, each would be followed by a request.
    #[error("unacked_records_max must be at least 1")]
    NoRecords,
    /// One small message would be followed by a request.
    #[error("unacked_bytes_max ({unacked_bytes_max}) must be at least small_message_limit ({small_message_limit})")]
    BytesBelowSmallMessage {
        /// As given.
        unacked_bytes_max: u64,
        /// As given.
        small_message_limit: usize,
    },
    /// More than [`AckPolicy::EXCEPTIONS_LIMIT`].
    #[error("exceptions_max ({exceptions_max}) must be at most {}", AckPolicy::EXCEPTIONS_LIMIT)]
    TooManyExceptions {
        /// As given.
        exceptions_max: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_has_the_papers_threshold() {
        let policy = AckPolicy::default();
        assert_eq!(policy.validate(), Ok(()));
        assert_eq!(policy.small_message_limit, 1024);
    }

    #[test]
    fn numbers_that_contradict_each_other_are_refused_by_name() {
        let records = AckPolicy { unacked_records_max: 0, ..AckPolicy::default() };
        assert_eq!(records.validate(), Err(PolicyError::NoRecords));
        let bytes = AckPolicy { unacked_bytes_max: 1023, ..AckPolicy::default() };
        assert!(bytes.validate().unwrap_err().to_string().contains("1023"));
        let exceptions = AckPolicy { exceptions_max: usize::MAX, ..AckPolicy::default() };
        assert!(matches!(exceptions.validate(), Err(PolicyError::TooManyExceptions { .. })));
    }
}
