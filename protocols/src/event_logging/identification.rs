//! Event logs, and the messages crossing lines.

use std::collections::VecDeque;

use counterfoil_log_core::{Epoch, Ssn};

use super::log::{Counts, EventLog};
use super::matching::Crossing;
use crate::chandy_lamport::{Identification, Key, Matched, Message};

/// Message identification by the envelopes of sent and received messages.
///
/// Memory: a row of 16 bytes for each run of equal envelopes since the last committed line, and 32 bytes for each
/// copied message.
#[derive(Debug)]
pub struct EventLogs {
    send_log: EventLog,
    crossing: Crossing,
    /// Receive logs for the interval matched next, and later ones; the last belongs to the current interval.
    receive_logs: VecDeque<EventLog>,
    /// Messages in transit still to arrive, by line.
    awaited: VecDeque<(Epoch, Counts)>,
    /// The orphan queue: messages to be sent again by the peer (section 4.4.2).
    orphan_queue: Counts,
    /// Ascending.
    copies: VecDeque<Copy>,
    /// After a restart: messages in transit not yet presented.
    unpresented: Counts,
}

/// Message copy in the local log.
#[derive(Clone, Copy, Debug)]
struct Copy {
    number: u64,
    key: Key,
    /// Receive interval.
    interval: Epoch,
}

impl EventLogs {
    fn push_receipt(&mut self, key: Key) {
        if let Some(log) = self.receive_logs.back_mut() {
            log.push(key);
        }
    }
}

impl Identification for EventLogs {
    /// Send log for the interval before the line.
    type Request = EventLog;
    type Crossing = Crossing;

    const VERSION: u8 = 0xE1;

    fn new(_: Epoch) -> EventLogs {
        EventLogs {
            send_log: EventLog::default(),
            crossing: Crossing::default(),
            receive_logs: VecDeque::from([EventLog::default()]),
            awaited: VecDeque::new(),
            orphan_queue: Counts::default(),
            copies: VecDeque::new(),
            unpresented: Counts::default(),
        }
    }

    fn log_send(&mut self, key: Key) {
        self.send_log.push(key);
    }

    fn begin_interval(&mut self, _: Ssn, _: Ssn) -> EventLog {
        self.receive_logs.push_back(EventLog::default());
        std::mem::take(&mut self.send_log)
    }

    fn take_orphan(&mut self, message: Message) -> bool {
        self.orphan_queue.take(message.key)
    }

    fn log_receipt(&mut self, message: Message, interval: Epoch) -> bool {
        let key = message.key;
        self.push_receipt(key);
        // This message crosses the current line, or isn't known not to.
        let mut copied = self.receive_logs.len() > 1;
        for (line, awaited) in &mut self.awaited {
            copied |= awaited.take(key) && *line == interval;
        }
        self.awaited.retain(|(_, awaited)| !awaited.is_empty());
        copied
    }

    fn note_copy(&mut self, number: u64, key: Key, interval: Epoch) {
        self.copies.push_back(Copy { number, key, interval });
    }

    fn match_line(&mut self, line: Epoch, sent: EventLog) -> Matched<Crossing> {
        let received = self.receive_logs.pop_front().unwrap_or_default();
        self.crossing.match_interval(&sent, &received);

        let mut awaited = self.crossing.in_transit.clone();
        self.receive_logs.iter().for_each(|since| awaited.cancel(&mut since.counts()));
        if !awaited.is_empty() {
            self.awaited.push_back((line, awaited));
        }
        // A message in transit over this line and received in a later interval is also in transit over the line of that
        // interval.
        let mut in_transit = self.crossing.in_transit.clone();
        let mut dropped = Vec::new();
        self.copies.retain(|copy| {
            let stays = copy.interval != line || in_transit.take(copy.key);
            if !stays {
                dropped.push(copy.number);
            }
            stays
        });
        let crossing = Some(self.crossing.clone()).filter(|crossing| !crossing.is_empty());
        Matched { crossing, dropped }
    }

    fn is_complete(&self, line: Epoch, _: Ssn) -> bool {
        self.awaited.iter().all(|(awaiting, _)| *awaiting != line)
    }

    fn commit(&mut self, line: Epoch) {
        self.copies.retain(|copy| copy.interval >= line);
        self.awaited.retain(|(awaiting, _)| *awaiting >= line);
    }

    fn restore(&mut self, crossing: Crossing) {
        self.unpresented = crossing.in_transit.clone();
        self.orphan_queue = crossing.orphans.clone();
        self.crossing = crossing;
    }

    fn orphans(&self) -> u64 {
        self.orphan_queue.total()
    }

    fn present(&mut self, message: Message) -> bool {
        let is_in_transit = self.unpresented.take(message.key);
        if is_in_transit {
            self.push_receipt(message.key);
        }
        is_in_transit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_forgets_what_precedes_the_line() {
        let mut logs = EventLogs::new(Epoch(1));
        let (key, other) = (Key::tagged(7), Key::tagged(8));
        for (number, interval) in [(0, 1), (1, 2), (2, 3)] {
            logs.note_copy(number, key, Epoch(interval));
        }
        for (line, tag) in [(2, key), (3, other)] {
            logs.begin_interval(Ssn(0), Ssn(0));
            let mut sent = EventLog::default();
            sent.push(tag);
            logs.match_line(Epoch(line), sent);
        }
        assert!(!logs.is_complete(Epoch(2), Ssn(0)) && !logs.is_complete(Epoch(3), Ssn(0)));
        logs.commit(Epoch(3));
        assert!(logs.is_complete(Epoch(2), Ssn(0)) && !logs.is_complete(Epoch(3), Ssn(0)));
        assert!(logs.copies.iter().all(|copy| copy.interval >= Epoch(3)), "{:?}", logs.copies);
        assert_eq!(logs.copies.back().map(|copy| copy.number), Some(2));
    }

    /// If two lines await a message, the verdict for this interval decides whether it is copied.
    #[test]
    fn a_message_in_transit_over_the_present_line_is_copied() {
        let mut logs = EventLogs::new(Epoch(1));
        let key = Key::tagged(7);
        logs.begin_interval(Ssn(0), Ssn(0));
        let mut sent = EventLog::default();
        sent.push(key);
        logs.match_line(Epoch(2), sent);
        let message = |key| Message { key, interval: Epoch(2) };
        assert!(!logs.log_receipt(message(Key::tagged(8)), Epoch(2)), "nobody awaits it");
        assert!(logs.log_receipt(message(key), Epoch(2)));
        assert!(!logs.log_receipt(message(key), Epoch(2)), "it was one");
    }
}
