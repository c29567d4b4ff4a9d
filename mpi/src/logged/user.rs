//! User-defined reduction operations.

use counterfoil_mpi_core::operation::UserOperation;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::communicator::LoggedCommunicator;
use super::error::LoggedError;

impl LoggedCommunicator {
    /// Creates a reduction operation from `function`; it stores the result of its two arguments in the second.
    ///
    /// It must be associative and commutative. It can't capture anything, and a panic in it ends the process.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    ///
    /// ```no_run
    /// # use counterfoil_mpi::logged::{CommunicatorCollectives, LoggedCommunicator, LoggedError};
    /// # use zerocopy::{FromBytes, Immutable, IntoBytes};
    /// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
    /// #[repr(C)]
    /// struct Farthest {
    ///     distance: f64,
    ///     of: u64,
    /// }
    ///
    /// # fn example(world: &LoggedCommunicator, mine: Farthest) -> Result<(), LoggedError> {
    /// let farther = world.commutative(|one: &Farthest, other: &mut Farthest| {
    ///     if (one.distance, one.of) > (other.distance, other.of) {
    ///         *other = *one;
    ///     }
    /// })?;
    /// let mut farthest = [mine];
    /// world.all_reduce_into(&[mine], &mut farthest, &farther)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A capturing function doesn't compile:
    ///
    /// ```compile_fail,E0080
    /// # use counterfoil_mpi::logged::{LoggedCommunicator, LoggedError};
    /// # fn example(world: &LoggedCommunicator, by: i32) -> Result<(), LoggedError> {
    /// world.commutative(move |one: &i32, other: &mut i32| *other += by * *one)?;
    /// # Ok(())
    /// # }
    /// # fn main() {
    /// #     let _: fn(&LoggedCommunicator, i32) -> Result<(), LoggedError> = example;
    /// # }
    /// ```
    pub fn commutative<T, F>(&self, function: F) -> Result<UserOperation<T>, LoggedError>
    where
        T: FromBytes + IntoBytes + Immutable,
        F: Fn(&T, &mut T) + Copy + 'static,
    {
        Ok(UserOperation::new(self.carrier.universe(), function, true)?)
    }

    /// Creates a reduction operation like [`commutative`](Self::commutative), for a merely associative `function`: its
    /// first argument always stems from lower ranks than its second.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn associative<T, F>(&self, function: F) -> Result<UserOperation<T>, LoggedError>
    where
        T: FromBytes + IntoBytes + Immutable,
        F: Fn(&T, &mut T) + Copy + 'static,
    {
        Ok(UserOperation::new(self.carrier.universe(), function, false)?)
    }
}
