//! A communicator as seen by the runtime's collectives: with its own ranks and tag counter.

use bytes::Bytes;
use counterfoil::Epoch;
use counterfoil_runtime::Error;
use counterfoil_runtime::communicator::{CallError, CollectiveSubstrate, Communicator, InternalTag, Request, Status};

use super::{Context, RankEndpoint};

/// An endpoint with a communicator's ranks and context numbers.
pub struct View<'a> {
    pub(super) endpoint: &'a mut RankEndpoint,
    pub(super) context: &'a Context,
}

impl View<'_> {
    fn source_in_job(&self, call: &'static str, source: Option<u32>) -> Result<Option<u32>, CallError> {
        source.map(|source| self.context.rank_in_job(call, source)).transpose()
    }

    /// Begins a send in synchronous mode.
    ///
    /// # Errors
    /// Same as [`isend`](Communicator::isend).
    pub fn issend(&mut self, to: u32, tag: i32, payload: &[u8]) -> Result<Request, Error> {
        CallError::check_tag("issend", tag)?;
        self.endpoint.issend_in(self.context.messages(), self.context.rank_in_job("issend", to)?, tag, payload)
    }

    /// Cancels a receive; returns its message if it had arrived.
    pub(super) fn cancel(&mut self, request: Request) -> Result<Option<(Status, Bytes)>, Error> {
        let taken = self.endpoint.cancel(request)?;
        Ok(taken.map(|(status, message)| (self.in_communicator(status), message)))
    }

    fn in_communicator(&self, status: Status) -> Status {
        Status { source: self.context.rank_of(status.source), ..status }
    }
}

impl Communicator for View<'_> {
    fn rank(&self) -> u32 {
        self.context.rank()
    }

    fn size(&self) -> u32 {
        self.context.size()
    }

    fn isend(&mut self, to: u32, tag: i32, payload: &[u8]) -> Result<Request, Error> {
        CallError::check_tag("isend", tag)?;
        self.endpoint.isend_in(self.context.messages(), self.context.rank_in_job("isend", to)?, tag, payload)
    }

    fn irecv(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Request, Error> {
        tag.map_or(Ok(()), |tag| CallError::check_tag("irecv", tag))?;
        self.endpoint.irecv_in(self.context.messages(), self.source_in_job("irecv", source)?, tag)
    }

    fn wait(&mut self, request: Request) -> Result<(Status, Bytes), Error> {
        let (status, message) = self.endpoint.wait(request)?;
        Ok((self.in_communicator(status), message))
    }

    fn test(&mut self, request: &Request) -> Result<bool, Error> {
        self.endpoint.test(request)
    }

    fn probe(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Status, Error> {
        tag.map_or(Ok(()), |tag| CallError::check_tag("probe", tag))?;
        let source = self.source_in_job("probe", source)?;
        let status = self.endpoint.probe_in(self.context.messages(), source, tag)?;
        Ok(self.in_communicator(status))
    }

    fn iprobe(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Option<Status>, Error> {
        tag.map_or(Ok(()), |tag| CallError::check_tag("iprobe", tag))?;
        let source = self.source_in_job("iprobe", source)?;
        let status = self.endpoint.iprobe_in(self.context.messages(), source, tag)?;
        Ok(status.map(|status| self.in_communicator(status)))
    }

    fn checkpoint(&mut self, state: &[u8]) -> Result<Epoch, Error> {
        self.endpoint.checkpoint(state)
    }

    fn is_checkpoint_due(&self) -> bool {
        self.endpoint.is_checkpoint_due()
    }

    fn restore(&mut self) -> Result<Option<Bytes>, Error> {
        self.endpoint.restore()
    }

    fn iteration(&mut self, n: u64) -> Result<(), Error> {
        self.endpoint.iteration(n)
    }

    fn substrate(&mut self) -> &mut dyn CollectiveSubstrate {
        self
    }
}

impl CollectiveSubstrate for View<'_> {
    fn isend_internal(&mut self, to: u32, tag: InternalTag, payload: &[u8]) -> Result<Request, Error> {
        let to = self.context.rank_in_job("isend_internal", to)?;
        self.endpoint.isend_in(self.context.collectives(), to, tag.wire(), payload)
    }

    fn irecv_internal(&mut self, source: u32, tag: InternalTag) -> Result<Request, Error> {
        let source = self.context.rank_in_job("irecv_internal", source)?;
        self.endpoint.irecv_in(self.context.collectives(), Some(source), Some(tag.wire()))
    }

    fn begin_collective(&mut self) -> InternalTag {
        self.context.begin_collective()
    }
}
