//! Communicators with a Cartesian topology.

use std::ops::Deref;

use counterfoil_mpi_core::topology::CartesianLayout;

use super::communicator::LoggedCommunicator;
use super::error::LoggedError;

/// A [`LoggedCommunicator`] with its ranks in a grid, made by
/// [`create_cartesian_communicator`](LoggedCommunicator::create_cartesian_communicator).
///
/// ```no_run
/// # use counterfoil_mpi::logged::{LoggedCommunicator, LoggedError, send_receive};
/// # fn example(world: &LoggedCommunicator, edge: f64) -> Result<(), LoggedError> {
/// // Two periodic rows.
/// let dims = [2, world.size() / 2];
/// if let Some(grid) = world.create_cartesian_communicator(&dims, &[false, true], true)? {
///     if let (Some(left), Some(right)) = grid.shift(1, 1)? {
///         let (left, right) = (grid.process_at_rank(left)?, grid.process_at_rank(right)?);
///         let (from_the_left, _) = send_receive::<f64, _>(&edge, &right, &left)?;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CartesianCommunicator {
    comm: LoggedCommunicator,
    layout: CartesianLayout,
}

impl Deref for CartesianCommunicator {
    type Target = LoggedCommunicator;

    fn deref(&self) -> &LoggedCommunicator {
        &self.comm
    }
}

impl LoggedCommunicator {
    /// Creates a communicator with a Cartesian topology: `dims` ranks in each dimension, periodic where `periods` is
    /// true.
    ///
    /// `None` for ranks outside the grid. MPI may renumber the ranks if it `may_reorder`. Collective.
    ///
    /// # Errors
    /// [`LoggedError::Dimensions`] if `periods` isn't as long as `dims`; [`LoggedError::Mpi`] if the grid has more
    /// places than ranks.
    pub fn create_cartesian_communicator(
        &self,
        dims: &[u32],
        periods: &[bool],
        may_reorder: bool,
    ) -> Result<Option<CartesianCommunicator>, LoggedError> {
        check_dimensions(periods.len(), dims.len())?;
        let grid = LoggedCommunicator::created(self.carrier.create_grid(dims, periods, may_reorder))?;
        grid.map(CartesianCommunicator::new).transpose()
    }

    /// Returns the communicator as one with a Cartesian topology, duplicated or restored from a grid's communicator.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`] if it has none.
    pub fn into_cartesian(self) -> Result<CartesianCommunicator, LoggedError> {
        CartesianCommunicator::new(self)
    }

    /// Returns MPI's choice of a rank for this process on such a grid, or `None` for a process outside it:
    /// `MPI_Cart_map`.
    ///
    /// # Errors
    /// Same as [`create_cartesian_communicator`](Self::create_cartesian_communicator).
    pub fn cartesian_map(&self, dims: &[u32], periods: &[bool]) -> Result<Option<u32>, LoggedError> {
        check_dimensions(periods.len(), dims.len())?;
        self.carrier.place_in(dims, periods)
    }
}

/// Checks for one number per dimension.
fn check_dimensions(given: usize, dims: usize) -> Result<(), LoggedError> {
    if given == dims { Ok(()) } else { Err(LoggedError::Dimensions { given, dims }) }
}

impl CartesianCommunicator {
    fn new(comm: LoggedCommunicator) -> Result<CartesianCommunicator, LoggedError> {
        let layout = comm.carrier.layout()?;
        Ok(CartesianCommunicator { comm, layout })
    }

    /// Returns the number of dimensions.
    pub fn num_dimensions(&self) -> usize {
        self.layout.dims.len()
    }

    /// Returns the grid and this process's coordinates.
    pub fn get_layout(&self) -> &CartesianLayout {
        &self.layout
    }

    /// Returns the rank at these coordinates.
    ///
    /// They wrap around in a periodic dimension.
    ///
    /// # Errors
    /// [`LoggedError::Dimensions`], [`LoggedError::NoSuchCoordinate`], [`LoggedError::Mpi`].
    pub fn coordinates_to_rank(&self, coords: &[i32]) -> Result<u32, LoggedError> {
        check_dimensions(coords.len(), self.num_dimensions())?;
        let CartesianLayout { dims, periods, .. } = &self.layout;
        let mut axes = coords.iter().zip(dims).zip(periods);
        let outside = axes
            .find(|((at, ranks), is_periodic)| !**is_periodic && !(0..i64::from(**ranks)).contains(&i64::from(**at)));
        if let Some(((&coordinate, &ranks), _)) = outside {
            return Err(LoggedError::NoSuchCoordinate { coordinate, ranks });
        }
        self.carrier.rank_at(coords)
    }

    /// Returns a rank's coordinates.
    ///
    /// # Errors
    /// [`LoggedError::NoSuchRank`], [`LoggedError::Mpi`].
    pub fn rank_to_coordinates(&self, rank: u32) -> Result<Vec<u32>, LoggedError> {
        self.check_rank(rank)?;
        self.carrier.coords_of(rank, self.num_dimensions())
    }

    /// Returns a shift's source and destination in a dimension: the ranks `displacement` below and above this process.
    ///
    /// `None` beyond the end of the grid.
    ///
    /// # Errors
    /// [`LoggedError::NoSuchDimension`], [`LoggedError::Mpi`].
    pub fn shift(&self, dimension: usize, displacement: i32) -> Result<(Option<u32>, Option<u32>), LoggedError> {
        let dims = self.num_dimensions();
        if dimension >= dims {
            return Err(LoggedError::NoSuchDimension { dimension, dims });
        }
        self.carrier.shift(dimension, displacement)
    }

    /// Splits the grid into subgrids, such as rows or planes, of the dimensions true in `retain`; returns the one with
    /// this process.
    ///
    /// Collective.
    ///
    /// # Errors
    /// [`LoggedError::Dimensions`], [`LoggedError::Mpi`].
    pub fn subgroup(&self, retain: &[bool]) -> Result<Option<CartesianCommunicator>, LoggedError> {
        check_dimensions(retain.len(), self.num_dimensions())?;
        let part = LoggedCommunicator::created(self.carrier.sub_grid(retain))?;
        part.map(CartesianCommunicator::new).transpose()
    }
}
