//! Collective operations. All ranks of a communicator call each of them, in the same order.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::communicator::{LoggedCommunicator, Process};
use super::error::LoggedError;
use crate::collective::{Number, Reduction, SystemOperation};
use crate::error::MpiError;

/// What ranks do together, and nobody is more than others. Memory that is given has the same length on all ranks.
pub trait CommunicatorCollectives {
    /// Returns once every rank has called it.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    fn barrier(&self) -> Result<(), LoggedError>;

    /// Gives every rank what each rank has in `send`, one behind the other.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`], also if `receive` isn't as long as that; [`LoggedError::Append`].
    fn all_gather_into<S, R>(&self, send: &S, receive: &mut R) -> Result<(), LoggedError>
    where
        S: IntoBytes + Immutable + ?Sized,
        R: FromBytes + IntoBytes + ?Sized;

    /// Gives each rank its part of `send`, and collects from each in `receive`.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`], also if the two aren't as many parts of the same length as there are ranks; [`LoggedError::Append`].
    fn all_to_all_into<S, R>(&self, send: &S, receive: &mut R) -> Result<(), LoggedError>
    where
        S: IntoBytes + Immutable + ?Sized,
        R: FromBytes + IntoBytes + ?Sized;

    /// Reduces what the ranks have in `send`, element by element, into `receive` of every rank.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`], also if the two aren't as long as each other; [`LoggedError::Append`].
    fn all_reduce_into<T: Number>(
        &self,
        send: &[T],
        receive: &mut [T],
        operation: SystemOperation,
    ) -> Result<(), LoggedError>;

    /// Reduces what the ranks up to this one have in `send` into its `receive`.
    ///
    /// # Errors
    /// As of [`all_reduce_into`](Self::all_reduce_into).
    fn scan_into<T: Number>(
        &self,
        send: &[T],
        receive: &mut [T],
        operation: SystemOperation,
    ) -> Result<(), LoggedError>;

    /// Reduces what the ranks before this one have in `send` into its `receive`, which stays as it was on rank 0.
    ///
    /// # Errors
    /// As of [`all_reduce_into`](Self::all_reduce_into).
    fn exclusive_scan_into<T: Number>(
        &self,
        send: &[T],
        receive: &mut [T],
        operation: SystemOperation,
    ) -> Result<(), LoggedError>;
}

/// What ranks do with one of them, the root: it gives or gets. All of them name the same one.
pub trait Root {
    /// Gives every rank what the root has in `buf`.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]; [`LoggedError::Append`].
    fn broadcast_into<B: FromBytes + IntoBytes + Immutable + ?Sized>(&self, buf: &mut B) -> Result<(), LoggedError>;

    /// Gives the root `send`; called by the others.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]; [`LoggedError::Append`].
    fn gather_into<S: IntoBytes + Immutable + ?Sized>(&self, send: &S) -> Result<(), LoggedError>;

    /// Collects what each rank gives, one behind the other; called by the root, which gives `send`.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`], also if `receive` isn't as long as that.
    fn gather_into_root<S, R>(&self, send: &S, receive: &mut R) -> Result<(), LoggedError>
    where
        S: IntoBytes + Immutable + ?Sized,
        R: FromBytes + IntoBytes + ?Sized;

    /// Gets this rank's part of what the root has; called by the others.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    fn scatter_into<R: FromBytes + IntoBytes + ?Sized>(&self, receive: &mut R) -> Result<(), LoggedError>;

    /// Gives each rank its part of `send`; called by the root, which gets its own.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`], also if `send` isn't as many parts as there are ranks; [`LoggedError::Append`].
    fn scatter_into_root<S, R>(&self, send: &S, receive: &mut R) -> Result<(), LoggedError>
    where
        S: IntoBytes + Immutable + ?Sized,
        R: FromBytes + IntoBytes + ?Sized;

    /// Gives the root `send` to reduce; called by the others.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]; [`LoggedError::Append`].
    fn reduce_into<T: Number>(&self, send: &[T], operation: SystemOperation) -> Result<(), LoggedError>;

    /// Reduces what the ranks give, element by element; called by the root.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`], also if `receive` isn't as long as `send`.
    fn reduce_into_root<T: Number>(
        &self,
        send: &[T],
        receive: &mut [T],
        operation: SystemOperation,
    ) -> Result<(), LoggedError>;
}

impl LoggedCommunicator {
    /// Keeps what this rank gives, then does the operation. One that `synchronises` ends on no rank before all have begun it.
    fn collective(
        &self,
        gives: Option<&[u8]>,
        synchronises: bool,
        operation: impl FnOnce() -> Result<(), MpiError>,
    ) -> Result<(), LoggedError> {
        self.engine.borrow_mut().contribute(&self.shared, gives)?;
        operation()?;
        if synchronises { self.engine.borrow_mut().settled(&self.shared) } else { Ok(()) }
    }

    fn reduce<T: Number>(
        &self,
        which: Reduction,
        send: &[T],
        receive: &mut [T],
        operation: SystemOperation,
    ) -> Result<(), LoggedError> {
        let is_all = which == Reduction::All && !send.is_empty();
        // The root's own part comes from its own repetition.
        let gives = Some(send.as_bytes()).filter(|_| which != Reduction::To(self.rank()));
        self.collective(gives, is_all, || self.shared.comm.reduce(which, operation, send, receive))
    }
}

impl CommunicatorCollectives for LoggedCommunicator {
    fn barrier(&self) -> Result<(), LoggedError> {
        self.collective(None, true, || self.shared.comm.barrier())
    }

    fn all_gather_into<S, R>(&self, send: &S, receive: &mut R) -> Result<(), LoggedError>
    where
        S: IntoBytes + Immutable + ?Sized,
        R: FromBytes + IntoBytes + ?Sized,
    {
        let send = send.as_bytes();
        let gather = || self.shared.comm.all_gather(send, receive.as_mut_bytes());
        self.collective(Some(send), !send.is_empty(), gather)
    }

    fn all_to_all_into<S, R>(&self, send: &S, receive: &mut R) -> Result<(), LoggedError>
    where
        S: IntoBytes + Immutable + ?Sized,
        R: FromBytes + IntoBytes + ?Sized,
    {
        let send = send.as_bytes();
        let exchange = || self.shared.comm.all_to_all(send, receive.as_mut_bytes());
        self.collective(Some(send), !send.is_empty(), exchange)
    }

    fn all_reduce_into<T: Number>(
        &self,
        send: &[T],
        receive: &mut [T],
        operation: SystemOperation,
    ) -> Result<(), LoggedError> {
        self.reduce(Reduction::All, send, receive, operation)
    }

    fn scan_into<T: Number>(
        &self,
        send: &[T],
        receive: &mut [T],
        operation: SystemOperation,
    ) -> Result<(), LoggedError> {
        self.reduce(Reduction::UpToSelf, send, receive, operation)
    }

    fn exclusive_scan_into<T: Number>(
        &self,
        send: &[T],
        receive: &mut [T],
        operation: SystemOperation,
    ) -> Result<(), LoggedError> {
        self.reduce(Reduction::BeforeSelf, send, receive, operation)
    }
}

impl Root for Process<'_> {
    fn broadcast_into<B: FromBytes + IntoBytes + Immutable + ?Sized>(&self, buf: &mut B) -> Result<(), LoggedError> {
        if self.is_self() {
            self.comm.engine.borrow_mut().contribute(&self.comm.shared, Some(buf.as_bytes()))?;
        } else {
            self.comm.engine.borrow_mut().contribute(&self.comm.shared, None)?;
        }
        Ok(self.comm.shared.comm.bcast(self.rank, buf.as_mut_bytes())?)
    }

    fn gather_into<S: IntoBytes + Immutable + ?Sized>(&self, send: &S) -> Result<(), LoggedError> {
        let send = send.as_bytes();
        self.comm.collective(Some(send), false, || self.comm.shared.comm.gather(self.rank, send, &mut []))
    }

    fn gather_into_root<S, R>(&self, send: &S, receive: &mut R) -> Result<(), LoggedError>
    where
        S: IntoBytes + Immutable + ?Sized,
        R: FromBytes + IntoBytes + ?Sized,
    {
        let gather = || self.comm.shared.comm.gather(self.rank, send.as_bytes(), receive.as_mut_bytes());
        self.comm.collective(None, false, gather)
    }

    fn scatter_into<R: FromBytes + IntoBytes + ?Sized>(&self, receive: &mut R) -> Result<(), LoggedError> {
        self.comm.collective(None, false, || self.comm.shared.comm.scatter(self.rank, &[], receive.as_mut_bytes()))
    }

    fn scatter_into_root<S, R>(&self, send: &S, receive: &mut R) -> Result<(), LoggedError>
    where
        S: IntoBytes + Immutable + ?Sized,
        R: FromBytes + IntoBytes + ?Sized,
    {
        let send = send.as_bytes();
        let scatter = || self.comm.shared.comm.scatter(self.rank, send, receive.as_mut_bytes());
        self.comm.collective(Some(send), false, scatter)
    }

    fn reduce_into<T: Number>(&self, send: &[T], operation: SystemOperation) -> Result<(), LoggedError> {
        self.comm.reduce(Reduction::To(self.rank), send, &mut [], operation)
    }

    fn reduce_into_root<T: Number>(
        &self,
        send: &[T],
        receive: &mut [T],
        operation: SystemOperation,
    ) -> Result<(), LoggedError> {
        self.comm.reduce(Reduction::To(self.rank), send, receive, operation)
    }
}
