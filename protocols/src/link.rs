//! Both directions between this rank and a peer, as all rules number messages and acknowledge them: the windows, the
//! peer's incarnation, the epoch.

use counterfoil_ack_piggyback::{
    AckPolicy, Arrival, Flags, RecvWindow, RecvWindowState, SendWindow, SendWindowState, Stamp, Verdict, WireHeader,
};
use counterfoil_log_core::{Epoch, Incarnation, Rank};

use crate::api::{Hello, Misbehaviour, ProtocolError, RestoreError};

/// Link to a peer.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) peer: Rank,
    pub(crate) send: SendWindow,
    /// Also holds the peer's incarnation.
    pub(crate) recv: RecvWindow,
}

impl Link {
    /// Creates an unused link for a rank in `epoch`.
    pub(crate) fn new(peer: Rank, policy: AckPolicy, epoch: Epoch) -> Link {
        let mut link = Link { peer, send: SendWindow::new(policy), recv: RecvWindow::new(policy) };
        // A new window is in the first epoch, so it refuses no later one.
        let begun = link.begin_epoch(epoch);
        debug_assert!(begun.is_ok(), "{epoch} refused by a new window");
        link
    }

    /// Restores checkpointed windows.
    pub(crate) fn restore(
        peer: Rank,
        policy: AckPolicy,
        (send, recv): (&SendWindowState, &RecvWindowState),
    ) -> Result<Link, RestoreError> {
        let refused = |source| RestoreError::Window { peer, source };
        let send = SendWindow::restore(policy, send).map_err(refused)?;
        let recv = RecvWindow::restore(policy, recv).map_err(refused)?;
        Ok(Link { peer, send, recv })
    }

    pub(crate) fn begin_epoch(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        let begun = self.send.begin_epoch(epoch).and_then(|()| self.recv.begin_epoch(epoch));
        begun.map_err(|_| ProtocolError::EpochsExhausted)
    }

    /// Assigns an SSN, and requests an acknowledgement with the message if too much lacks one.
    pub(crate) fn stamp(&mut self, len: u64) -> Result<Stamp, ProtocolError> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let mut stamp = self.send.stamp(len).map_err(|_| ProtocolError::SsnsExhausted { peer: self.peer })?;
        if self.send.poll_ack_request() {
            stamp.flags |= Flags::ACK_REQUESTED;
        }
        Ok(stamp)
    }

    /// Returns the header for a transmission now: with these flags, and an acknowledgement if one is due.
    pub(crate) fn refresh(&mut self, header: &WireHeader, incarnation: Incarnation, flags: Flags) -> WireHeader {
        header.refreshed(incarnation, self.recv.piggyback(), flags)
    }

    /// Returns `true` if a frame comes from the peer's living incarnation.
    pub(crate) fn is_living(&self, incarnation: Incarnation) -> Result<bool, ProtocolError> {
        ProtocolError::check_incarnation(self.peer, incarnation, self.recv.incarnation())
    }

    /// Judges a message from the living incarnation.
    pub(crate) fn judge(&mut self, arrival: Arrival) -> Result<Verdict, ProtocolError> {
        self.recv.handle_message(arrival).map_err(|error| ProtocolError::from_recv(self.peer, error))
    }

    /// Checks a Hello: it isn't from a dead incarnation, and the peer's checkpoint covers only messages received by the
    /// peer.
    pub(crate) fn check_hello(&self, hello: &Hello) -> Result<(), ProtocolError> {
        let (peer, now) = (self.peer, self.recv.incarnation());
        if hello.incarnation < now {
            return Err(ProtocolError::DeadHello { peer, incarnation: hello.incarnation, now });
        }
        let (covered, received) = (hello.covered.1, hello.received.upto());
        if covered > received {
            let how = Misbehaviour::CoversMoreThanReceived { covered, received };
            return Err(ProtocolError::PeerMisbehaved { peer, how });
        }
        Ok(())
    }
}
