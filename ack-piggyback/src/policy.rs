//! Acknowledgement limits.

use thiserror::Error;

/// Thresholds for acks and ack requests, and the capacity of a receive window.
///
/// [`Default`] is valid; [`validate`](AckPolicy::validate) refuses contradictory numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckPolicy {
    /// Largest payload of a small message, in bytes. Small messages are copied and get no explicit ack. Larger messages
    /// are marked [`Flags::LARGE`](crate::Flags::LARGE). Default 1024 (Guermouche 2011, section V.C: 1 KB).
    pub small_message_limit: usize,
    /// Request an ack when more than this many messages on a channel are unacknowledged. Default 1024.
    pub unacked_records_max: u64,
    /// Request an ack when more than this many payload bytes on a channel are unacknowledged. Default 4 MiB.
    pub unacked_bytes_max: u64,
    /// Maximum number of separate SSN ranges received beyond a channel's first gap. A message beginning one more is
    /// refused with [`TooManyExceptions`](crate::TooManyExceptions). Default 4096: 64 KiB for a channel that uses them
    /// all.
    pub exceptions_max: usize,
}

impl AckPolicy {
    /// Largest valid `exceptions_max`: 16 MiB for one channel.
    pub const EXCEPTIONS_LIMIT: usize = 1 << 20;

    /// Checks every limit.
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

/// A limit is out of range, or contradicts another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// `unacked_records_max` is 0: every message would be followed by a request.
    #[error("unacked_records_max must be at least 1")]
    NoRecords,
    /// A single small message would exceed `unacked_bytes_max` and be followed by a request.
    #[error("unacked_bytes_max ({unacked_bytes_max}) must be at least small_message_limit ({small_message_limit})")]
    BytesBelowSmallMessage {
        /// The refused value.
        unacked_bytes_max: u64,
        /// The contradicted limit.
        small_message_limit: usize,
    },
    /// `exceptions_max` exceeds [`AckPolicy::EXCEPTIONS_LIMIT`].
    #[error("exceptions_max ({exceptions_max}) must be at most {}", AckPolicy::EXCEPTIONS_LIMIT)]
    TooManyExceptions {
        /// The refused value.
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
    fn every_limit_may_be_at_its_bound() {
        let at_bounds = AckPolicy {
            small_message_limit: 1024,
            unacked_records_max: 1,
            unacked_bytes_max: 1024,
            exceptions_max: AckPolicy::EXCEPTIONS_LIMIT,
        };
        assert_eq!(at_bounds.validate(), Ok(()));
    }

    #[test]
    fn contradictory_limits_are_refused_by_name() {
        let records = AckPolicy { unacked_records_max: 0, ..AckPolicy::default() };
        assert_eq!(records.validate(), Err(PolicyError::NoRecords));
        let bytes = AckPolicy { unacked_bytes_max: 1023, ..AckPolicy::default() };
        assert!(bytes.validate().unwrap_err().to_string().contains("1023"));
        let exceptions = AckPolicy { exceptions_max: usize::MAX, ..AckPolicy::default() };
        assert!(matches!(exceptions.validate(), Err(PolicyError::TooManyExceptions { .. })));
    }
}
