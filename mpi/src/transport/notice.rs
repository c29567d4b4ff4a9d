//! Notices about the job, exchanged by ranks without a launcher, and their vote to end it.

use std::io;

use counterfoil_runtime::transport::{Event, TransportError};

use super::{MpiTransport, VOTE, failed};

/// Tag of a notice, on a communicator of its own: a search among all arrived messages would pass over a replay's frames
/// each time.
const NOTICE: i32 = 0;

impl MpiTransport {
    /// Handles the supervisor's orders, and votes to end the job as soon as all ranks are done.
    pub(super) fn poll_supervisor(&mut self) -> Result<(), TransportError> {
        if self.supervisor.has_notices() {
            self.take_notices()?;
        }
        self.supervisor.poll(&mut self.events)?;
        self.post_notices()?;
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

    /// Takes notices, also from peers otherwise not read.
    fn take_notices(&mut self) -> Result<(), TransportError> {
        loop {
            let message = self.membership.job().improbe(None, None);
            let Some(Some(message)) = self.or_repair(message)? else { return Ok(()) };
            let process = message.source;
            let received = message.receive();
            if let (Some(notice), Some(peer)) = (self.or_repair(received)?, self.membership.rank_of(process)) {
                self.handle_notice(peer, &notice)?;
            }
        }
    }

    fn handle_notice(&mut self, peer: u32, notice: &[u8]) -> Result<(), TransportError> {
        self.supervisor.handle_notice(peer, notice, &mut self.events)?;
        self.post_notices()
    }

    /// Sends the supervisor's notices.
    pub(super) fn post_notices(&mut self) -> Result<(), TransportError> {
        while let Some((peer, notice)) = self.supervisor.poll_notice() {
            let sending = self.membership.job().isend(notice, self.membership.process_of(peer), NOTICE);
            if let Some(sending) = self.or_repair(sending)? {
                self.peers[peer as usize].push(sending);
            }
        }
        Ok(())
    }

    fn call_spares_to_vote(&mut self) -> Result<(), TransportError> {
        let number = self.membership.votes().to_le_bytes();
        for spare in self.membership.spares() {
            let sending = self.membership.all().isend(number.to_vec(), spare, VOTE);
            // After a failure the vote is repeated, and this message with it.
            if let Some(sending) = self.or_repair(sending)? {
                self.sent_to_spares.push(sending);
            }
        }
        Ok(())
    }
}
