//! Channels in both directions between this rank and one peer: event logs, and the messages that cross lines.

use std::collections::VecDeque;

use counterfoil_log_core::{Epoch, Ssn};

use super::Canary;
use super::log::{Counts, EventLog, Key};
use super::matching::Crossing;

/// Copy of a message that is in the local log.
#[derive(Clone, Copy, Debug)]
struct Copy {
    number: u64,
    key: Key,
    /// Interval in which it was received.
    interval: Epoch,
}

/// Classification of an arrived message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    /// Deliver it; if `copied`, keep a copy first.
    New { copied: bool },
    /// The state of this rank has it.
    Orphan,
    /// It arrived before.
    Duplicate,
    /// Messages before it are lost with a connection. Never deliver it: a recovery follows.
    AfterGap,
}

/// Result of matching one interval.
#[derive(Debug)]
pub(super) struct Matched {
    /// Line at the end of the interval.
    pub(super) line: Epoch,
    pub(super) crossing: Crossing,
    /// Copies of messages that turn out to be sent after the line.
    pub(super) dropped: Vec<u64>,
}

/// State of the channels to and from a peer.
#[derive(Debug)]
pub(super) struct Channel {
    /// Last message sent.
    pub(super) sent: Ssn,
    send_log: EventLog,
    /// Send logs of lines that aren't known to be committed.
    requests_sent: VecDeque<(Epoch, EventLog)>,

    /// Last message that has arrived in this attempt.
    arrived: Ssn,
    /// Newest line whose crossing messages are known.
    matched: Epoch,
    crossing: Crossing,
    /// Receive logs of the interval `matched` and later ones; the last is that of the present interval.
    receive_logs: VecDeque<EventLog>,
    /// The peer's send logs of these intervals, as far as they have come.
    requests: VecDeque<EventLog>,
    /// Messages in transit that have yet to arrive, by line.
    awaited: VecDeque<(Epoch, Counts)>,
    /// The orphan queue: messages that the peer sends again (section 4.4.2).
    orphan_queue: Counts,
    /// Ascending.
    copies: VecDeque<Copy>,
    /// After a restart: messages in transit that aren't presented yet.
    unpresented: Counts,
}

impl Channel {
    /// Begins at a line: with the numbers of messages sent, and received.
    pub(super) fn new(line: Epoch, sent: Ssn, received: Ssn) -> Channel {
        Channel {
            sent,
            send_log: EventLog::default(),
            requests_sent: VecDeque::new(),
            arrived: received,
            matched: line,
            crossing: Crossing::default(),
            receive_logs: VecDeque::from([EventLog::default()]),
            requests: VecDeque::new(),
            awaited: VecDeque::new(),
            orphan_queue: Counts::default(),
            copies: VecDeque::new(),
            unpresented: Counts::default(),
        }
    }

    /// Returns the number of messages that this rank's state has received.
    pub(super) fn received(&self) -> Ssn {
        Ssn(self.arrived.0 + self.orphan_queue.total())
    }

    /// Logs a message to the peer, and returns its number.
    pub(super) fn send(&mut self, key: Key) -> Option<Ssn> {
        self.sent = Some(self.sent.next()).filter(|ssn| *ssn <= Ssn::MAX)?;
        self.send_log.push(key);
        Some(self.sent)
    }

    /// Logs a message of the peer (sections 4.3.3 and 4.4.2).
    pub(super) fn receive(&mut self, key: Key, ssn: Ssn, interval: Epoch, canary: Option<Canary>) -> Arrived {
        if ssn != self.arrived.next() {
            return if ssn <= self.arrived { Arrived::Duplicate } else { Arrived::AfterGap };
        }
        self.arrived = ssn;
        let is_orphan = match canary {
            Some(Canary::OrphansStay) => self.orphan_queue.contains(key),
            _ => self.orphan_queue.take(key),
        };
        if is_orphan {
            return Arrived::Orphan;
        }
        self.log_receipt(key);
        // Of the present line, it isn't known whether this message crosses it, or it does.
        let mut copied = self.matched < interval && canary != Some(Canary::NotCopied);
        for (line, awaited) in &mut self.awaited {
            copied |= awaited.take(key) && *line == interval;
        }
        self.awaited.retain(|(_, awaited)| !awaited.is_empty());
        Arrived::New { copied }
    }

    fn log_receipt(&mut self, key: Key) {
        if let Some(log) = self.receive_logs.back_mut() {
            log.push(key);
        }
    }

    /// Notes a copy of the message that was received last, or that is presented again.
    pub(super) fn note_copy(&mut self, number: u64, key: Key, interval: Epoch) {
        self.copies.push_back(Copy { number, key, interval });
    }

    /// Begins the interval after `line`; returns the send log of the one before.
    pub(super) fn begin_interval(&mut self, line: Epoch) -> EventLog {
        let log = std::mem::take(&mut self.send_log);
        self.requests_sent.push_back((line, log.clone()));
        self.receive_logs.push_back(EventLog::default());
        log
    }

    /// Returns the requests that the peer may lack.
    pub(super) fn requests_sent(&self) -> impl Iterator<Item = &(Epoch, EventLog)> {
        self.requests_sent.iter()
    }

    /// Forgets the requests of an attempt that is undone: they are not repeated in the next.
    pub(super) fn end_attempt(&mut self) {
        self.requests_sent.clear();
    }

    /// Takes the peer's request for a line. One that has come before, or after one that was lost, is ignored.
    pub(super) fn handle_request(&mut self, line: Epoch, log: EventLog) {
        if u64::from(line.0) == u64::from(self.matched.0) + self.requests.len() as u64 + 1 {
            self.requests.push_back(log);
        }
    }

    /// Matches the next interval, once both logs are there.
    pub(super) fn match_next(&mut self, canary: Option<Canary>) -> Option<Matched> {
        if self.receive_logs.len() < 2 {
            return None;
        }
        let sent = self.requests.pop_front()?;
        let received = self.receive_logs.pop_front()?;
        let line = self.matched.next()?;
        self.matched = line;
        self.crossing.match_interval(&sent, &received, canary);

        let mut awaited = self.crossing.in_transit.clone();
        self.receive_logs.iter().for_each(|since| awaited.cancel(&mut since.counts()));
        if !awaited.is_empty() {
            self.awaited.push_back((line, awaited));
        }
        // Whatever is in transit over this line and was received in a later interval is in transit over that one's line, too.
        let mut in_transit = self.crossing.in_transit.clone();
        let mut dropped = Vec::new();
        self.copies.retain(|copy| {
            let stays = copy.interval != line || in_transit.take(copy.key);
            if !stays {
                dropped.push(copy.number);
            }
            stays
        });
        Some(Matched { line, crossing: self.crossing.clone(), dropped })
    }

    /// Returns `true` if the peer's request for a line has come, and all messages in transit over it have.
    pub(super) fn has_finished(&self, line: Epoch, canary: Option<Canary>) -> bool {
        let waits = || self.awaited.iter().any(|(awaiting, _)| *awaiting == line);
        self.matched >= line && (canary == Some(Canary::FinishedEarly) || !waits())
    }

    /// Forgets what precedes a committed line.
    pub(super) fn commit(&mut self, line: Epoch) {
        self.requests_sent.retain(|(sent, _)| *sent > line);
        self.copies.retain(|copy| copy.interval >= line);
        self.awaited.retain(|(awaiting, _)| *awaiting >= line);
    }

    /// Takes the messages that cross the line at which this channel begins.
    pub(super) fn restore_crossing(&mut self, crossing: Crossing) {
        self.unpresented = crossing.in_transit.clone();
        self.orphan_queue = crossing.orphans.clone();
        self.arrived = Ssn(self.arrived.0.saturating_sub(self.orphan_queue.total()));
        self.crossing = crossing;
    }

    /// Presents a copy again if it is in transit over the line (the pending queue of section 4.4.1); returns `false` otherwise.
    pub(super) fn present(&mut self, number: u64, key: Key, canary: Option<Canary>) -> bool {
        if !self.unpresented.take(key) && canary != Some(Canary::AllCopiesPresented) {
            return false;
        }
        self.arrived = self.arrived.next();
        if canary != Some(Canary::PresentedUnlogged) {
            self.log_receipt(key);
        }
        self.note_copy(number, key, self.matched);
        true
    }
}
