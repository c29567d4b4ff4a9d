//! Open requests: started and not waited for.

use std::collections::BTreeSet;

use counterfoil::Ssn;
use rustc_hash::FxHashMap;

use crate::Error;
use crate::communicator::{CallError, Request, Status};
use crate::matching::{Forced, Message};

/// Message identifying a complete request in a recorded choice, as (source, SSN); for a sent one, (destination, SSN and
/// [`SENT`]).
pub(super) type Chosen = (u32, u64);

/// Bit marking a message sent by this rank.
///
/// SSNs don't reach it: at a billion messages a second that takes 73 years.
const SENT: u64 = 1 << 61;
const _: () = assert!(SENT < Ssn::MAX.0);

/// Call with a timing-dependent outcome.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub(super) sequence: u64,
    /// Message that it must choose.
    pub(super) forced: Option<Forced>,
    /// The call must find nothing.
    pub(super) forced_nothing: bool,
    /// The empty outcome is recorded among the calls that found nothing.
    pub(super) is_recorded: bool,
}

/// Request state.
#[derive(Debug)]
pub(super) enum State {
    /// Send: complete from the start.
    Sent(Status),
    /// Send in synchronous mode, complete once its message is matched.
    ///
    /// `seen`: a test has returned `true`.
    SentSynchronous { status: Status, ssn: u64, seen: bool },
    /// Receive without a message.
    ///
    /// `choice`: its match must be recorded.
    Posted { choice: Option<Choice> },
    /// Receive with a message.
    ///
    /// `seen`: a test has returned `true`.
    Received { message: Message, seen: bool },
}

/// All open requests on a rank.
#[derive(Debug)]
pub(super) struct Requests {
    open: FxHashMap<u64, State>,
    /// Messages sent in synchronous mode with an unknown match, as (destination, SSN).
    unmatched: BTreeSet<(u32, u64)>,
    next: u64,
    max: usize,
}

impl Requests {
    pub(super) fn new(max: usize) -> Requests {
        Requests { open: FxHashMap::default(), unmatched: BTreeSet::new(), next: 0, max }
    }

    /// Returns the next request's number: the number of requests since the program's start.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Continues with this number.
    pub(super) fn resume(&mut self, next: u64) {
        self.next = next;
    }

    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Returns `true` if all open requests are receives without a message, and no other request was made after the
    /// first of them.
    pub(super) fn are_receives_that_were_posted_last(&self) -> bool {
        self.open.values().all(|state| matches!(state, State::Posted { .. }))
            && self.first_open() + self.open.len() as u64 == self.next
    }

    /// Returns the first open request's number, or the next one.
    pub(super) fn first_open(&self) -> u64 {
        self.open.keys().copied().min().unwrap_or(self.next)
    }

    /// Returns the sequence number of the first match to be recorded, if one is open.
    pub(super) fn first_choice(&self) -> Option<u64> {
        let of = |state: &State| match state {
            State::Posted { choice } => choice.map(|choice| choice.sequence),
            _ => None,
        };
        self.open.values().filter_map(of).min()
    }

    pub(super) fn check_room(&self) -> Result<(), Error> {
        if self.open.len() < self.max { Ok(()) } else { Err(Error::RequestsMax { max: self.max }) }
    }

    pub(super) fn add(&mut self, state: State) -> Request {
        let id = self.next;
        self.next += 1;
        self.open.insert(id, state);
        Request::new(id)
    }

    /// Completes posted receive `id`.
    ///
    /// Returns the sequence number for recording the match.
    pub(super) fn complete(&mut self, id: u64, message: Message) -> Option<u64> {
        match self.open.insert(id, State::Received { message, seen: false }) {
            Some(State::Posted { choice }) => choice.map(|choice| choice.sequence),
            _ => None,
        }
    }

    /// Returns `true` for a receive that will get the message recorded by a dead incarnation.
    pub(super) fn is_forced(&self, request: &Request) -> bool {
        matches!(self.open.get(&request.id()), Some(State::Posted { choice: Some(Choice { forced: Some(_), .. }) }))
    }

    /// Removes a receive without a message.
    ///
    /// Returns the choice for recording the removal.
    pub(super) fn cancel(&mut self, request: &Request) -> Option<Choice> {
        match self.open.remove(&request.id()) {
            Some(State::Posted { choice }) => choice,
            _ => None,
        }
    }

    pub(super) fn is_complete(&self, call: &'static str, request: &Request) -> Result<bool, CallError> {
        Ok(self.is_done(self.get(call, request)?))
    }

    pub(super) fn are_complete(&self, requests: &[&Request]) -> Result<bool, CallError> {
        requests.iter().try_fold(true, |all, request| Ok(all && self.is_complete("test", request)?))
    }

    /// Returns `true` if the program already knows the requests to be complete: then a test of them is no choice.
    pub(super) fn are_known_complete(&self, requests: &[&Request]) -> Result<bool, CallError> {
        requests.iter().try_fold(true, |all, request| {
            let is_known = match self.get("test", request)? {
                State::Sent(_) => true,
                State::SentSynchronous { seen, .. } | State::Received { seen, .. } => *seen,
                State::Posted { .. } => false,
            };
            Ok(all && is_known)
        })
    }

    /// Returns the message taken by a receive or sent by a synchronous send, unless the program knows of its match.
    pub(super) fn unseen(&self, request: &Request) -> Option<Chosen> {
        match self.open.get(&request.id())? {
            State::Received { message, seen: false } => Some((message.source, message.ssn)),
            State::SentSynchronous { status, ssn, seen: false } if !self.unmatched.contains(&(status.source, *ssn)) => {
                Some((status.source, SENT | ssn))
            }
            _ => None,
        }
    }

    /// Records that a test has returned `true`.
    pub(super) fn mark_seen(&mut self, request: &Request) {
        if let Some(State::Received { seen, .. } | State::SentSynchronous { seen, .. }) =
            self.open.get_mut(&request.id())
        {
            *seen = true;
        }
    }

    /// Removes a complete request: returns a send's status, or (as `Err`) the received message.
    pub(super) fn take(&mut self, call: &'static str, request: Request) -> Result<Result<Status, Message>, CallError> {
        let unknown = CallError::UnknownRequest { call, id: request.id() };
        if !self.is_complete(call, &request)? {
            return Err(unknown);
        }
        match self.open.remove(&request.id()) {
            Some(State::Sent(status) | State::SentSynchronous { status, .. }) => Ok(Ok(status)),
            Some(State::Received { message, .. }) => Ok(Err(message)),
            Some(State::Posted { .. }) | None => Err(unknown),
        }
    }

    /// Removes a send, complete or not.
    pub(super) fn free_send(&mut self, request: &Request) {
        if let Some(State::SentSynchronous { status, ssn, .. }) = self.open.remove(&request.id()) {
            self.unmatched.remove(&(status.source, ssn));
        }
    }

    /// Expects the match of a message sent in synchronous mode.
    pub(super) fn expect_match(&mut self, to: u32, ssn: u64) {
        self.unmatched.insert((to, ssn));
    }

    /// Records the match of a message sent by this rank.
    pub(super) fn handle_match(&mut self, to: u32, ssn: u64) {
        self.unmatched.remove(&(to, ssn));
    }

    /// Returns a synchronous send's destination if its match isn't known.
    pub(super) fn awaited_match(&self, request: &Request) -> Option<u32> {
        match self.open.get(&request.id())? {
            state @ State::SentSynchronous { status, .. } if !self.is_done(state) => Some(status.source),
            _ => None,
        }
    }

    /// Returns `true` for a send.
    pub(super) fn is_send(&self, request: &Request) -> bool {
        matches!(self.open.get(&request.id()), Some(State::Sent(_) | State::SentSynchronous { .. }))
    }

    /// Returns the messages to `peer` with an unknown match, by SSN.
    pub(super) fn unmatched(&self, peer: u32) -> Vec<u64> {
        self.unmatched.range((peer, 0)..=(peer, u64::MAX)).map(|(_, ssn)| *ssn).collect()
    }

    fn is_done(&self, state: &State) -> bool {
        match state {
            State::Sent(_) | State::Received { .. } => true,
            State::SentSynchronous { status, ssn, .. } => !self.unmatched.contains(&(status.source, *ssn)),
            State::Posted { .. } => false,
        }
    }

    fn get(&self, call: &'static str, request: &Request) -> Result<&State, CallError> {
        self.open.get(&request.id()).ok_or(CallError::UnknownRequest { call, id: request.id() })
    }
}
