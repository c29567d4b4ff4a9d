//! Ranks on a grid.

use std::ops::Deref;

use super::communicator::{LoggedCommunicator, same};
use super::error::LoggedError;
use crate::topology::CartesianLayout;

/// A communicator whose ranks are on a grid: made by
/// [`create_cartesian_communicator`](LoggedCommunicator::create_cartesian_communicator). It is a [`LoggedCommunicator`] in all else.
///
/// ```no_run
/// # use counterfoil_mpi::logged::{LoggedCommunicator, LoggedError, send_receive};
/// # fn example(world: &LoggedCommunicator, edge: f64) -> Result<(), LoggedError> {
/// // Two rows, closed to rings.
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
        let layout = comm.shared.comm.cart_get()?;
        Ok(CartesianCommunicator { comm, layout })
    }

    /// How many dimensions there are.
    pub fn num_dimensions(&self) -> usize {
        self.layout.dims.len()
    }

    /// The grid, and this process's place.
    pub fn get_layout(&self) -> &CartesianLayout {
        &self.layout
    }

    /// The rank at a place. Where the grid is closed to a ring, places go on around it.
    ///
    /// # Errors
    /// [`LoggedError::Dimensions`], [`LoggedError::NoSuchPlace`], [`LoggedError::Mpi`].
    pub fn coordinates_to_rank(&self, coords: &[i32]) -> Result<u32, LoggedError> {
        same(coords.len(), self.num_dimensions())?;
        let CartesianLayout { dims, periods, .. } = &self.layout;
        let mut places = coords.iter().zip(dims).zip(periods);
        let outside =
            places.find(|((at, ranks), is_ring)| !**is_ring && !(0..i64::from(**ranks)).contains(&i64::from(**at)));
        if let Some(((&coordinate, &ranks), _)) = outside {
            return Err(LoggedError::NoSuchPlace { coordinate, ranks });
        }
        Ok(self.shared.comm.cart_rank(coords)?)
    }

    /// The place of a rank.
    ///
    /// # Errors
    /// [`LoggedError::NoSuchRank`], [`LoggedError::Mpi`].
    pub fn rank_to_coordinates(&self, rank: u32) -> Result<Vec<u32>, LoggedError> {
        self.shared.world(rank)?;
        Ok(self.shared.comm.cart_coords(rank, self.num_dimensions())?)
    }

    /// Who is `displacement` places below this process in a dimension, and who is as far above: whom to receive from, and whom to send to,
    /// to shift something by so much. `None` where the grid ends before.
    ///
    /// # Errors
    /// [`LoggedError::NoSuchDimension`], [`LoggedError::Mpi`].
    pub fn shift(&self, dimension: usize, displacement: i32) -> Result<(Option<u32>, Option<u32>), LoggedError> {
        let dims = self.num_dimensions();
        if dimension >= dims {
            return Err(LoggedError::NoSuchDimension { dimension, dims });
        }
        Ok(self.shared.comm.cart_shift(dimension as u32, displacement)?)
    }

    /// The part of the grid that has this process and the dimensions whose place in `retain` is true: a row, a plane. All ranks call it.
    ///
    /// # Errors
    /// [`LoggedError::Dimensions`], [`LoggedError::Mpi`].
    pub fn subgroup(&self, retain: &[bool]) -> Result<Option<CartesianCommunicator>, LoggedError> {
        same(retain.len(), self.num_dimensions())?;
        let part = self.comm.made_by(self.shared.comm.cart_sub(retain))?;
        part.map(CartesianCommunicator::new).transpose()
    }
}
