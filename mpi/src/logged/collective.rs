//! Collective operations without a root.
//!
//! All ranks in a communicator call them, in the same order.

use counterfoil_mpi_core::collective::{Collective, Elements, Incoming, Outgoing, Ready, Reduction};
use counterfoil_mpi_core::operation::Operation;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::communicator::LoggedCommunicator;
use super::error::LoggedError;
use super::partition::{Partition, PartitionMut};
use super::pending::{Borrowed, LocalScope, Pending};
use super::request::CollectiveRequest;

/// Collective operations with the same part for all ranks.
///
/// Buffers have the same length on all ranks, except in the `varcount` forms.
///
/// The `immediate_` forms begin an operation on memory borrowed until the end of a [`scope`](super::scope); this rank's
/// contribution is in the log when they return.
///
/// ```no_run
/// # use counterfoil_mpi::SystemOperation;
/// # use counterfoil_mpi::logged::{CommunicatorCollectives, LoggedCommunicator, LoggedError};
/// # use counterfoil_mpi::logged::{PartitionMut, Request, scope};
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
    /// Returns the communicator.
    fn communicator(&self) -> &LoggedCommunicator;

    /// Returns once every rank has called it.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    fn barrier(&self) -> Result<(), LoggedError> {
        self.communicator().prepare_barrier()?.run()
    }

    /// Begins [`barrier`](Self::barrier).
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    fn immediate_barrier(&self) -> Result<CollectiveRequest<'static>, LoggedError> {
        self.communicator().prepare_barrier()?.begin_unscoped()
    }

    /// Gathers every rank's `send` into every rank's `receive`, in rank order.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]: [`MpiError::Length`](crate::MpiError::Length) if `receive` isn't as long as all of them;
    /// [`LoggedError::Append`].
    fn all_gather_into<S: IntoBytes + Immutable + ?Sized, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        send: &S,
        receive: &mut R,
    ) -> Result<(), LoggedError> {
        self.communicator().prepare(Collective::AllGather, Outgoing::of(send), Incoming::of(receive))?.run()
    }

    /// Begins [`all_gather_into`](Self::all_gather_into).
    ///
    /// # Errors
    /// Same as [`all_gather_into`](Self::all_gather_into).
    fn immediate_all_gather_into<'a, S: IntoBytes + Immutable + ?Sized, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a S,
        receive: &'a mut R,
    ) -> Result<CollectiveRequest<'a, R>, LoggedError> {
        self.communicator().prepare(Collective::AllGather, Outgoing::of(send), Incoming::of(receive))?.begin(scope)
    }

    /// Gathers every rank's `send`, of any length, into its part of `receive` on every rank.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]: [`MpiError::Parts`](crate::MpiError::Parts) if there aren't as many parts as ranks;
    /// [`MpiError::Length`](crate::MpiError::Length) if this rank's part is not as long as `send`;
    /// [`LoggedError::Append`].
    fn all_gather_varcount_into<S: IntoBytes + Immutable + ?Sized, T: FromBytes + IntoBytes + Immutable>(
        &self,
        send: &S,
        receive: &mut PartitionMut<'_, T>,
    ) -> Result<(), LoggedError> {
        let receive = receive.reborrow().incoming()?;
        self.communicator().prepare(Collective::AllGatherVarcount, Outgoing::of(send), receive)?.run()
    }

    /// Begins [`all_gather_varcount_into`](Self::all_gather_varcount_into).
    ///
    /// # Errors
    /// Same as [`all_gather_varcount_into`](Self::all_gather_varcount_into).
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
        let receive = receive.incoming()?;
        self.communicator().prepare(Collective::AllGatherVarcount, Outgoing::of(send), receive)?.begin(scope)
    }

    /// Sends each rank its part of `send`, and receives a part from each into `receive`; all parts have the same
    /// length.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]: [`MpiError::Length`](crate::MpiError::Length) if the two aren't as many parts of the same
    /// length as there are ranks; [`LoggedError::Append`].
    fn all_to_all_into<S: IntoBytes + Immutable + ?Sized, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        send: &S,
        receive: &mut R,
    ) -> Result<(), LoggedError> {
        self.communicator().prepare(Collective::AllToAll, Outgoing::of(send), Incoming::of(receive))?.run()
    }

    /// Begins [`all_to_all_into`](Self::all_to_all_into).
    ///
    /// # Errors
    /// Same as [`all_to_all_into`](Self::all_to_all_into).
    fn immediate_all_to_all_into<'a, S: IntoBytes + Immutable + ?Sized, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a S,
        receive: &'a mut R,
    ) -> Result<CollectiveRequest<'a, R>, LoggedError> {
        self.communicator().prepare(Collective::AllToAll, Outgoing::of(send), Incoming::of(receive))?.begin(scope)
    }

    /// Sends each rank its part of `send`, and receives from each into its part of `receive`; a part is as long as its
    /// sender's.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]: [`MpiError::Parts`](crate::MpiError::Parts) if there aren't as many parts as ranks;
    /// [`MpiError::Length`](crate::MpiError::Length) if this rank's own two parts differ in length;
    /// [`LoggedError::Append`].
    fn all_to_all_varcount_into<T: FromBytes + IntoBytes + Immutable>(
        &self,
        send: &Partition<'_, T>,
        receive: &mut PartitionMut<'_, T>,
    ) -> Result<(), LoggedError> {
        let receive = receive.reborrow().incoming()?;
        self.communicator().prepare(Collective::AllToAllVarcount, send.outgoing()?, receive)?.run()
    }

    /// Begins [`all_to_all_varcount_into`](Self::all_to_all_varcount_into).
    ///
    /// # Errors
    /// Same as [`all_to_all_varcount_into`](Self::all_to_all_varcount_into).
    fn immediate_all_to_all_varcount_into<'a, T: FromBytes + IntoBytes + Immutable>(
        &self,
        scope: &LocalScope<'a>,
        send: &Partition<'a, T>,
        receive: PartitionMut<'a, T>,
    ) -> Result<CollectiveRequest<'a, [T]>, LoggedError> {
        let receive = receive.incoming()?;
        self.communicator().prepare(Collective::AllToAllVarcount, send.outgoing()?, receive)?.begin(scope)
    }

    /// Reduces all ranks' `send`, element by element, into every rank's `receive`.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]: [`MpiError::Length`](crate::MpiError::Length) if the two differ in length;
    /// [`LoggedError::Append`].
    fn all_reduce_into<T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        send: &[T],
        receive: &mut [T],
        operation: O,
    ) -> Result<(), LoggedError> {
        self.communicator().prepare_reduction(Reduction::All, operation, send, receive)?.run()
    }

    /// Begins [`all_reduce_into`](Self::all_reduce_into).
    ///
    /// # Errors
    /// Same as [`all_reduce_into`](Self::all_reduce_into).
    fn immediate_all_reduce_into<'a, T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a [T],
        receive: &'a mut [T],
        operation: O,
    ) -> Result<CollectiveRequest<'a, [T]>, LoggedError> {
        self.communicator().prepare_reduction(Reduction::All, operation, send, receive)?.begin(scope)
    }

    /// Reduces all ranks' `send`, element by element, and gives each rank its part of the result: `receive`, of the
    /// same length on all ranks.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]: [`MpiError::Length`](crate::MpiError::Length) if `send` isn't as many parts of that length
    /// as there are ranks; [`LoggedError::Append`].
    fn reduce_scatter_block_into<T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        send: &[T],
        receive: &mut [T],
        operation: O,
    ) -> Result<(), LoggedError> {
        self.communicator().prepare_reduction(Reduction::Scattered, operation, send, receive)?.run()
    }

    /// Begins [`reduce_scatter_block_into`](Self::reduce_scatter_block_into).
    ///
    /// # Errors
    /// Same as [`reduce_scatter_block_into`](Self::reduce_scatter_block_into).
    fn immediate_reduce_scatter_block_into<'a, T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a [T],
        receive: &'a mut [T],
        operation: O,
    ) -> Result<CollectiveRequest<'a, [T]>, LoggedError> {
        self.communicator().prepare_reduction(Reduction::Scattered, operation, send, receive)?.begin(scope)
    }

    /// Reduces the `send` of the ranks up to and including this one into its `receive`.
    ///
    /// # Errors
    /// Same as [`all_reduce_into`](Self::all_reduce_into).
    fn scan_into<T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        send: &[T],
        receive: &mut [T],
        operation: O,
    ) -> Result<(), LoggedError> {
        self.communicator().prepare_reduction(Reduction::UpToSelf, operation, send, receive)?.run()
    }

    /// Begins [`scan_into`](Self::scan_into).
    ///
    /// # Errors
    /// Same as [`scan_into`](Self::scan_into).
    fn immediate_scan_into<'a, T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a [T],
        receive: &'a mut [T],
        operation: O,
    ) -> Result<CollectiveRequest<'a, [T]>, LoggedError> {
        self.communicator().prepare_reduction(Reduction::UpToSelf, operation, send, receive)?.begin(scope)
    }

    /// Reduces the `send` of the ranks before this one into its `receive`, left unchanged on rank 0.
    ///
    /// # Errors
    /// Same as [`all_reduce_into`](Self::all_reduce_into).
    fn exclusive_scan_into<T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        send: &[T],
        receive: &mut [T],
        operation: O,
    ) -> Result<(), LoggedError> {
        self.communicator().prepare_reduction(Reduction::BeforeSelf, operation, send, receive)?.run()
    }

    /// Begins [`exclusive_scan_into`](Self::exclusive_scan_into).
    ///
    /// # Errors
    /// Same as [`exclusive_scan_into`](Self::exclusive_scan_into).
    fn immediate_exclusive_scan_into<'a, T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a [T],
        receive: &'a mut [T],
        operation: O,
    ) -> Result<CollectiveRequest<'a, [T]>, LoggedError> {
        self.communicator().prepare_reduction(Reduction::BeforeSelf, operation, send, receive)?.begin(scope)
    }
}

/// A collective operation on a logged communicator, with checked buffers.
///
/// The blocking form runs it, the immediate form begins it.
pub(super) struct Prepared<'c, 'b, B: ?Sized = ()> {
    comm: &'c LoggedCommunicator,
    ready: Ready<'b>,
    /// This rank's receive memory, borrowed for `'b`.
    memory: *mut B,
}

impl<'b, B: ?Sized> Prepared<'_, 'b, B> {
    /// Logs this rank's contribution, then carries the operation out.
    pub(super) fn run(self) -> Result<(), LoggedError> {
        self.comm.carrier.run(self.ready)
    }

    /// Logs this rank's contribution, then begins the operation; it ends before `scope` does.
    pub(super) fn begin(self, scope: &LocalScope<'b>) -> Result<CollectiveRequest<'b, B>, LoggedError> {
        let carrier = &self.comm.carrier;
        // SAFETY: the scope, which ends before `'b`, ends the operation; the memory is given back once, after that.
        unsafe {
            let (operation, number) = carrier.begin(self.ready)?;
            let borrowed = Borrowed::scoped(scope, Pending::new(operation, carrier), self.memory);
            Ok(CollectiveRequest::new(borrowed, number))
        }
    }
}

impl Prepared<'_, 'static> {
    /// Logs this rank's contribution, then begins the operation; it borrows nothing, so it needs no scope.
    fn begin_unscoped(self) -> Result<CollectiveRequest<'static>, LoggedError> {
        let carrier = &self.comm.carrier;
        // SAFETY: `'static` never ends.
        let (operation, number) = unsafe { carrier.begin(self.ready)? };
        Ok(CollectiveRequest::new(Borrowed::unscoped(Pending::new(operation, carrier)), number))
    }
}

impl LoggedCommunicator {
    /// Prepares an operation: checks its buffers.
    pub(super) fn prepare<'b, B: ?Sized>(
        &self,
        operation: Collective,
        send: Outgoing<'b>,
        receive: Incoming<'b, B>,
    ) -> Result<Prepared<'_, 'b, B>, LoggedError> {
        let memory = receive.memory();
        let ready = Ready::new(operation, self.rank(), self.size(), send, receive)?;
        Ok(Prepared { comm: self, ready, memory })
    }

    /// Prepares a reduction with a result for this rank.
    pub(super) fn prepare_reduction<'b, T: FromBytes + IntoBytes + Immutable>(
        &self,
        reduction: Reduction,
        operation: impl Operation<T>,
        send: &'b [T],
        receive: &'b mut [T],
    ) -> Result<Prepared<'_, 'b, [T]>, LoggedError> {
        let reduce = Collective::Reduce(reduction, Elements::of(operation));
        self.prepare(reduce, Outgoing::of(send), Incoming::of(receive))
    }

    fn prepare_barrier(&self) -> Result<Prepared<'_, 'static>, LoggedError> {
        self.prepare(Collective::Barrier, Outgoing::NOTHING, Incoming::NOTHING)
    }
}

impl CommunicatorCollectives for LoggedCommunicator {
    fn communicator(&self) -> &LoggedCommunicator {
        self
    }
}
