//! A job without a launcher: what its ranks tell each other about the job, and how they end it.
//!
//! A notice is a message of its kind, one byte, and a body.

use std::io;

use counterfoil_runtime::transport::{Event, TransportError};

use super::supervisor::COORDINATOR_RANK;
use super::{MpiTransport, NOTICE, VOTE, failed};

/// The sender is done. No body.
const DONE: u8 = 0;
/// To the rule's coordinator.
const REPORT: u8 = 1;
/// From the rule's coordinator.
const ORDER: u8 = 2;

impl MpiTransport {
    /// Takes notices, and votes to end the job as soon as all ranks are done.
    pub(super) fn poll_ranks(&mut self) -> Result<(), TransportError> {
        self.take_notices()?;
        self.supervisor.consider_collection();
        self.send_orders()?;
        if self.supervisor.are_all_done() && !self.membership.is_voting() {
            if self.membership.begin_vote().map_err(failed)? {
                self.call_spares_to_vote()?;
            } else {
                self.repair()?;
            }
        }
        if self.membership.poll_vote().map_err(failed)? == Some(true) {
            if !self.supervisor.is_done(self.rank) {
                self.came_too_late = true;
                let source = io::Error::other("all ranks were done before");
                return Err(TransportError::Io { action: "go on", source });
            }
            self.events.push_back(Event::Finish);
        }
        Ok(())
    }

    /// Takes notices, also of those from which nothing else is read.
    fn take_notices(&mut self) -> Result<(), TransportError> {
        loop {
            let message = self.membership.all().improbe(None, Some(NOTICE));
            let Some(Some(message)) = self.or_repair(message)? else { return Ok(()) };
            let process = message.source;
            let received = message.receive();
            if let (Some(notice), Some(peer)) = (self.or_repair(received)?, self.membership.rank_of(process)) {
                self.handle_notice(peer, &notice)?;
            }
        }
    }

    pub(super) fn handle_notice(&mut self, peer: u32, notice: &[u8]) -> Result<(), TransportError> {
        match notice {
            [DONE] => self.supervisor.handle_done(peer),
            [REPORT, body @ ..] => self.handle_report(peer, body)?,
            [ORDER, body @ ..] => self.events.push_back(Event::Order { body: body.to_vec() }),
            _ => {
                return Err(TransportError::Io {
                    action: "read a peer's notice",
                    source: io::Error::other(format!("rank {peer} sent {} bytes", notice.len())),
                });
            }
        }
        Ok(())
    }

    /// Passes a message to the coordinator that this process runs.
    fn handle_report(&mut self, from: u32, body: &[u8]) -> Result<(), TransportError> {
        let handled = self.supervisor.handle_report(from, body);
        handled.map_err(|error| TransportError::Io { action: "coordinate", source: io::Error::other(error) })?;
        self.send_orders()
    }

    /// Sends a message to the rule's coordinator.
    pub(super) fn send_report(&mut self, body: &[u8]) -> Result<(), TransportError> {
        if self.rank == COORDINATOR_RANK {
            return self.handle_report(self.rank, body);
        }
        self.post_notice(COORDINATOR_RANK, REPORT, body)
    }

    /// Sends the messages of the coordinator that this process runs.
    fn send_orders(&mut self) -> Result<(), TransportError> {
        while let Some((rank, body)) = self.supervisor.poll_order() {
            if rank == self.rank {
                self.events.push_back(Event::Order { body });
            } else {
                self.post_notice(rank, ORDER, &body)?;
            }
        }
        Ok(())
    }

    /// Tells the other ranks that this one is done.
    pub(super) fn announce_done(&mut self) -> Result<(), TransportError> {
        let rank = self.rank;
        self.supervisor.handle_done(rank);
        (0..self.membership.ranks()).filter(|peer| *peer != rank).try_for_each(|peer| self.post_done(peer))
    }

    /// Tells a rank that this one is done; after a repair, that is repeated.
    pub(super) fn post_done(&mut self, peer: u32) -> Result<(), TransportError> {
        self.post_notice(peer, DONE, &[])
    }

    fn post_notice(&mut self, peer: u32, kind: u8, body: &[u8]) -> Result<(), TransportError> {
        self.post(peer, NOTICE, [&[kind], body].concat()).map(drop)
    }

    fn call_spares_to_vote(&mut self) -> Result<(), TransportError> {
        let number = self.membership.votes().to_le_bytes();
        for spare in self.membership.spares() {
            let sending = self.membership.all().isend(number.to_vec(), spare, VOTE);
            // After a failure the vote is repeated, and with it this.
            if let Some(sending) = self.or_repair(sending)? {
                self.sent_to_spares.push(sending);
            }
        }
        Ok(())
    }
}
