//! A communicator that fails every call after a fatal error.

use bytes::Bytes;
use counterfoil::Epoch;
use counterfoil_protocols::api::CollectiveClass;

use super::{CollectiveRun, CollectiveSubstrate, Communicator, InternalTag, Request, Restart, StateProvider, Status};
use crate::Error;

/// The first [fatal](Error::is_fatal) error from a rank's calls.
#[derive(Debug, Default)]
pub struct FirstFailure(Option<String>);

impl FirstFailure {
    /// Checks that no call has failed for good.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn check(&self) -> Result<(), Error> {
        self.0.as_ref().map_or(Ok(()), |earlier| Err(Error::Failed { earlier: earlier.clone() }))
    }

    /// Records the result of a call made after [`check`](Self::check).
    pub fn note<T>(&mut self, called: &Result<T, Error>) {
        if let Err(error) = called
            && error.is_fatal()
        {
            self.0 = Some(error.to_string());
        }
    }
}

/// A communicator for a program that may ignore errors: after a [fatal](Error::is_fatal) error, every call fails.
///
/// Anything such a program would still send and receive is no part of the execution to be repeated by a replacement.
#[derive(Debug)]
pub struct FailStop<'a, C> {
    communicator: &'a mut C,
    failure: FirstFailure,
}

impl<'a, C: Communicator> FailStop<'a, C> {
    /// Passes calls on to `communicator`.
    pub fn new(communicator: &'a mut C) -> FailStop<'a, C> {
        FailStop { communicator, failure: FirstFailure::default() }
    }

    /// Checks that no call has failed for good.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn check(&self) -> Result<(), Error> {
        self.failure.check()
    }

    fn call<T>(&mut self, call: impl FnOnce(&mut C) -> Result<T, Error>) -> Result<T, Error> {
        self.check()?;
        let called = call(self.communicator);
        self.failure.note(&called);
        called
    }
}

impl<C: Communicator> Communicator for FailStop<'_, C> {
    fn rank(&self) -> u32 {
        self.communicator.rank()
    }

    fn size(&self) -> u32 {
        self.communicator.size()
    }

    fn isend(&mut self, to: u32, tag: i32, payload: &[u8]) -> Result<Request, Error> {
        self.call(|communicator| communicator.isend(to, tag, payload))
    }

    fn irecv(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Request, Error> {
        self.call(|communicator| communicator.irecv(source, tag))
    }

    fn wait(&mut self, request: Request) -> Result<(Status, Bytes), Error> {
        self.call(|communicator| communicator.wait(request))
    }

    fn test(&mut self, request: &Request) -> Result<bool, Error> {
        self.call(|communicator| communicator.test(request))
    }

    fn probe(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Status, Error> {
        self.call(|communicator| communicator.probe(source, tag))
    }

    fn iprobe(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Option<Status>, Error> {
        self.call(|communicator| communicator.iprobe(source, tag))
    }

    fn checkpoint(&mut self, state: &[u8]) -> Result<Epoch, Error> {
        self.call(|communicator| communicator.checkpoint(state))
    }

    fn is_checkpoint_due(&self) -> bool {
        self.communicator.is_checkpoint_due()
    }

    fn restore(&mut self) -> Result<Option<Bytes>, Error> {
        self.call(C::restore)
    }

    fn restart(&mut self) -> Result<Option<Restart>, Error> {
        self.call(C::restart)
    }

    fn rebuilt(&mut self) -> Result<(), Error> {
        self.call(C::rebuilt)
    }

    fn provide_state(&mut self, provider: StateProvider) {
        self.communicator.provide_state(provider);
    }

    fn iteration(&mut self, n: u64) -> Result<(), Error> {
        self.call(|communicator| communicator.iteration(n))
    }

    fn substrate(&mut self) -> &mut dyn CollectiveSubstrate {
        self
    }
}

impl<C: Communicator> CollectiveSubstrate for FailStop<'_, C> {
    fn isend_internal(&mut self, to: u32, tag: InternalTag, payload: &[u8]) -> Result<Request, Error> {
        self.call(|communicator| communicator.substrate().isend_internal(to, tag, payload))
    }

    fn irecv_internal(&mut self, source: u32, tag: InternalTag) -> Result<Request, Error> {
        self.call(|communicator| communicator.substrate().irecv_internal(source, tag))
    }

    fn begin_collective(&mut self) -> InternalTag {
        self.communicator.substrate().begin_collective()
    }

    fn plan_collective(
        &mut self,
        tag: InternalTag,
        class: CollectiveClass,
        uniform: bool,
    ) -> Result<CollectiveRun, Error> {
        self.call(|communicator| communicator.substrate().plan_collective(tag, class, uniform))
    }

    fn complete_collective(&mut self, tag: InternalTag, result: &dyn Fn() -> Vec<u8>) -> Result<(), Error> {
        self.call(|communicator| communicator.substrate().complete_collective(tag, result))
    }
}
