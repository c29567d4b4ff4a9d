//! Channels in both directions between this rank and one peer.

use std::collections::VecDeque;

use counterfoil_log_core::{Epoch, Ssn};

use super::identification::{Identification, Key, Matched, Message};

/// Arrived message classification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    /// Deliver it; if `copied`, keep a copy first.
    New { copied: bool },
    /// The state of this rank has it.
    Orphan,
    /// Arrived before.
    Duplicate,
    /// Messages before it are lost with a connection. Never deliver it: a recovery follows.
    AfterGap,
}

/// Channel state to and from a peer.
#[derive(Debug)]
pub(super) struct Channel<I: Identification> {
    /// Last message sent.
    pub(super) sent: Ssn,
    /// Requests for lines not known to be committed.
    requests_sent: VecDeque<(Epoch, I::Request)>,

    /// Last message received in this attempt.
    arrived: Ssn,
    /// Newest line with known crossing messages.
    matched: Epoch,
    /// The peer's requests for the lines after it, as far as they have come.
    requests: VecDeque<I::Request>,
    messages: I,
}

impl<I: Identification> Channel<I> {
    /// Begins at a line, with the numbers of messages sent and received.
    pub(super) fn new(line: Epoch, sent: Ssn, received: Ssn) -> Channel<I> {
        Channel {
            sent,
            requests_sent: VecDeque::new(),
            arrived: received,
            matched: line,
            requests: VecDeque::new(),
            messages: I::new(line),
        }
    }

    /// Returns the number of messages received by the state of this rank.
    pub(super) fn received(&self) -> Ssn {
        Ssn(self.arrived.0 + self.messages.orphans())
    }

    /// Logs a message to the peer, and returns its number.
    pub(super) fn send(&mut self, key: Key) -> Option<Ssn> {
        self.sent = Some(self.sent.next()).filter(|ssn| *ssn <= Ssn::MAX)?;
        self.messages.log_send(key);
        Some(self.sent)
    }

    /// Logs a message from the peer (sections 4.3.3 and 4.4.2).
    pub(super) fn receive(&mut self, message: Message, ssn: Ssn, interval: Epoch) -> Arrived {
        if ssn != self.arrived.next() {
            return if ssn <= self.arrived { Arrived::Duplicate } else { Arrived::AfterGap };
        }
        self.arrived = ssn;
        if self.messages.take_orphan(message) {
            return Arrived::Orphan;
        }
        Arrived::New { copied: self.messages.log_receipt(message, interval) }
    }

    /// Notes a copy of the message received last or presented again.
    pub(super) fn note_copy(&mut self, number: u64, key: Key, interval: Epoch) {
        self.messages.note_copy(number, key, interval);
    }

    /// Begins the interval after `line`; returns the request for it.
    pub(super) fn begin_interval(&mut self, line: Epoch) -> I::Request {
        let request = self.messages.begin_interval(self.sent, self.received());
        self.requests_sent.push_back((line, request.clone()));
        request
    }

    /// Returns the requests possibly missing at the peer.
    pub(super) fn requests_sent(&self) -> impl Iterator<Item = &(Epoch, I::Request)> {
        self.requests_sent.iter()
    }

    /// Forgets the requests from an undone attempt: they are not repeated in the next.
    pub(super) fn end_attempt(&mut self) {
        self.requests_sent.clear();
    }

    /// Takes the peer's request for a line.
    ///
    /// A repeated one, or one after a lost one, is ignored.
    pub(super) fn handle_request(&mut self, line: Epoch, request: I::Request) {
        if u64::from(line.0) == u64::from(self.matched.0) + self.requests.len() as u64 + 1 {
            self.requests.push_back(request);
        }
    }

    /// Matches the next line, once this rank, now in `interval`, and the peer are beyond it.
    pub(super) fn match_next(&mut self, interval: Epoch) -> Option<(Epoch, Matched<I::Crossing>)> {
        let line = self.matched.next().filter(|line| *line <= interval)?;
        let request = self.requests.pop_front()?;
        self.matched = line;
        Some((line, self.messages.match_line(line, request)))
    }

    /// Returns `true` if the peer's request for a line has come, and all messages in transit over it have.
    pub(super) fn has_finished(&self, line: Epoch) -> bool {
        self.matched >= line && self.messages.is_complete(line, self.arrived)
    }

    /// Forgets what precedes a committed line.
    pub(super) fn commit(&mut self, line: Epoch) {
        self.requests_sent.retain(|(sent, _)| *sent > line);
        self.messages.commit(line);
    }

    /// Takes the messages crossing the line at which this channel begins.
    pub(super) fn restore_crossing(&mut self, crossing: I::Crossing) {
        self.messages.restore(crossing);
        self.arrived = Ssn(self.arrived.0.saturating_sub(self.messages.orphans()));
    }

    /// Presents a copy again if it is in transit over the line (the pending queue in section 4.4.1); returns `false`
    /// otherwise.
    pub(super) fn present(&mut self, number: u64, message: Message) -> bool {
        let is_presented = self.messages.present(message);
        if is_presented {
            self.arrived = self.arrived.next();
            self.note_copy(number, message.key, self.matched);
        }
        is_presented
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message_tagging::Tags;

    #[test]
    fn messages_that_are_presented_again_count_as_received() {
        let mut channel = Channel::<Tags>::new(Epoch(3), Ssn(0), Ssn(5));
        let sent_in = |interval| Message { key: Key::tagged(7), interval: Epoch(interval) };
        assert!(channel.present(0, sent_in(1)) && channel.present(1, sent_in(2)) && !channel.present(2, sent_in(3)));
        assert_eq!(channel.received(), Ssn(7));
    }

    #[test]
    fn a_message_that_has_arrived_is_a_duplicate_and_one_beyond_the_next_is_after_a_gap() {
        let mut channel = Channel::<Tags>::new(Epoch(3), Ssn(0), Ssn(5));
        let mut receive =
            |ssn| channel.receive(Message { key: Key::tagged(7), interval: Epoch(3) }, Ssn(ssn), Epoch(3));
        assert_eq!([4, 5, 7].map(&mut receive), [Arrived::Duplicate, Arrived::Duplicate, Arrived::AfterGap]);
        assert!(matches!([6, 7].map(&mut receive), [Arrived::New { .. }, Arrived::New { .. }]));
        assert_eq!([6, 7, 9].map(&mut receive), [Arrived::Duplicate, Arrived::Duplicate, Arrived::AfterGap]);
    }
}
