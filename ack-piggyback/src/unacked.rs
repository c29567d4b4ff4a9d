//! Count of a channel's unacknowledged payload bytes, in constant memory.

use std::collections::VecDeque;

use counterfoil_log_core::Ssn;

/// Counter of unacknowledged payload bytes.
///
/// Exact while at most [`MARKS_MAX`] messages are unacknowledged. With more, only every second, fourth, ... message
/// keeps a mark, so memory stays bounded if the peer never acknowledges. The count is then too large by at most the
/// messages between two marks, and exact again once everything is acknowledged.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnackedBytes {
    /// All payload bytes ever sent. All counters are modulo 2^64.
    sent_bytes: u64,
    /// `sent_bytes` after the last marked, acknowledged SSN.
    acked_bytes: u64,
    /// Unacknowledged SSNs with `sent_bytes` after each, in order.
    marks: VecDeque<(Ssn, u64)>,
    /// SSNs with at least this many trailing zero bits get a mark.
    stride_log2: u32,
}

const MARKS_MAX: usize = 64;

impl UnackedBytes {
    /// Creates a counter of `bytes` unacknowledged bytes without knowing the individual messages: all count until the
    /// last is acknowledged.
    pub(crate) fn restored(bytes: u64) -> Self {
        UnackedBytes { sent_bytes: bytes, ..Self::default() }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.sent_bytes.wrapping_sub(self.acked_bytes)
    }

    #[inline]
    pub(crate) fn sent(&mut self, ssn: Ssn, len: u64) {
        self.sent_bytes = self.sent_bytes.wrapping_add(len);
        if ssn.0.trailing_zeros() >= self.stride_log2 {
            if self.marks.len() == MARKS_MAX {
                self.double_stride();
            }
            self.marks.push_back((ssn, self.sent_bytes));
        }
    }

    fn double_stride(&mut self) {
        self.stride_log2 += 1;
        let stride_log2 = self.stride_log2;
        self.marks.retain(|(ssn, _)| ssn.0.trailing_zeros() >= stride_log2);
    }

    /// Records an ack for everything up to `upto`; `all` is true if nothing after it was sent.
    #[inline]
    pub(crate) fn acked(&mut self, upto: Ssn, all: bool) {
        if all {
            self.acked_bytes = self.sent_bytes;
            self.marks.clear();
            self.stride_log2 = 0;
            return;
        }
        while let Some(&(ssn, bytes)) = self.marks.front()
            && ssn <= upto
        {
            self.acked_bytes = bytes;
            self.marks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_bytes_are_exact_for_few_messages_and_nearly_so_for_many(
            steps in proptest::collection::vec((1u64..200, 0u64..100), 1..60)
        ) {
            const LEN: u64 = 10;
            let (mut sent, mut acked, mut most) = (0u64, 0u64, 0u64);
            let mut unacked = UnackedBytes::default();
            for (send, ack_percent) in steps {
                for _ in 0..send {
                    sent += 1;
                    unacked.sent(Ssn(sent), LEN);
                }
                most = most.max(sent - acked);
                acked += (sent - acked) * ack_percent / 99;
                unacked.acked(Ssn(acked), acked == sent);
                let exact = (sent - acked) * LEN;
                let slack = if most <= MARKS_MAX as u64 { 0 } else { most.div_ceil(32) * LEN };
                prop_assert!((exact..=exact + slack).contains(&unacked.bytes()), "{exact} {}", unacked.bytes());
                prop_assert!(unacked.marks.len() <= MARKS_MAX);
                if acked == sent {
                    most = 0;
                }
            }
        }
    }

    #[test]
    fn restored_bytes_count_until_their_messages_are_acknowledged() {
        let mut unacked = UnackedBytes::restored(100);
        unacked.sent(Ssn(6), 1);
        unacked.acked(Ssn(5), false);
        assert_eq!(unacked.bytes(), 101);
        unacked.acked(Ssn(6), true);
        assert_eq!(unacked.bytes(), 0);
    }
}
