//! Open requests: started and not waited for.

use std::collections::HashMap;

use crate::Error;
use crate::communicator::{CallError, Request, Status};
use crate::matching::Message;

/// State of a request.
#[derive(Debug)]
pub(super) enum State {
    /// Send: complete from the start.
    Sent(Status),
    /// Receive without a message. `choice`: sequence number under which its match must be recorded. `is_forced`: a dead incarnation has
    /// recorded the match.
    Posted { choice: Option<u64>, is_forced: bool },
    /// Receive with a message. `seen`: a test has returned `true`.
    Received { message: Message, seen: bool },
}

/// All open requests of a rank.
#[derive(Debug)]
pub(super) struct Requests {
    open: HashMap<u64, State>,
    next: u64,
    max: usize,
}

impl Requests {
    pub(super) fn new(max: usize) -> Requests {
        Requests { open: HashMap::new(), next: 0, max }
    }

    /// Returns the number of the next request: the number of requests since the start of the program.
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

    pub(super) fn check_room(&self) -> Result<(), Error> {
        if self.open.len() < self.max { Ok(()) } else { Err(Error::RequestsMax { max: self.max }) }
    }

    pub(super) fn add(&mut self, state: State) -> Request {
        let id = self.next;
        self.next += 1;
        self.open.insert(id, state);
        Request::new(id)
    }

    /// Completes posted receive `id`. Returns the sequence number under which the match must be recorded.
    pub(super) fn complete(&mut self, id: u64, message: Message) -> Option<u64> {
        match self.open.insert(id, State::Received { message, seen: false }) {
            Some(State::Posted { choice, .. }) => choice,
            _ => None,
        }
    }

    /// Returns `true` for a receive that will get the message that a dead incarnation has recorded.
    pub(super) fn is_forced(&self, request: &Request) -> bool {
        matches!(self.open.get(&request.id()), Some(State::Posted { is_forced: true, .. }))
    }

    /// Removes a receive without a message. Returns the sequence number under which that must be recorded.
    pub(super) fn cancel(&mut self, request: &Request) -> Option<u64> {
        match self.open.remove(&request.id()) {
            Some(State::Posted { choice, .. }) => choice,
            _ => None,
        }
    }

    pub(super) fn is_complete(&self, call: &'static str, request: &Request) -> Result<bool, CallError> {
        Ok(!matches!(self.get(call, request)?, State::Posted { .. }))
    }

    pub(super) fn are_complete(&self, requests: &[&Request]) -> Result<bool, CallError> {
        requests.iter().try_fold(true, |all, request| Ok(all && self.is_complete("test", request)?))
    }

    /// Returns `true` if the program knows already that the requests are complete: then a test of them is no choice.
    pub(super) fn are_known_complete(&self, requests: &[&Request]) -> Result<bool, CallError> {
        requests.iter().try_fold(true, |all, request| {
            let is_known = matches!(self.get("test", request)?, State::Sent(_) | State::Received { seen: true, .. });
            Ok(all && is_known)
        })
    }

    /// Returns the message that a receive has taken, unless the program knows of it.
    pub(super) fn unseen(&self, request: &Request) -> Option<&Message> {
        match self.open.get(&request.id()) {
            Some(State::Received { message, seen: false }) => Some(message),
            _ => None,
        }
    }

    /// Records that a test has returned `true`.
    pub(super) fn mark_seen(&mut self, request: &Request) {
        if let Some(State::Received { seen, .. }) = self.open.get_mut(&request.id()) {
            *seen = true;
        }
    }

    /// Removes a complete request: returns a send's status, or (as `Err`) the received message.
    pub(super) fn take(&mut self, call: &'static str, request: Request) -> Result<Result<Status, Message>, CallError> {
        let unknown = CallError::UnknownRequest { call, id: request.id() };
        match self.open.remove(&request.id()) {
            Some(State::Sent(status)) => Ok(Ok(status)),
            Some(State::Received { message, .. }) => Ok(Err(message)),
            Some(posted) => {
                self.open.insert(request.id(), posted);
                Err(unknown)
            }
            None => Err(unknown),
        }
    }

    fn get(&self, call: &'static str, request: &Request) -> Result<&State, CallError> {
        self.open.get(&request.id()).ok_or(CallError::UnknownRequest { call, id: request.id() })
    }
}
