//! Collective operations with a root.
//!
//! All ranks in a communicator call them, in the same order.

use counterfoil_mpi_core::collective::{Collective, Elements, Incoming, Outgoing, Reduction};
use counterfoil_mpi_core::operation::Operation;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::collective::Prepared;
use super::communicator::{LoggedCommunicator, Process};
use super::error::LoggedError;
use super::partition::{Partition, PartitionMut};
use super::pending::LocalScope;
use super::request::CollectiveRequest;

/// Collective operations from or to one rank, the root.
///
/// All ranks name the same root; the `_root` forms are called by the root, and their counterparts by all other ranks.
///
/// The `immediate_` forms begin an operation on memory borrowed until the end of a [`scope`](super::scope); this rank's
/// contribution is in the log when they return.
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
    /// Returns the communicator, and the root's rank in it.
    fn root(&self) -> (&LoggedCommunicator, u32);

    /// Copies the root's `buf` to every other rank's `buf`; it has the same length on all ranks.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]; [`LoggedError::Append`].
    fn broadcast_into<B: FromBytes + IntoBytes + Immutable + ?Sized>(&self, buf: &mut B) -> Result<(), LoggedError> {
        Side::of(self).prepare(Collective::Broadcast, Outgoing::NOTHING, Incoming::of(buf))?.run()
    }

    /// Begins [`broadcast_into`](Self::broadcast_into).
    ///
    /// # Errors
    /// Same as [`broadcast_into`](Self::broadcast_into).
    fn immediate_broadcast_into<'a, B: FromBytes + IntoBytes + Immutable + ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        buf: &'a mut B,
    ) -> Result<CollectiveRequest<'a, B>, LoggedError> {
        Side::of(self).prepare(Collective::Broadcast, Outgoing::NOTHING, Incoming::of(buf))?.begin(scope)
    }

    /// Sends `send`, of the same length on all ranks, to the root.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]; [`LoggedError::Append`]. [`LoggedError::NotRoot`] if this rank is the root.
    fn gather_into<S: IntoBytes + Immutable + ?Sized>(&self, send: &S) -> Result<(), LoggedError> {
        at_other(self)?.prepare(Collective::Gather, Outgoing::of(send), Incoming::NOTHING)?.run()
    }

    /// Begins [`gather_into`](Self::gather_into).
    ///
    /// # Errors
    /// Same as [`gather_into`](Self::gather_into).
    fn immediate_gather_into<'a, S: IntoBytes + Immutable + ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a S,
    ) -> Result<CollectiveRequest<'a>, LoggedError> {
        at_other(self)?.prepare(Collective::Gather, Outgoing::of(send), Incoming::NOTHING)?.begin(scope)
    }

    /// Gathers every rank's `send`, including the root's, into `receive` in rank order; called by the root.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]: [`MpiError::Length`](crate::MpiError::Length) if `receive` isn't as long as all of them.
    /// [`LoggedError::NotRoot`] if this rank isn't the root.
    fn gather_into_root<S: IntoBytes + Immutable + ?Sized, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        send: &S,
        receive: &mut R,
    ) -> Result<(), LoggedError> {
        at_root(self)?.prepare(Collective::Gather, Outgoing::of(send), Incoming::of(receive))?.run()
    }

    /// Begins [`gather_into_root`](Self::gather_into_root).
    ///
    /// # Errors
    /// Same as [`gather_into_root`](Self::gather_into_root).
    fn immediate_gather_into_root<'a, S: IntoBytes + Immutable + ?Sized, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a S,
        receive: &'a mut R,
    ) -> Result<CollectiveRequest<'a, R>, LoggedError> {
        at_root(self)?.prepare(Collective::Gather, Outgoing::of(send), Incoming::of(receive))?.begin(scope)
    }

    /// Sends `send`, of any length, to the root; it calls
    /// [`gather_varcount_into_root`](Self::gather_varcount_into_root).
    ///
    /// # Errors
    /// Same as [`gather_into`](Self::gather_into).
    fn gather_varcount_into<S: IntoBytes + Immutable + ?Sized>(&self, send: &S) -> Result<(), LoggedError> {
        at_other(self)?.prepare(Collective::GatherVarcount, Outgoing::of(send), Incoming::NOTHING)?.run()
    }

    /// Begins [`gather_varcount_into`](Self::gather_varcount_into).
    ///
    /// # Errors
    /// Same as [`gather_varcount_into`](Self::gather_varcount_into).
    fn immediate_gather_varcount_into<'a, S: IntoBytes + Immutable + ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a S,
    ) -> Result<CollectiveRequest<'a>, LoggedError> {
        at_other(self)?.prepare(Collective::GatherVarcount, Outgoing::of(send), Incoming::NOTHING)?.begin(scope)
    }

    /// Gathers every rank's `send`, including the root's, into its part of `receive`; called by the root.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]: [`MpiError::Parts`](crate::MpiError::Parts) if there aren't as many parts as ranks;
    /// [`MpiError::Length`](crate::MpiError::Length) if the root's part is not as long as `send`.
    /// [`LoggedError::NotRoot`] if this rank isn't the root.
    fn gather_varcount_into_root<S: IntoBytes + Immutable + ?Sized, T: FromBytes + IntoBytes + Immutable>(
        &self,
        send: &S,
        receive: &mut PartitionMut<'_, T>,
    ) -> Result<(), LoggedError> {
        at_root(self)?.prepare(Collective::GatherVarcount, Outgoing::of(send), receive.reborrow().incoming()?)?.run()
    }

    /// Begins [`gather_varcount_into_root`](Self::gather_varcount_into_root).
    ///
    /// # Errors
    /// Same as [`gather_varcount_into_root`](Self::gather_varcount_into_root).
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
        at_root(self)?.prepare(Collective::GatherVarcount, Outgoing::of(send), receive.incoming()?)?.begin(scope)
    }

    /// Receives this rank's part of the root's buffer; all parts have the same length.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]. [`LoggedError::NotRoot`] if this rank is the root.
    fn scatter_into<R: FromBytes + IntoBytes + ?Sized>(&self, receive: &mut R) -> Result<(), LoggedError> {
        at_other(self)?.prepare(Collective::Scatter, Outgoing::NOTHING, Incoming::of(receive))?.run()
    }

    /// Begins [`scatter_into`](Self::scatter_into).
    ///
    /// # Errors
    /// Same as [`scatter_into`](Self::scatter_into).
    fn immediate_scatter_into<'a, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        receive: &'a mut R,
    ) -> Result<CollectiveRequest<'a, R>, LoggedError> {
        at_other(self)?.prepare(Collective::Scatter, Outgoing::NOTHING, Incoming::of(receive))?.begin(scope)
    }

    /// Sends each rank its part of `send`, and copies the root's own into `receive`; called by the root.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]: [`MpiError::Length`](crate::MpiError::Length) if `send` isn't as many parts of that length
    /// as there are ranks; [`LoggedError::Append`]. [`LoggedError::NotRoot`] if this rank isn't the root.
    fn scatter_into_root<S: IntoBytes + Immutable + ?Sized, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        send: &S,
        receive: &mut R,
    ) -> Result<(), LoggedError> {
        at_root(self)?.prepare(Collective::Scatter, Outgoing::of(send), Incoming::of(receive))?.run()
    }

    /// Begins [`scatter_into_root`](Self::scatter_into_root).
    ///
    /// # Errors
    /// Same as [`scatter_into_root`](Self::scatter_into_root).
    fn immediate_scatter_into_root<'a, S: IntoBytes + Immutable + ?Sized, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a S,
        receive: &'a mut R,
    ) -> Result<CollectiveRequest<'a, R>, LoggedError> {
        at_root(self)?.prepare(Collective::Scatter, Outgoing::of(send), Incoming::of(receive))?.begin(scope)
    }

    /// Receives this rank's part of the root's buffer, of any length; the root calls
    /// [`scatter_varcount_into_root`](Self::scatter_varcount_into_root).
    ///
    /// # Errors
    /// Same as [`scatter_into`](Self::scatter_into).
    fn scatter_varcount_into<R: FromBytes + IntoBytes + ?Sized>(&self, receive: &mut R) -> Result<(), LoggedError> {
        at_other(self)?.prepare(Collective::ScatterVarcount, Outgoing::NOTHING, Incoming::of(receive))?.run()
    }

    /// Begins [`scatter_varcount_into`](Self::scatter_varcount_into).
    ///
    /// # Errors
    /// Same as [`scatter_varcount_into`](Self::scatter_varcount_into).
    fn immediate_scatter_varcount_into<'a, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        receive: &'a mut R,
    ) -> Result<CollectiveRequest<'a, R>, LoggedError> {
        at_other(self)?.prepare(Collective::ScatterVarcount, Outgoing::NOTHING, Incoming::of(receive))?.begin(scope)
    }

    /// Sends each rank its part of `send`, and copies the root's own into `receive`; called by the root.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]: [`MpiError::Parts`](crate::MpiError::Parts) if there aren't as many parts as ranks;
    /// [`MpiError::Length`](crate::MpiError::Length) if the root's part is not as long as `receive`;
    /// [`LoggedError::Append`]. [`LoggedError::NotRoot`] if this rank isn't the root.
    fn scatter_varcount_into_root<T: FromBytes + IntoBytes + Immutable, R: FromBytes + IntoBytes + ?Sized>(
        &self,
        send: &Partition<'_, T>,
        receive: &mut R,
    ) -> Result<(), LoggedError> {
        at_root(self)?.prepare(Collective::ScatterVarcount, send.outgoing()?, Incoming::of(receive))?.run()
    }

    /// Begins [`scatter_varcount_into_root`](Self::scatter_varcount_into_root).
    ///
    /// # Errors
    /// Same as [`scatter_varcount_into_root`](Self::scatter_varcount_into_root).
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
        at_root(self)?.prepare(Collective::ScatterVarcount, send.outgoing()?, Incoming::of(receive))?.begin(scope)
    }

    /// Sends `send` to the root for reduction.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]; [`LoggedError::Append`]. [`LoggedError::NotRoot`] if this rank is the root.
    fn reduce_into<T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        send: &[T],
        operation: O,
    ) -> Result<(), LoggedError> {
        at_other(self)?.prepare(reduce_by(operation), Outgoing::of(send), Incoming::NOTHING)?.run()
    }

    /// Begins [`reduce_into`](Self::reduce_into).
    ///
    /// # Errors
    /// Same as [`reduce_into`](Self::reduce_into).
    fn immediate_reduce_into<'a, T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a [T],
        operation: O,
    ) -> Result<CollectiveRequest<'a>, LoggedError> {
        at_other(self)?.prepare(reduce_by(operation), Outgoing::of(send), Incoming::NOTHING)?.begin(scope)
    }

    /// Reduces all ranks' `send`, element by element, into `receive`; called by the root.
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
        at_root(self)?.prepare(reduce_by(operation), Outgoing::of(send), Incoming::of(receive))?.run()
    }

    /// Begins [`reduce_into_root`](Self::reduce_into_root).
    ///
    /// # Errors
    /// Same as [`reduce_into_root`](Self::reduce_into_root).
    fn immediate_reduce_into_root<'a, T: FromBytes + IntoBytes + Immutable, O: Operation<T>>(
        &self,
        scope: &LocalScope<'a>,
        send: &'a [T],
        receive: &'a mut [T],
        operation: O,
    ) -> Result<CollectiveRequest<'a, [T]>, LoggedError> {
        at_root(self)?.prepare(reduce_by(operation), Outgoing::of(send), Incoming::of(receive))?.begin(scope)
    }
}

/// An operation's communicator and root, after the check of this rank's side.
struct Side<'c> {
    comm: &'c LoggedCommunicator,
    root: u32,
}

impl<'c> Side<'c> {
    /// Returns the common side of an operation called alike by all ranks.
    fn of(root: &'c (impl Root + ?Sized)) -> Side<'c> {
        let (comm, root) = root.root();
        Side { comm, root }
    }

    /// Prepares the operation made by `operation` from the root.
    fn prepare<'b, B: ?Sized>(
        self,
        operation: impl FnOnce(u32) -> Collective,
        send: Outgoing<'b>,
        receive: Incoming<'b, B>,
    ) -> Result<Prepared<'c, 'b, B>, LoggedError> {
        self.comm.prepare(operation(self.root), send, receive)
    }
}

/// Returns the root's side, or [`LoggedError::NotRoot`] if this rank isn't the root.
fn at_root(root: &(impl Root + ?Sized)) -> Result<Side<'_>, LoggedError> {
    let side = Side::of(root);
    let (root, rank) = (side.root, side.comm.rank());
    if root == rank { Ok(side) } else { Err(LoggedError::NotRoot { root, rank }) }
}

/// Returns the other ranks' side, or [`LoggedError::NotRoot`] if this rank is the root.
fn at_other(root: &(impl Root + ?Sized)) -> Result<Side<'_>, LoggedError> {
    let side = Side::of(root);
    let (root, rank) = (side.root, side.comm.rank());
    if root == rank { Err(LoggedError::NotRoot { root, rank }) } else { Ok(side) }
}

/// Returns the reduction to a root by `operation`.
fn reduce_by<T>(operation: impl Operation<T>) -> impl FnOnce(u32) -> Collective {
    move |root| Collective::Reduce(Reduction::To(root), Elements::of(operation))
}

impl Root for Process<'_> {
    fn root(&self) -> (&LoggedCommunicator, u32) {
        (self.comm, self.rank)
    }
}
