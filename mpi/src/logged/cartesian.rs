//! Communicators with a Cartesian topology.

use std::ops::Deref;

use super::communicator::{LoggedCommunicator, Port, check_dimensions};
use super::error::LoggedError;
use crate::topology::CartesianLayout;

/// A [`LoggedCommunicator`] whose ranks form a grid, made by
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

impl CartesianCommunicator {
    pub(super) fn new(comm: LoggedCommunicator) -> Result<CartesianCommunicator, LoggedError> {
        let layout = match comm.port() {
            Port::Mpi(recorded) => recorded.comm.cart_get()?,
            Port::Recovering(context) => context.layout()?,
        };
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

    /// Returns the rank at these coordinates. They wrap around in a periodic dimension.
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
        match self.port() {
            Port::Mpi(recorded) => Ok(recorded.comm.cart_rank(coords)?),
            Port::Recovering(context) => {
                let coords: Vec<i64> = coords.iter().copied().map(i64::from).collect();
                // The coordinates are in the grid.
                Ok(context.grid()?.rank_at(&coords).unwrap_or_default())
            }
        }
    }

    /// Returns the coordinates of a rank.
    ///
    /// # Errors
    /// [`LoggedError::NoSuchRank`], [`LoggedError::Mpi`].
    pub fn rank_to_coordinates(&self, rank: u32) -> Result<Vec<u32>, LoggedError> {
        self.check_rank(rank)?;
        match self.port() {
            Port::Mpi(recorded) => Ok(recorded.comm.cart_coords(rank, self.num_dimensions())?),
            Port::Recovering(context) => Ok(context.grid()?.coords_of(rank)),
        }
    }

    /// Returns the source and the destination of a shift by `displacement` in a dimension: the rank that far below this process, and the one
    /// that far above. `None` beyond the end of the grid.
    ///
    /// # Errors
    /// [`LoggedError::NoSuchDimension`], [`LoggedError::Mpi`].
    pub fn shift(&self, dimension: usize, displacement: i32) -> Result<(Option<u32>, Option<u32>), LoggedError> {
        let dims = self.num_dimensions();
        if dimension >= dims {
            return Err(LoggedError::NoSuchDimension { dimension, dims });
        }
        match self.port() {
            Port::Mpi(recorded) => Ok(recorded.comm.cart_shift(dimension as u32, displacement)?),
            Port::Recovering(context) => Ok(context.grid()?.shift(self.rank(), dimension, displacement)),
        }
    }

    /// Splits the grid into subgrids, such as rows or planes, of the dimensions that are true in `retain`; returns the one with this process.
    /// Collective.
    ///
    /// # Errors
    /// [`LoggedError::Dimensions`], [`LoggedError::Mpi`].
    pub fn subgroup(&self, retain: &[bool]) -> Result<Option<CartesianCommunicator>, LoggedError> {
        check_dimensions(retain.len(), self.num_dimensions())?;
        let part = self.create_by(|comm| comm.cart_sub(retain), |context| context.sub_grid(retain))?;
        part.map(CartesianCommunicator::new).transpose()
    }
}
