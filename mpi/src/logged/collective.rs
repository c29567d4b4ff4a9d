//! Collective operations in which nobody is more than others. All ranks of a communicator call each of them, in the same order.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::communicator::LoggedCommunicator;
use super::error::LoggedError;
use super::partition::{Partition, PartitionMut};
use super::request::CollectiveRequest;
use crate::collective::{Elements, Outgoing, Ready, Reduction, What};
use crate::operation::Operation;
use crate::request::LocalScope;

/// What ranks do together, and nobody is more than others. Memory that is given has the same length on all ranks, but for the `varcount`
/// forms.
///
/// The `immediate_` forms begin an operation on memory that is borrowed up to the end of a [`scope`](super::scope); what a rank gives is in
/// the log when they return.
///
/// ```no_run
/// # use counterfoil_mpi::SystemOperation;
/// # use counterfoil_mpi::logged::{CommunicatorCollectives, LoggedCommunicator, LoggedError, PartitionMut, Request, scope};
/// # fn example(world: &LoggedCommunicator) -> Result<(), LoggedError> {
/// // Rank r gives r + 1 numbers.
/// let mine = vec![world.rank(); world.rank() as usize + 1];
/// let counts: Vec<usize> = (1..=world.size() as usize).collect();
/// let mut all = vec![0_u32; counts.iter().sum()];
/// world.all_gather_varcount_into(&mine[..], &mut PartitionMut::in_order(&mut all, &counts)?)?;
///
/// let (residual, mut greatest) = ([0.25_f64], [0.0]);
/// scope(|scope| {
///     let request = world.immediate_all_reduce_into(scope, &residual, &mut greatest, SystemOperation::Max)?;
///     // ... the next step's work ...
///     println!("residual {}", request.wait()?[0]);
///     Ok::<_, LoggedError>(())
/// })?;
/// # Ok(())
/// # }
/// ```
pub trait CommunicatorCollectives {
    /// The communicator.
    fn communicator(&self) -> &LoggedCommunicator;

    /// Returns once every rank has called it.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    fn barrier(&self) -> Result<(), LoggedError> {
        let comm = self.communicator();
        comm.now(comm.shared.comm.ready(What::Barrier, Outgoing::NOTHING)?)
    }

    /// Begins [`barrier`](Self::barrier).
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    fn immediate_barrier(&self) -> Result<CollectiveRequest<'static>, LoggedError> {
        let comm = self.communicator();
        let ready = comm.shared.comm.ready(What::Barrier, Outgoing::NOTHING)?;
        comm.engine.borrow_mut().contribute(&comm.shared, None)?;
        let begun = ready.begin()?;
        comm.engine.borrow_mut().begun_here(&comm.shared)?;
        Ok(CollectiveRequest::new(begun, comm))
    }

    /// Gives every rank what each rank has in `send`, one behind the other.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]: [`MpiError::Length`](crate::MpiError::Length) if `receive` isn't as long as that; [`LoggedError::Append`].
    fn all_gather_into<S: IntoBytes + Immutable + ?Sized, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        send: &S,
        receive: &mut R,
    ) -> Result<(), LoggedError> {
        let comm = self.communicator();
        let what = What::AllGather;
        let ready = comm.shared.comm.ready_into(what, Outgoing::of(send), receive, None)?;
        comm.now(ready)
    }

    /// Begins [`all_gather_into`](Self::all_gather_into).
    ///
    /// # Errors
    /// As of [`all_gather_into`](Self::all_gather_into).
    fn immediate_all_gather_into<'a, S: IntoBytes + Immutable + ?Sized, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a S,
        receive: &'a mut R,
    ) -> Result<CollectiveRequest<'a, R>, LoggedError> {
        let comm = self.communicator();
        let what = What::AllGather;
        let ready = comm.shared.comm.ready_into(what, Outgoing::of(send), receive, None)?;
        comm.later(scope, ready)
    }

    /// As [`all_gather_into`](Self::all_gather_into), from each rank as much as its part of `receive` has.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]: [`MpiError::Parts`](crate::MpiError::Parts) if there aren't as many parts as ranks;
    /// [`MpiError::Length`](crate::MpiError::Length) if this rank's is not as long as `send`; [`LoggedError::Append`].
    fn all_gather_varcount_into<S: IntoBytes + Immutable + ?Sized, T: FromBytes + IntoBytes + Immutable>(
        &self,
        send: &S,
        receive: &mut PartitionMut<'_, T>,
    ) -> Result<(), LoggedError> {
        let comm = self.communicator();
        let (receive, parts) = receive.borrowed().incoming()?;
        let what = What::AllGather;
        let ready = comm.shared.comm.ready_into(what, Outgoing::of(send), receive, Some(parts))?;
        comm.now(ready)
    }

    /// Begins [`all_gather_varcount_into`](Self::all_gather_varcount_into).
    ///
    /// # Errors
    /// As of [`all_gather_varcount_into`](Self::all_gather_varcount_into).
    fn immediate_all_gather_varcount_into<
        'a,
        S: IntoBytes + Immutable + ?Sized,
        T: FromBytes + IntoBytes + Immutable,
    >(
        &self,
        scope: &LocalScope<'a>,
        send: &'a S,
        receive: PartitionMut<'a, T>,
    ) -> Result<CollectiveRequest<'a, [T]>, LoggedError> {
        let comm = self.communicator();
        let (receive, parts) = receive.incoming()?;
        let what = What::AllGather;
        let ready = comm.shared.comm.ready_into(what, Outgoing::of(send), receive, Some(parts))?;
        comm.later(scope, ready)
    }

    /// Gives each rank its part of `send`, and collects from each in `receive`: parts of the same length.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]: [`MpiError::Length`](crate::MpiError::Length) if the two aren't as many parts of the same length as
    /// there are ranks; [`LoggedError::Append`].
    fn all_to_all_into<S: IntoBytes + Immutable + ?Sized, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        send: &S,
        receive: &mut R,
    ) -> Result<(), LoggedError> {
        let comm = self.communicator();
        let what = What::AllToAll;
        let ready = comm.shared.comm.ready_into(what, Outgoing::of(send), receive, None)?;
        comm.now(ready)
    }

    /// Begins [`all_to_all_into`](Self::all_to_all_into).
    ///
    /// # Errors
    /// As of [`all_to_all_into`](Self::all_to_all_into).
    fn immediate_all_to_all_into<'a, S: IntoBytes + Immutable + ?Sized, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a S,
        receive: &'a mut R,
    ) -> Result<CollectiveRequest<'a, R>, LoggedError> {
        let comm = self.communicator();
        let what = What::AllToAll;
        let ready = comm.shared.comm.ready_into(what, Outgoing::of(send), receive, None)?;
        comm.later(scope, ready)
    }

    /// As [`all_to_all_into`](Self::all_to_all_into), with parts of any length: that of a rank's part of `receive` is what that
    /// rank gives this one.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]: [`MpiError::Parts`](crate::MpiError::Parts) if there aren't as many parts as ranks;
    /// [`MpiError::Length`](crate::MpiError::Length) if this rank's own two are not as long as each other; [`LoggedError::Append`].
    fn all_to_all_varcount_into<T: FromBytes + IntoBytes + Immutable>(
        &self,
        send: &Partition<'_, T>,
        receive: &mut PartitionMut<'_, T>,
    ) -> Result<(), LoggedError> {
        let comm = self.communicator();
        let (receive, parts) = receive.borrowed().incoming()?;
        let what = What::AllToAll;
        let ready = comm.shared.comm.ready_into(what, send.outgoing()?, receive, Some(parts))?;
        comm.now(ready)
    }

    /// Begins [`all_to_all_varcount_into`](Self::all_to_all_varcount_into).
    ///
    /// # Errors
    /// As of [`all_to_all_varcount_into`](Self::all_to_all_varcount_into).
    fn immediate_all_to_all_varcount_into<'a, T: FromBytes + IntoBytes + Immutable>(
        &self,
        scope: &LocalScope<'a>,
        send: &Partition<'a, T>,
        receive: PartitionMut<'a, T>,
    ) -> Result<CollectiveRequest<'a, [T]>, LoggedError> {
        let comm = self.communicator();
        let (receive, parts) = receive.incoming()?;
        let what = What::AllToAll;
        let ready = comm.shared.comm.ready_into(what, send.outgoing()?, receive, Some(parts))?;
        comm.later(scope, ready)
    }

    /// Reduces what the ranks have in `send`, element by element, into `receive` of every rank.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]: [`MpiError::Length`](crate::MpiError::Length) if the two aren't as long as each other;
    /// [`LoggedError::Append`].
    fn all_reduce_into<T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        send: &[T],
        receive: &mut [T],
        operation: O,
    ) -> Result<(), LoggedError> {
        let comm = self.communicator();
        comm.now(comm.reduction(Reduction::All, send, receive, operation)?)
    }

    /// Begins [`all_reduce_into`](Self::all_reduce_into).
    ///
    /// # Errors
    /// As of [`all_reduce_into`](Self::all_reduce_into).
    fn immediate_all_reduce_into<'a, T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a [T],
        receive: &'a mut [T],
        operation: O,
    ) -> Result<CollectiveRequest<'a, [T]>, LoggedError> {
        let comm = self.communicator();
        comm.later(scope, comm.reduction(Reduction::All, send, receive, operation)?)
    }

    /// Reduces what the ranks have in `send`, element by element, and gives each rank its part of the result: `receive`, of the
    /// same length on all.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]: [`MpiError::Length`](crate::MpiError::Length) if `send` isn't as many parts of that length as there
    /// are ranks; [`LoggedError::Append`].
    fn reduce_scatter_block_into<T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        send: &[T],
        receive: &mut [T],
        operation: O,
    ) -> Result<(), LoggedError> {
        let comm = self.communicator();
        comm.now(comm.reduction(Reduction::Scattered, send, receive, operation)?)
    }

    /// Begins [`reduce_scatter_block_into`](Self::reduce_scatter_block_into).
    ///
    /// # Errors
    /// As of [`reduce_scatter_block_into`](Self::reduce_scatter_block_into).
    fn immediate_reduce_scatter_block_into<'a, T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a [T],
        receive: &'a mut [T],
        operation: O,
    ) -> Result<CollectiveRequest<'a, [T]>, LoggedError> {
        let comm = self.communicator();
        comm.later(scope, comm.reduction(Reduction::Scattered, send, receive, operation)?)
    }

    /// Reduces what the ranks up to this one have in `send` into its `receive`.
    ///
    /// # Errors
    /// As of [`all_reduce_into`](Self::all_reduce_into).
    fn scan_into<T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        send: &[T],
        receive: &mut [T],
        operation: O,
    ) -> Result<(), LoggedError> {
        let comm = self.communicator();
        comm.now(comm.reduction(Reduction::UpToSelf, send, receive, operation)?)
    }

    /// Begins [`scan_into`](Self::scan_into).
    ///
    /// # Errors
    /// As of [`scan_into`](Self::scan_into).
    fn immediate_scan_into<'a, T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a [T],
        receive: &'a mut [T],
        operation: O,
    ) -> Result<CollectiveRequest<'a, [T]>, LoggedError> {
        let comm = self.communicator();
        comm.later(scope, comm.reduction(Reduction::UpToSelf, send, receive, operation)?)
    }

    /// Reduces what the ranks before this one have in `send` into its `receive`, which stays as it was on rank 0.
    ///
    /// # Errors
    /// As of [`all_reduce_into`](Self::all_reduce_into).
    fn exclusive_scan_into<T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        send: &[T],
        receive: &mut [T],
        operation: O,
    ) -> Result<(), LoggedError> {
        let comm = self.communicator();
        comm.now(comm.reduction(Reduction::BeforeSelf, send, receive, operation)?)
    }

    /// Begins [`exclusive_scan_into`](Self::exclusive_scan_into).
    ///
    /// # Errors
    /// As of [`exclusive_scan_into`](Self::exclusive_scan_into).
    fn immediate_exclusive_scan_into<'a, T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a [T],
        receive: &'a mut [T],
        operation: O,
    ) -> Result<CollectiveRequest<'a, [T]>, LoggedError> {
        let comm = self.communicator();
        comm.later(scope, comm.reduction(Reduction::BeforeSelf, send, receive, operation)?)
    }
}

impl LoggedCommunicator {
    /// A reduction in which this rank gets something.
    pub(super) fn reduction<'b, T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        which: Reduction,
        send: &'b [T],
        receive: &'b mut [T],
        operation: O,
    ) -> Result<Ready<'_, 'b, [T]>, LoggedError> {
        let what = What::Reduce(which, Elements::of(operation));
        Ok(self.shared.comm.ready_into(what, Outgoing::of(send), receive, None)?)
    }

    /// Keeps what this rank gives, then does the operation.
    pub(super) fn now<B: ?Sized>(&self, ready: Ready<'_, '_, B>) -> Result<(), LoggedError> {
        self.engine.borrow_mut().contribute(&self.shared, ready.gives().as_deref())?;
        // One that synchronises ends on no rank before all have begun it.
        let synchronises = ready.synchronises();
        ready.now()?;
        self.engine.borrow_mut().ended_here(&self.shared, synchronises)
    }

    /// Keeps what this rank gives, then begins the operation.
    pub(super) fn later<'a, B: ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        ready: Ready<'_, 'a, B>,
    ) -> Result<CollectiveRequest<'a, B>, LoggedError> {
        self.engine.borrow_mut().contribute(&self.shared, ready.gives().as_deref())?;
        let begun = ready.later(scope)?;
        self.engine.borrow_mut().begun_here(&self.shared)?;
        Ok(CollectiveRequest::new(begun, self))
    }
}

impl CommunicatorCollectives for LoggedCommunicator {
    fn communicator(&self) -> &LoggedCommunicator {
        self
    }
}
