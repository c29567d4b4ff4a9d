//! Calls for a layer with several communicators and operations consisting of several messages.
//!
//! Each communicator has an even context number for its application messages, and the next one for its collectives.
//! Ranks are the job's.

use bytes::Bytes;
use counterfoil_protocols::api::Protocol;

use super::Endpoint;
use crate::Error;
use crate::communicator::{CallError, Communicator, Request, Status};
use crate::history::Place;
use crate::matching::Pattern;
use crate::transport::{Step, Transport};

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Like [`Communicator::isend`], in a context, with any tag.
    ///
    /// # Errors
    /// [`Error`]; [`CallError::NoSuchRank`].
    pub fn isend_in(&mut self, context: u32, to: u32, tag: i32, payload: &[u8]) -> Result<Request, Error> {
        CallError::check_rank("isend", to, self.settings.ranks)?;
        let sent = match self.send_hop(context, to, payload)? {
            Some(hop) => hop,
            None => self.post_send(to, tag, context, payload)?,
        };
        self.end_step(Step::Sent { context })?;
        Ok(sent)
    }

    /// Like [`isend_in`](Self::isend_in), in synchronous mode: the request completes once a receive has taken the
    /// message.
    ///
    /// # Errors
    /// [`Error`]; [`CallError::NoSuchRank`].
    pub fn issend_in(&mut self, context: u32, to: u32, tag: i32, payload: &[u8]) -> Result<Request, Error> {
        CallError::check_rank("issend", to, self.settings.ranks)?;
        self.post_synchronous_send(to, tag, context, payload)
    }

    /// Frees a send's request; the send continues.
    pub fn free_send(&mut self, request: Request) {
        self.requests.free_send(&request);
    }

    /// Like [`Communicator::irecv`], in a context, with any tag.
    ///
    /// # Errors
    /// [`Error`]; [`CallError::NoSuchRank`].
    pub fn irecv_in(&mut self, context: u32, source: Option<u32>, tag: Option<i32>) -> Result<Request, Error> {
        self.check_source("irecv", source)?;
        if let Some(hop) = self.receive_hop_in(context, source)? {
            return Ok(hop);
        }
        self.post_receive(Pattern { source, tag, comm: context })
    }

    /// Like [`Communicator::probe`], in a context, with any tag.
    ///
    /// # Errors
    /// [`Error`]; [`CallError::NoSuchRank`].
    pub fn probe_in(&mut self, context: u32, source: Option<u32>, tag: Option<i32>) -> Result<Status, Error> {
        self.check_source("probe", source)?;
        self.choose_probe(Pattern { source, tag, comm: context })
    }

    /// Like [`Communicator::iprobe`], in a context, with any tag.
    ///
    /// # Errors
    /// [`Error`]; [`CallError::NoSuchRank`].
    pub fn iprobe_in(&mut self, context: u32, source: Option<u32>, tag: Option<i32>) -> Result<Option<Status>, Error> {
        self.check_source("iprobe", source)?;
        self.choose_iprobe(Pattern { source, tag, comm: context })
    }

    /// Waits until one of several operations is complete and returns its index; `None` if there are none.
    ///
    /// An operation is complete with all its requests, each of which must then be waited for. The outcome is a
    /// determinant, as for [`Communicator::test`].
    ///
    /// # Errors
    /// [`Error`]; [`CallError::UnknownRequest`].
    pub fn wait_any(&mut self, operations: &[&[&Request]]) -> Result<Option<usize>, Error> {
        self.choose_complete(operations, true)
    }

    /// Returns the index of a complete operation, as [`wait_any`](Self::wait_any) does, or `None` if none is.
    ///
    /// # Errors
    /// Same as [`wait_any`](Self::wait_any).
    pub fn test_any(&mut self, operations: &[&[&Request]]) -> Result<Option<usize>, Error> {
        self.choose_complete(operations, false)
    }

    /// Sets the program's current call in its own terms, for a replay that records a history.
    pub fn set_place(&mut self, call: u64, name: &'static str) {
        if let Some(history) = &mut self.history {
            history.place = Place { call, name: name.into() };
        }
    }

    /// Cancels a receive; returns its message if it had arrived.
    ///
    /// Other requests are waited for. The outcome is a determinant.
    ///
    /// # Errors
    /// [`Error`]; [`CallError::UnknownRequest`].
    pub fn cancel(&mut self, request: Request) -> Result<Option<(Status, Bytes)>, Error> {
        if self.choose_cancelled(&request)? { Ok(None) } else { self.wait(request).map(Some) }
    }
}
