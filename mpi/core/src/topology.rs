//! Communicators derived from others, and Cartesian topologies.

use std::ffi::{CString, c_char, c_int};
use std::rc::Rc;

use mpi_sys as ffi;

use crate::comm::Comm;
use crate::error::{MpiError, check, count};

/// Relation between two communicators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommunicatorRelation {
    /// The same communicator.
    Identical,
    /// The same ranks in the same order.
    Congruent,
    /// The same ranks in another order.
    Similar,
    /// Different ranks.
    Unequal,
}

/// Cartesian grid of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CartesianLayout {
    /// Number of ranks in each dimension.
    pub dims: Vec<u32>,
    /// For each dimension, true if its last rank is a neighbour of its first.
    pub periods: Vec<bool>,
    /// This process's coordinates.
    pub coords: Vec<u32>,
}

impl Comm {
    /// Returns the communicator created by `make`, a call of `call`; `None` if there is none for this rank.
    fn create_with(
        &self,
        call: &'static str,
        make: impl FnOnce(*mut ffi::MPI_Comm) -> c_int,
    ) -> Result<Option<Comm>, MpiError> {
        // SAFETY: a shim constant linked by `mpi-sys`, never written.
        let none = unsafe { ffi::RSMPI_COMM_NULL };
        let mut raw = none;
        check(call, make(&raw mut raw))?;
        Ok(if raw == none { None } else { Some(Comm::made(raw, Rc::clone(&self.universe))) })
    }

    /// Splits the communicator into one for each `color`, with ranks ordered by `key`.
    ///
    /// Returns `None` for the color `None`.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Comm>, MpiError> {
        // SAFETY: a shim constant.
        let color = color.map_or(unsafe { ffi::RSMPI_UNDEFINED }, |color| color as c_int);
        // SAFETY: a valid communicator, and a pointer to a local variable.
        self.create_with("MPI_Comm_split", |created| unsafe { ffi::MPI_Comm_split(self.raw(), color, key, created) })
    }

    /// Splits off the ranks sharing memory with this one, ordered by `key`.
    pub fn split_shared(&self, key: i32) -> Result<Option<Comm>, MpiError> {
        // SAFETY: a valid communicator, shim constants, and a pointer to a local variable.
        self.create_with("MPI_Comm_split_type", |created| unsafe {
            ffi::MPI_Comm_split_type(self.raw(), ffi::RSMPI_COMM_TYPE_SHARED, key, ffi::RSMPI_INFO_NULL, created)
        })
    }

    /// Runs `work` with a temporary group of these ranks.
    fn with_group<T>(
        &self,
        ranks: &[u32],
        work: impl FnOnce(ffi::MPI_Group) -> Result<T, MpiError>,
    ) -> Result<T, MpiError> {
        let call = "MPI_Group_incl";
        let len = count(call, ranks.len())?;
        let ranks: Vec<c_int> = ranks.iter().map(|rank| *rank as c_int).collect();
        // SAFETY: a valid communicator, groups created and freed once here, and pointers to local variables.
        unsafe {
            let (mut all, mut some) = (ffi::RSMPI_GROUP_NULL, ffi::RSMPI_GROUP_NULL);
            check("MPI_Comm_group", ffi::MPI_Comm_group(self.raw(), &raw mut all))?;
            let code = ffi::MPI_Group_incl(all, len, ranks.as_ptr(), &raw mut some);
            ffi::MPI_Group_free(&raw mut all);
            check(call, code)?;
            let result = work(some);
            if some != ffi::RSMPI_GROUP_EMPTY {
                ffi::MPI_Group_free(&raw mut some);
            }
            result
        }
    }

    /// Creates a communicator from this one's `ranks`; `None` if this rank isn't among them.
    ///
    /// Collective over this communicator; the ranks may name different groups if these are disjoint.
    pub fn create(&self, ranks: &[u32]) -> Result<Option<Comm>, MpiError> {
        self.with_group(ranks, |group| {
            // SAFETY: a valid communicator, a group of its ranks, and a pointer to a local variable.
            self.create_with("MPI_Comm_create", |created| unsafe { ffi::MPI_Comm_create(self.raw(), group, created) })
        })
    }

    /// Creates a communicator as [`create`](Self::create) does, but collectively over `ranks` alone.
    ///
    /// Concurrent calls need different tags.
    pub fn create_group(&self, ranks: &[u32], tag: i32) -> Result<Option<Comm>, MpiError> {
        self.with_group(ranks, |group| {
            // SAFETY: as in `create`.
            self.create_with("MPI_Comm_create_group", |created| unsafe {
                ffi::MPI_Comm_create_group(self.raw(), group, tag, created)
            })
        })
    }

    /// Returns the relation between this communicator and another one.
    pub fn compare(&self, other: &Comm) -> Result<CommunicatorRelation, MpiError> {
        let mut relation = 0;
        // SAFETY: valid communicators, a pointer to a local variable, and shim constants.
        unsafe {
            check("MPI_Comm_compare", ffi::MPI_Comm_compare(self.raw(), other.raw(), &raw mut relation))?;
            Ok(match relation {
                relation if relation == ffi::RSMPI_IDENT => CommunicatorRelation::Identical,
                relation if relation == ffi::RSMPI_CONGRUENT => CommunicatorRelation::Congruent,
                relation if relation == ffi::RSMPI_SIMILAR => CommunicatorRelation::Similar,
                _ => CommunicatorRelation::Unequal,
            })
        }
    }

    /// Sets the name that debuggers show, up to its first zero byte.
    pub fn set_name(&self, name: &str) -> Result<(), MpiError> {
        let name = name.split('\0').next().unwrap_or_default();
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: a valid communicator and a terminated string.
        check("MPI_Comm_set_name", unsafe { ffi::MPI_Comm_set_name(self.raw(), name.as_ptr()) })
    }

    /// Returns the communicator's name.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn name(&self) -> Result<String, MpiError> {
        let mut text = [0_u8; ffi::MPI_MAX_OBJECT_NAME as usize + 1];
        let mut len = 0;
        // SAFETY: the buffer has MPI_MAX_OBJECT_NAME bytes and one more.
        check("MPI_Comm_get_name", unsafe {
            ffi::MPI_Comm_get_name(self.raw(), text.as_mut_ptr().cast::<c_char>(), &raw mut len)
        })?;
        Ok(String::from_utf8_lossy(&text[..usize::try_from(len).unwrap_or(0).min(text.len())]).into_owned())
    }
}

fn ints(numbers: &[u32]) -> Vec<c_int> {
    numbers.iter().map(|number| *number as c_int).collect()
}

fn flags(flags: &[bool]) -> Vec<c_int> {
    flags.iter().map(|flag| c_int::from(*flag)).collect()
}

/// Cartesian topologies.
///
/// The caller ensures that slices have an element for each grid dimension.
impl Comm {
    /// Creates a communicator with a grid; `None` if the grid has no place for this rank.
    ///
    /// Collective.
    pub fn cart_create(&self, dims: &[u32], periods: &[bool], may_reorder: bool) -> Result<Option<Comm>, MpiError> {
        let call = "MPI_Cart_create";
        let (len, dims, periods) = (count(call, dims.len().min(periods.len()))?, ints(dims), flags(periods));
        // SAFETY: a valid communicator, `len` numbers each, and a pointer to a local variable.
        self.create_with(call, |created| unsafe {
            ffi::MPI_Cart_create(self.raw(), len, dims.as_ptr(), periods.as_ptr(), may_reorder.into(), created)
        })
    }

    /// Returns this process's rank on such a grid; `None` if the grid has no place for it.
    pub fn cart_map(&self, dims: &[u32], periods: &[bool]) -> Result<Option<u32>, MpiError> {
        let call = "MPI_Cart_map";
        let (len, dims, periods) = (count(call, dims.len().min(periods.len()))?, ints(dims), flags(periods));
        let mut rank = -1;
        // SAFETY: as in `cart_create`.
        check(call, unsafe { ffi::MPI_Cart_map(self.raw(), len, dims.as_ptr(), periods.as_ptr(), &raw mut rank) })?;
        // Open MPI returns the old rank for a process without a place.
        let places = dims.iter().map(|ranks| i64::from(*ranks)).product::<i64>();
        Ok(u32::try_from(rank).ok().filter(|rank| i64::from(*rank) < places))
    }

    /// Returns this communicator's grid.
    pub fn cart_get(&self) -> Result<CartesianLayout, MpiError> {
        let mut len = 0;
        // SAFETY: a valid communicator, and a pointer to a local variable.
        check("MPI_Cartdim_get", unsafe { ffi::MPI_Cartdim_get(self.raw(), &raw mut len) })?;
        let mut numbers = [(); 3].map(|()| vec![0; usize::try_from(len).unwrap_or(0)]);
        let [dims, periods, coords] = numbers.each_mut().map(|numbers| numbers.as_mut_ptr());
        // SAFETY: there is room for `len` numbers at each pointer.
        check("MPI_Cart_get", unsafe { ffi::MPI_Cart_get(self.raw(), len, dims, periods, coords) })?;
        let [dims, periods, coords] = numbers;
        let unsigned = |numbers: Vec<c_int>| numbers.into_iter().map(c_int::unsigned_abs).collect();
        let periods = periods.into_iter().map(|flag| flag != 0).collect();
        Ok(CartesianLayout { dims: unsigned(dims), periods, coords: unsigned(coords) })
    }

    /// Returns the rank at these coordinates.
    pub fn cart_rank(&self, coords: &[i32]) -> Result<u32, MpiError> {
        let mut rank = 0;
        // SAFETY: as many numbers as dimensions, and a pointer to a local variable.
        check("MPI_Cart_rank", unsafe { ffi::MPI_Cart_rank(self.raw(), coords.as_ptr(), &raw mut rank) })?;
        Ok(rank.unsigned_abs())
    }

    /// Returns a rank's coordinates.
    pub fn cart_coords(&self, rank: u32, dims: usize) -> Result<Vec<u32>, MpiError> {
        let (len, mut coords) = (count("MPI_Cart_coords", dims)?, vec![0; dims]);
        // SAFETY: a valid communicator, and room for `len` numbers.
        check("MPI_Cart_coords", unsafe { ffi::MPI_Cart_coords(self.raw(), rank as c_int, len, coords.as_mut_ptr()) })?;
        Ok(coords.into_iter().map(c_int::unsigned_abs).collect())
    }

    /// Returns the ranks at distance `by` from this one in a dimension: source and destination of a shift.
    pub fn cart_shift(&self, dimension: u32, by: i32) -> Result<(Option<u32>, Option<u32>), MpiError> {
        let (mut source, mut destination) = (0, 0);
        // SAFETY: a valid communicator, and pointers to local variables.
        check("MPI_Cart_shift", unsafe {
            ffi::MPI_Cart_shift(self.raw(), dimension as c_int, by, &raw mut source, &raw mut destination)
        })?;
        Ok((u32::try_from(source).ok(), u32::try_from(destination).ok()))
    }

    /// Splits the grid into subgrids of the dimensions marked in `retain`, and returns this rank's.
    ///
    /// Collective.
    pub fn cart_sub(&self, retain: &[bool]) -> Result<Option<Comm>, MpiError> {
        let retain = flags(retain);
        // SAFETY: as many numbers as dimensions, and a pointer to a local variable.
        self.create_with("MPI_Cart_sub", |created| unsafe { ffi::MPI_Cart_sub(self.raw(), retain.as_ptr(), created) })
    }
}
