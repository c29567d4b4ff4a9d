//! Collective operations with a root. All ranks of a communicator call each of them, in the same order.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::communicator::{LoggedCommunicator, Process};
use super::error::LoggedError;
use super::partition::{Partition, PartitionMut};
use super::request::CollectiveRequest;
use crate::collective::{Elements, Outgoing, Ready, Reduction, What};
use crate::operation::Operation;
use crate::request::LocalScope;

/// What ranks do with one of them, the root: it gives or gets. All of them name the same one.
///
/// The `immediate_` forms begin an operation on memory that is borrowed up to the end of a [`scope`](super::scope); what a rank gives is in
/// the log when they return.
///
/// ```no_run
/// # use counterfoil_mpi::logged::{LoggedCommunicator, LoggedError, Partition, Root};
/// # fn example(world: &LoggedCommunicator) -> Result<(), LoggedError> {
/// // Rank r gets r + 1 of the root's letters.
/// let (root, mut mine) = (world.process_at_rank(0)?, vec![0; world.rank() as usize + 1]);
/// if root.is_self() {
///     let counts: Vec<usize> = (1..=world.size() as usize).collect();
///     let letters = vec![b'a'; counts.iter().sum()];
///     root.scatter_varcount_into_root(&Partition::in_order(&letters, &counts)?, &mut mine[..])
/// } else {
///     root.scatter_varcount_into(&mut mine[..])
/// }
/// # }
/// ```
pub trait Root {
    /// The communicator, and the rank in it.
    fn root(&self) -> (&LoggedCommunicator, u32);

    /// Gives every rank what the root has in `buf`, which has the same length on all.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]; [`LoggedError::Append`].
    fn broadcast_into<B: FromBytes + IntoBytes + Immutable + ?Sized>(&self, buf: &mut B) -> Result<(), LoggedError> {
        let (comm, root) = self.root();
        comm.now(comm.gotten(What::Broadcast { root }, buf)?)
    }

    /// Begins [`broadcast_into`](Self::broadcast_into).
    ///
    /// # Errors
    /// As of [`broadcast_into`](Self::broadcast_into).
    fn immediate_broadcast_into<'a, B: FromBytes + IntoBytes + Immutable + ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        buf: &'a mut B,
    ) -> Result<CollectiveRequest<'a, B>, LoggedError> {
        let (comm, root) = self.root();
        comm.later(scope, comm.gotten(What::Broadcast { root }, buf)?)
    }

    /// Gives the root `send`; called by the others.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]; [`LoggedError::Append`]. [`LoggedError::NotRoot`] if this rank is the root.
    fn gather_into<S: IntoBytes + Immutable + ?Sized>(&self, send: &S) -> Result<(), LoggedError> {
        let (comm, root) = is_other(self.root())?;
        comm.now(comm.given(What::Gather { root, in_parts: false }, send)?)
    }

    /// Begins [`gather_into`](Self::gather_into).
    ///
    /// # Errors
    /// As of [`gather_into`](Self::gather_into).
    fn immediate_gather_into<'a, S: IntoBytes + Immutable + ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a S,
    ) -> Result<CollectiveRequest<'a>, LoggedError> {
        let (comm, root) = is_other(self.root())?;
        comm.later(scope, comm.given(What::Gather { root, in_parts: false }, send)?)
    }

    /// Collects what each rank gives, one behind the other; called by the root, which gives `send`.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]: [`MpiError::Length`](crate::MpiError::Length) if `receive` isn't as long as that.
    /// [`LoggedError::NotRoot`] if this rank isn't the root.
    fn gather_into_root<S: IntoBytes + Immutable + ?Sized, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        send: &S,
        receive: &mut R,
    ) -> Result<(), LoggedError> {
        let (comm, root) = is_root(self.root())?;
        let what = What::Gather { root, in_parts: false };
        let ready = comm.shared.comm.ready_into(what, Outgoing::of(send), receive, None)?;
        comm.now(ready)
    }

    /// Begins [`gather_into_root`](Self::gather_into_root).
    ///
    /// # Errors
    /// As of [`gather_into_root`](Self::gather_into_root).
    fn immediate_gather_into_root<'a, S: IntoBytes + Immutable + ?Sized, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a S,
        receive: &'a mut R,
    ) -> Result<CollectiveRequest<'a, R>, LoggedError> {
        let (comm, root) = is_root(self.root())?;
        let what = What::Gather { root, in_parts: false };
        let ready = comm.shared.comm.ready_into(what, Outgoing::of(send), receive, None)?;
        comm.later(scope, ready)
    }

    /// Gives the root `send`, of any length; called by the others, where the root calls
    /// [`gather_varcount_into_root`](Self::gather_varcount_into_root).
    ///
    /// # Errors
    /// As of [`gather_into`](Self::gather_into).
    fn gather_varcount_into<S: IntoBytes + Immutable + ?Sized>(&self, send: &S) -> Result<(), LoggedError> {
        let (comm, root) = is_other(self.root())?;
        comm.now(comm.given(What::Gather { root, in_parts: true }, send)?)
    }

    /// Begins [`gather_varcount_into`](Self::gather_varcount_into).
    ///
    /// # Errors
    /// As of [`gather_varcount_into`](Self::gather_varcount_into).
    fn immediate_gather_varcount_into<'a, S: IntoBytes + Immutable + ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a S,
    ) -> Result<CollectiveRequest<'a>, LoggedError> {
        let (comm, root) = is_other(self.root())?;
        comm.later(scope, comm.given(What::Gather { root, in_parts: true }, send)?)
    }

    /// Collects what each rank gives into its part of `receive`; called by the root, which gives `send`.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]: [`MpiError::Parts`](crate::MpiError::Parts) if there aren't as many parts as ranks;
    /// [`MpiError::Length`](crate::MpiError::Length) if the root's is not as long as `send`. [`LoggedError::NotRoot`] if this rank
    /// isn't the root.
    fn gather_varcount_into_root<S: IntoBytes + Immutable + ?Sized, T: FromBytes + IntoBytes + Immutable>(
        &self,
        send: &S,
        receive: &mut PartitionMut<'_, T>,
    ) -> Result<(), LoggedError> {
        let (comm, root) = is_root(self.root())?;
        let (receive, parts) = receive.borrowed().incoming()?;
        let what = What::Gather { root, in_parts: true };
        let ready = comm.shared.comm.ready_into(what, Outgoing::of(send), receive, Some(parts))?;
        comm.now(ready)
    }

    /// Begins [`gather_varcount_into_root`](Self::gather_varcount_into_root).
    ///
    /// # Errors
    /// As of [`gather_varcount_into_root`](Self::gather_varcount_into_root).
    fn immediate_gather_varcount_into_root<
        'a,
        S: IntoBytes + Immutable + ?Sized,
        T: FromBytes + IntoBytes + Immutable,
    >(
        &self,
        scope: &LocalScope<'a>,
        send: &'a S,
        receive: PartitionMut<'a, T>,
    ) -> Result<CollectiveRequest<'a, [T]>, LoggedError> {
        let (comm, root) = is_root(self.root())?;
        let (receive, parts) = receive.incoming()?;
        let what = What::Gather { root, in_parts: true };
        let ready = comm.shared.comm.ready_into(what, Outgoing::of(send), receive, Some(parts))?;
        comm.later(scope, ready)
    }

    /// Gets this rank's part of what the root has; called by the others.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]. [`LoggedError::NotRoot`] if this rank is the root.
    fn scatter_into<R: FromBytes + IntoBytes + ?Sized>(&self, receive: &mut R) -> Result<(), LoggedError> {
        let (comm, root) = is_other(self.root())?;
        comm.now(comm.gotten(What::Scatter { root, in_parts: false }, receive)?)
    }

    /// Begins [`scatter_into`](Self::scatter_into).
    ///
    /// # Errors
    /// As of [`scatter_into`](Self::scatter_into).
    fn immediate_scatter_into<'a, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        receive: &'a mut R,
    ) -> Result<CollectiveRequest<'a, R>, LoggedError> {
        let (comm, root) = is_other(self.root())?;
        comm.later(scope, comm.gotten(What::Scatter { root, in_parts: false }, receive)?)
    }

    /// Gives each rank its part of `send`; called by the root, which gets its own.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]: [`MpiError::Length`](crate::MpiError::Length) if `send` isn't as many parts as there are ranks;
    /// [`LoggedError::Append`]. [`LoggedError::NotRoot`] if this rank isn't the root.
    fn scatter_into_root<S: IntoBytes + Immutable + ?Sized, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        send: &S,
        receive: &mut R,
    ) -> Result<(), LoggedError> {
        let (comm, root) = is_root(self.root())?;
        let what = What::Scatter { root, in_parts: false };
        let ready = comm.shared.comm.ready_into(what, Outgoing::of(send), receive, None)?;
        comm.now(ready)
    }

    /// Begins [`scatter_into_root`](Self::scatter_into_root).
    ///
    /// # Errors
    /// As of [`scatter_into_root`](Self::scatter_into_root).
    fn immediate_scatter_into_root<'a, S: IntoBytes + Immutable + ?Sized, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a S,
        receive: &'a mut R,
    ) -> Result<CollectiveRequest<'a, R>, LoggedError> {
        let (comm, root) = is_root(self.root())?;
        let what = What::Scatter { root, in_parts: false };
        let ready = comm.shared.comm.ready_into(what, Outgoing::of(send), receive, None)?;
        comm.later(scope, ready)
    }

    /// Gets this rank's part of what the root has, of any length; called by the others, where the root calls
    /// [`scatter_varcount_into_root`](Self::scatter_varcount_into_root).
    ///
    /// # Errors
    /// As of [`scatter_into`](Self::scatter_into).
    fn scatter_varcount_into<R: FromBytes + IntoBytes + ?Sized>(&self, receive: &mut R) -> Result<(), LoggedError> {
        let (comm, root) = is_other(self.root())?;
        comm.now(comm.gotten(What::Scatter { root, in_parts: true }, receive)?)
    }

    /// Begins [`scatter_varcount_into`](Self::scatter_varcount_into).
    ///
    /// # Errors
    /// As of [`scatter_varcount_into`](Self::scatter_varcount_into).
    fn immediate_scatter_varcount_into<'a, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        receive: &'a mut R,
    ) -> Result<CollectiveRequest<'a, R>, LoggedError> {
        let (comm, root) = is_other(self.root())?;
        comm.later(scope, comm.gotten(What::Scatter { root, in_parts: true }, receive)?)
    }

    /// Gives each rank its part of `send`; called by the root, which gets its own.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]: [`MpiError::Parts`](crate::MpiError::Parts) if there aren't as many parts as ranks;
    /// [`MpiError::Length`](crate::MpiError::Length) if the root's is not as long as `receive`; [`LoggedError::Append`].
    /// [`LoggedError::NotRoot`] if this rank isn't the root.
    fn scatter_varcount_into_root<T: FromBytes + IntoBytes + Immutable, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        send: &Partition<'_, T>,
        receive: &mut R,
    ) -> Result<(), LoggedError> {
        let (comm, root) = is_root(self.root())?;
        let what = What::Scatter { root, in_parts: true };
        let ready = comm.shared.comm.ready_into(what, send.outgoing()?, receive, None)?;
        comm.now(ready)
    }

    /// Begins [`scatter_varcount_into_root`](Self::scatter_varcount_into_root).
    ///
    /// # Errors
    /// As of [`scatter_varcount_into_root`](Self::scatter_varcount_into_root).
    fn immediate_scatter_varcount_into_root<
        'a,
        T: FromBytes + IntoBytes + Immutable,
        R: FromBytes + IntoBytes + ?Sized,
    >(
        &self,
        scope: &LocalScope<'a>,
        send: &Partition<'a, T>,
        receive: &'a mut R,
    ) -> Result<CollectiveRequest<'a, R>, LoggedError> {
        let (comm, root) = is_root(self.root())?;
        let what = What::Scatter { root, in_parts: true };
        let ready = comm.shared.comm.ready_into(what, send.outgoing()?, receive, None)?;
        comm.later(scope, ready)
    }

    /// Gives the root `send` to reduce; called by the others.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]; [`LoggedError::Append`]. [`LoggedError::NotRoot`] if this rank is the root.
    fn reduce_into<T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        send: &[T],
        operation: O,
    ) -> Result<(), LoggedError> {
        let (comm, root) = is_other(self.root())?;
        comm.now(comm.given(What::Reduce(Reduction::To(root), Elements::of(operation)), send)?)
    }

    /// Begins [`reduce_into`](Self::reduce_into).
    ///
    /// # Errors
    /// As of [`reduce_into`](Self::reduce_into).
    fn immediate_reduce_into<'a, T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a [T],
        operation: O,
    ) -> Result<CollectiveRequest<'a>, LoggedError> {
        let (comm, root) = is_other(self.root())?;
        comm.later(scope, comm.given(What::Reduce(Reduction::To(root), Elements::of(operation)), send)?)
    }

    /// Reduces what the ranks give, element by element; called by the root.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]: [`MpiError::Length`](crate::MpiError::Length) if `receive` isn't as long as `send`.
    /// [`LoggedError::NotRoot`] if this rank isn't the root.
    fn reduce_into_root<T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        send: &[T],
        receive: &mut [T],
        operation: O,
    ) -> Result<(), LoggedError> {
        let (comm, root) = is_root(self.root())?;
        comm.now(comm.reduction(Reduction::To(root), send, receive, operation)?)
    }

    /// Begins [`reduce_into_root`](Self::reduce_into_root).
    ///
    /// # Errors
    /// As of [`reduce_into_root`](Self::reduce_into_root).
    fn immediate_reduce_into_root<'a, T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a [T],
        receive: &'a mut [T],
        operation: O,
    ) -> Result<CollectiveRequest<'a, [T]>, LoggedError> {
        let (comm, root) = is_root(self.root())?;
        comm.later(scope, comm.reduction(Reduction::To(root), send, receive, operation)?)
    }
}

impl LoggedCommunicator {
    /// An operation in which this rank gives something to the root, and gets nothing.
    fn given<'b, S: IntoBytes + Immutable + ?Sized>(
        &self,
        what: What,
        send: &'b S,
    ) -> Result<Ready<'_, 'b, ()>, LoggedError> {
        Ok(self.shared.comm.ready(what, Outgoing::of(send))?)
    }

    /// An operation in which this rank has memory for what the root gives.
    fn gotten<'b, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        what: What,
        memory: &'b mut R,
    ) -> Result<Ready<'_, 'b, R>, LoggedError> {
        Ok(self.shared.comm.ready_into(what, Outgoing::NOTHING, memory, None)?)
    }
}

/// Only the root may go on.
fn is_root((comm, root): (&LoggedCommunicator, u32)) -> Result<(&LoggedCommunicator, u32), LoggedError> {
    let rank = comm.rank();
    if root == rank { Ok((comm, root)) } else { Err(LoggedError::NotRoot { root, rank }) }
}

/// Only the others may.
fn is_other((comm, root): (&LoggedCommunicator, u32)) -> Result<(&LoggedCommunicator, u32), LoggedError> {
    let rank = comm.rank();
    if root == rank { Err(LoggedError::NotRoot { root, rank }) } else { Ok((comm, root)) }
}

impl Root for Process<'_> {
    fn root(&self) -> (&LoggedCommunicator, u32) {
        (self.comm, self.rank)
    }
}
