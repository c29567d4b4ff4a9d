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
    /// Receive without a message. `choice`: sequence number under which its match must be recorded.
    Posted { choice: Option<u64> },
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
            Some(State::Posted { choice }) => choice,
            _ => None,
        }
    }

    pub(super) fn is_complete(&self, call: &'static str, request: &Request) -> Result<bool, CallError> {
        Ok(!matches!(self.get(call, request)?, State::Posted { .. }))
    }

    /// Returns `true` if the program knows already that the request is complete: then a test of it is no choice.
    pub(super) fn is_known_complete(&self, call: &'static str, request: &Request) -> Result<bool, CallError> {
        Ok(matches!(self.get(call, request)?, State::Sent(_) | State::Received { seen: true, .. }))
    }

    /// Returns the message that a receive has taken.
    pub(super) fn received(&self, request: &Request) -> Option<&Message> {
        match self.open.get(&request.id()) {
            Some(State::Received { message, .. }) => Some(message),
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
            Some(posted @ State::Posted { .. }) => {
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
