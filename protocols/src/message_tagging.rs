//! Message tagging: libELC's other method (Zhao 2005, sections 3.2.2 and 5.7).
//!
//! Every message carries its send interval's number. A receiver in a later interval knows at once that the message is
//! in transit over the lines in between, and copies it. The request for a line says how many messages were sent before
//! it; together with the number received, this tells how many are still to come, and how many received ones are
//! orphans. Everything else is the frame shared with [event logging](crate::event_logging).
//!
//! | paper, section 5.7 | here |
//! |---|---|
//! | (1), header on each message | the epoch of the wire header, from `ChandyLamport::handle_send` |
//! | (2), the header is checked: is the message in transit? | [`Tags`], `log_receipt` |
//! | (2), is it an orphan? | [`Tags`], `match_line`, `take_orphan` |
//! | (3), `OUT`, the marker message | [`Tags`], `begin_interval`; `message::Request` |
//! | (3), `OUT - IN` messages in transit to be logged | [`Tags`], `match_line`, `is_complete` |
//!
//! The paper tags by a derived datatype from header and message, in a copy of both. Here the header precedes each frame
//! anyway, and no bytes are added.
//!
//! ```
//! use counterfoil_log_core::{Incarnation, Rank};
//! use counterfoil_protocols::api::Protocol;
//! use counterfoil_protocols::chandy_lamport::Config;
//! use counterfoil_protocols::message_tagging::MessageTagging;
//!
//! let mut rank = MessageTagging::new(Config::new(Rank(0), 2, Incarnation(0)))?;
//! let first = rank.first_checkpoint().expect("every rank can go back to the start");
//! rank.restore(&first.tables, first.epoch)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::VecDeque;

use counterfoil_log_core::{Epoch, Ssn};

use crate::api::{Rule, RuleOptions};
use crate::chandy_lamport::{ChandyLamport, Config, Identification, Key, MAKE_COORDINATOR, Matched, Message};

/// State of one rank under the rule.
pub type MessageTagging = ChandyLamport<Tags>;

/// Row in [`RULES`](crate::RULES).
pub const RULE: Rule = Rule {
    name: "message-tagging",
    paper: "Zhao 2005, libMTC",
    summary: "As event-logging, but no envelopes are logged: each message carries the number of its sender's last checkpoint. For many small messages of different tags",
    properties: MessageTagging::PROPERTIES,
    takes: &[],
    options: RuleOptions::DEFAULT,
    make_rank: &|rank, incarnation, settings| {
        Ok(Box::new(MessageTagging::new(Config::new(rank, settings.ranks, incarnation))?))
    },
    make_coordinator: MAKE_COORDINATOR,
};

/// Message identification by the interval in each message, and by the number sent before a line.
///
/// Memory: some hundred bytes, and 32 for each uncommitted line.
#[derive(Debug)]
pub struct Tags {
    /// First line.
    line: Epoch,
    /// `IN`: number of messages received by the state at each unmatched line.
    received: VecDeque<u64>,
    /// `OUT`, by matched line: number of messages sent before it that have to arrive.
    awaited: VecDeque<(Epoch, u64)>,
    /// Messages to be sent again by the peer.
    orphans: u64,
}

impl Identification for Tags {
    /// `OUT`: number of messages sent before the line, since job start.
    type Request = u64;
    /// Orphan count.
    type Crossing = u64;

    const VERSION: u8 = 0xE2;

    fn new(line: Epoch) -> Tags {
        Tags { line, received: VecDeque::new(), awaited: VecDeque::new(), orphans: 0 }
    }

    fn log_send(&mut self, _: Key) {}

    fn begin_interval(&mut self, sent: Ssn, received: Ssn) -> u64 {
        self.received.push_back(received.0);
        sent.0
    }

    fn take_orphan(&mut self, _: Message) -> bool {
        let is_orphan = self.orphans > 0;
        self.orphans -= u64::from(is_orphan);
        is_orphan
    }

    fn log_receipt(&mut self, message: Message, interval: Epoch) -> bool {
        message.interval < interval
    }

    fn note_copy(&mut self, _: u64, _: Key, _: Epoch) {}

    fn match_line(&mut self, line: Epoch, sent: u64) -> Matched<u64> {
        self.awaited.push_back((line, sent));
        // Messages arrive in order: either the last ones sent before the line have yet to, or the last ones received
        // were sent after it.
        let orphans = self.received.pop_front().map_or(0, |received| received.saturating_sub(sent));
        Matched { crossing: Some(orphans).filter(|orphans| *orphans > 0), dropped: Vec::new() }
    }

    fn is_complete(&self, line: Epoch, arrived: Ssn) -> bool {
        let has_arrived = |&(awaiting, sent): &(Epoch, u64)| awaiting != line || sent <= arrived.0;
        self.awaited.iter().all(has_arrived)
    }

    fn commit(&mut self, line: Epoch) {
        self.awaited.retain(|(awaiting, _)| *awaiting > line);
    }

    fn restore(&mut self, orphans: u64) {
        self.orphans = orphans;
    }

    fn orphans(&self) -> u64 {
        self.orphans
    }

    fn present(&mut self, message: Message) -> bool {
        message.interval < self.line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent_in(interval: u32) -> Message {
        Message { key: Key::tagged(7), interval: Epoch(interval) }
    }

    #[test]
    fn a_message_of_an_earlier_interval_is_copied_at_once() {
        let mut tags = Tags::new(Epoch(1));
        assert!(!tags.log_receipt(sent_in(1), Epoch(1)));
        tags.begin_interval(Ssn(0), Ssn(1));
        assert!(tags.log_receipt(sent_in(1), Epoch(2)));
        tags.begin_interval(Ssn(0), Ssn(2));
        assert!(tags.log_receipt(sent_in(1), Epoch(3)));
        assert!(!tags.log_receipt(sent_in(3), Epoch(3)) && !tags.log_receipt(sent_in(4), Epoch(3)));
    }

    #[test]
    fn a_line_is_complete_when_as_many_messages_have_arrived_as_were_sent_before_it() {
        let mut tags = Tags::new(Epoch(1));
        tags.log_receipt(sent_in(1), Epoch(1));
        tags.begin_interval(Ssn(0), Ssn(1));
        assert_eq!(tags.match_line(Epoch(2), 3).crossing, None);
        assert!(!tags.is_complete(Epoch(2), Ssn(1)) && !tags.is_complete(Epoch(2), Ssn(2)));
        assert!(tags.is_complete(Epoch(2), Ssn(3)));
        tags.commit(Epoch(2));
        assert_eq!(tags.awaited, []);
    }

    #[test]
    fn what_was_received_before_a_line_beyond_what_was_sent_before_it_is_an_orphan_once() {
        let mut tags = Tags::new(Epoch(1));
        tags.log_receipt(sent_in(1), Epoch(1));
        tags.log_receipt(sent_in(2), Epoch(1));
        tags.begin_interval(Ssn(0), Ssn(2));
        tags.log_receipt(sent_in(2), Epoch(2));
        let orphans = tags.match_line(Epoch(2), 1).crossing;
        assert_eq!(orphans, Some(1));

        let mut restored = Tags::new(Epoch(2));
        restored.restore(orphans.unwrap());
        assert!(restored.take_orphan(sent_in(2)) && !restored.take_orphan(sent_in(2)));
        assert!(!restored.log_receipt(sent_in(2), Epoch(2)));
        // The next line isn't crossed by them.
        restored.begin_interval(Ssn(0), Ssn(3));
        let crossing = restored.match_line(Epoch(3), 3).crossing;
        assert_eq!((crossing, restored.is_complete(Epoch(3), Ssn(3))), (None, true));
    }

    #[test]
    fn copies_of_messages_sent_before_the_line_are_presented() {
        let mut tags = Tags::new(Epoch(3));
        assert!(tags.present(sent_in(1)) && tags.present(sent_in(2)) && !tags.present(sent_in(3)));
    }
}
