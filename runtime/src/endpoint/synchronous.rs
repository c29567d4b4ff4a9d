//! Sends in synchronous mode, complete once a receive has taken the message.
//!
//! Only the receiver knows of the match. The sender asks for it with a query that precedes the message, and again on
//! each later connection; the receiver answers when a receive takes the message, or at once if one has. Neither frame
//! is logged: a replacement for the receiver knows the taken messages from its checkpoint and its replay, and a dead
//! sender's queries are repeated by its replacement.
//!
//! An answer reveals the receiver's state like a message does, so everything that the match depends on is recorded
//! before. The answer's arrival is an outcome for the sender's program, like a message's: a test of it is a choice.

use std::collections::BTreeSet;

use bytes::Bytes;
use counterfoil::{Rank, Ssn};
use counterfoil_ack_piggyback::{Kind, Origin, WireHeader};
use counterfoil_protocols::api::{Misbehaviour, Protocol, ProtocolError};

use super::Endpoint;
use crate::Error;
use crate::transport::Transport;

/// Tag of a frame asking for the matches of messages: a list of SSNs, 8 bytes each.
///
/// The protocols' tags are positive.
const QUERY: i32 = -1;
/// Tag of a frame reporting the match of messages, a list as well.
const MATCHED: i32 = -2;
/// Maximum number of SSNs in a frame.
const LIST_LEN_MAX: usize = 1024;

/// Messages to this rank with senders waiting for the match, as (source, SSN).
#[derive(Debug, Default)]
pub(super) struct MatchQueries(BTreeSet<(u32, u64)>);

impl MatchQueries {
    /// Drops the queries from a rank that has connected anew and repeats them.
    fn clear(&mut self, source: u32) {
        self.0.retain(|query| query.0 != source);
    }
}

/// Returns `true` for a frame handled by this module.
pub(super) fn is_match_notice(header: &WireHeader) -> bool {
    header.kind() == Kind::Control && matches!(header.tag(), QUERY | MATCHED)
}

/// Returns the answer of a receiver that has taken all messages in a query frame; `None` for other frames.
pub(crate) fn answer_match_query(header: &WireHeader, body: &[u8]) -> Option<(WireHeader, Bytes)> {
    let is_query = header.kind() == Kind::Control && header.tag() == QUERY;
    let (to, from, len) = (header.source(), header.destination(), body.len() as u64);
    let answer = || WireHeader::control(from, to, Origin::default(), MATCHED, len, None);
    is_query.then(|| (answer(), Bytes::copy_from_slice(body)))
}

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Expects the receiver's report on the match of the message sent next.
    pub(super) fn expect_match(&mut self, to: u32, ssn: Ssn) -> Result<(), Error> {
        self.requests.expect_match(to, ssn.0);
        if to == self.rank { Ok(()) } else { self.send_list(to, QUERY, &[ssn.0]) }
    }

    /// Repeats the queries on a new connection, and drops the peer's, which repeats its own.
    pub(super) fn repeat_match_queries(&mut self, peer: u32) -> Result<(), Error> {
        self.match_queries.clear(peer);
        let unmatched = self.requests.unmatched(peer);
        unmatched.chunks(LIST_LEN_MAX).try_for_each(|list| self.send_list(peer, QUERY, list))
    }

    /// Reports a message's match, if its sender waits for it.
    ///
    /// The match is recorded already.
    pub(super) fn report_match(&mut self, source: u32, ssn: u64) -> Result<(), Error> {
        if source == self.rank {
            self.requests.handle_match(source, ssn);
            return Ok(());
        }
        if self.match_queries.0.is_empty() || !self.match_queries.0.remove(&(source, ssn)) {
            return Ok(());
        }
        self.answer(source, &[ssn])
    }

    pub(super) fn handle_match_notice(&mut self, peer: u32, header: &WireHeader, body: &[u8]) -> Result<(), Error> {
        let (numbers, rest) = body.as_chunks::<8>();
        if !rest.is_empty() || numbers.len() > LIST_LEN_MAX {
            let how = Misbehaviour::MalformedNotice { tag: header.tag(), len: body.len() };
            return Err(ProtocolError::PeerMisbehaved { peer: Rank(peer), how }.into());
        }
        let numbers = numbers.iter().copied().map(u64::from_le_bytes);
        if header.tag() == MATCHED {
            numbers.for_each(|ssn| self.requests.handle_match(peer, ssn));
            return Ok(());
        }
        let received = self.received_upto(peer)?.0;
        let is_unmatched = |ssn: &u64| *ssn > received || self.matching.has_unexpected(peer, *ssn);
        let (open, matched): (Vec<u64>, Vec<u64>) = numbers.partition(is_unmatched);
        self.match_queries.0.extend(open.into_iter().map(|ssn| (peer, ssn)));
        if matched.is_empty() { Ok(()) } else { self.answer(peer, &matched) }
    }

    /// Reports matches to the messages' sender, after recording everything that they depend on.
    fn answer(&mut self, to: u32, matched: &[u64]) -> Result<(), Error> {
        self.record_polls()?;
        self.sync_choices()?;
        self.send_list(to, MATCHED, matched)
    }

    /// Sends a list of SSNs.
    ///
    /// Without a connection there is nothing to send: the list is repeated, or asked for again, on the next one.
    fn send_list(&mut self, to: u32, tag: i32, list: &[u64]) -> Result<(), Error> {
        let body: Vec<u8> = list.iter().flat_map(|ssn| ssn.to_le_bytes()).collect();
        let header = WireHeader::control(Rank(self.rank), Rank(to), Origin::default(), tag, body.len() as u64, None);
        Ok(self.transport.send_control(to, &header, &[&body])?)
    }
}
