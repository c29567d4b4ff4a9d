//! Groups: lists of job ranks, with handles made by this library.
//!
//! # Safety
//! MPI's conditions on the arguments hold: they are the program's own, passed to a call still in progress.

use std::collections::BTreeSet;
use std::ffi::c_int;

use mpi_sys as ffi;

use crate::failure::Failure;
use crate::front::{Front, enter};
use crate::handle::{number_of, of_number};
use crate::queries::{exports, relation};

impl Front {
    /// Returns the job ranks in a group.
    pub(crate) fn ranks_of(&self, group: ffi::MPI_Group) -> Result<Vec<u32>, Failure> {
        // SAFETY: a shim constant.
        if group == unsafe { ffi::RSMPI_GROUP_EMPTY } {
            return Ok(Vec::new());
        }
        let groups = self.groups.borrow();
        let ranks = number_of(group).and_then(|number| groups.get(number));
        ranks.cloned().ok_or_else(|| Failure::class(ffi::MPI_ERR_GROUP))
    }

    /// Returns a new group with one group's ranks that are in another, or are not.
    fn filter(&self, one: ffi::MPI_Group, other: ffi::MPI_Group, are_in: bool) -> Result<ffi::MPI_Group, Failure> {
        let (mut ranks, others) = (self.ranks_of(one)?, self.ranks_of(other)?);
        ranks.retain(|rank| others.contains(rank) == are_in);
        Ok(self.group_of(ranks))
    }

    /// Returns a new group of job ranks.
    pub(crate) fn group_of(&self, ranks: Vec<u32>) -> ffi::MPI_Group {
        match ranks.is_empty() {
            // SAFETY: a shim constant.
            true => unsafe { ffi::RSMPI_GROUP_EMPTY },
            false => of_number(self.groups.borrow_mut().add(ranks)),
        }
    }
}

/// Returns a place as MPI does: `None` is `MPI_UNDEFINED`.
fn or_undefined(place: Option<usize>) -> c_int {
    // SAFETY: a shim constant.
    place.map_or(unsafe { ffi::RSMPI_UNDEFINED }, |place| place as c_int)
}

/// Returns the places in a group named by the program's array: each once.
///
/// # Safety
/// See the [module](self).
unsafe fn places(count: c_int, at: *const c_int, size: usize) -> Result<Vec<usize>, Failure> {
    let count = usize::try_from(count).map_err(|_| Failure::class(ffi::MPI_ERR_ARG))?;
    // SAFETY: the program's array.
    let named = (0..count).map(|index| unsafe { *at.add(index) });
    distinct(named, size)
}

/// Returns the places in a group named by the program's ranges: each once.
///
/// # Safety
/// See the [module](self).
unsafe fn places_of_ranges(count: c_int, at: *const [c_int; 3], size: usize) -> Result<Vec<usize>, Failure> {
    let count = usize::try_from(count).map_err(|_| Failure::class(ffi::MPI_ERR_ARG))?;
    let mut named = Vec::new();
    for index in 0..count {
        // SAFETY: the program's array.
        let [first, last, stride] = unsafe { *at.add(index) };
        if stride == 0 {
            return Err(Failure::class(ffi::MPI_ERR_ARG));
        }
        let is_in = |place: &c_int| if stride > 0 { *place <= last } else { *place >= last };
        let range = std::iter::successors(Some(first), |place| place.checked_add(stride)).take_while(is_in);
        // More places than the group has are an error anyway.
        named.extend(range.take(size + 1));
    }
    distinct(named.into_iter(), size)
}

/// Checks that places are within a group of this size, and distinct.
fn distinct(named: impl Iterator<Item = c_int>, size: usize) -> Result<Vec<usize>, Failure> {
    let (mut places, mut seen) = (Vec::new(), BTreeSet::new());
    for place in named {
        let place = usize::try_from(place).ok().filter(|place| *place < size && seen.insert(*place));
        places.push(place.ok_or_else(|| Failure::class(ffi::MPI_ERR_RANK))?);
    }
    Ok(places)
}

fn included(ranks: &[u32], places: &[usize]) -> Vec<u32> {
    places.iter().map(|place| ranks[*place]).collect()
}

fn excluded(ranks: &[u32], places: &[usize]) -> Vec<u32> {
    let others = (0..ranks.len()).filter(|place| !places.contains(place));
    others.map(|place| ranks[place]).collect()
}

exports! {
    MPI_Group_size(group: ffi::MPI_Group, size: *mut c_int) on None, |front| {
        *size = front.ranks_of(group)?.len() as c_int;
        Ok(())
    }

    MPI_Group_rank(group: ffi::MPI_Group, rank: *mut c_int) on None, |front| {
        let own = front.rank();
        *rank = or_undefined(front.ranks_of(group)?.iter().position(|member| *member == own));
        Ok(())
    }

    MPI_Group_translate_ranks(
        from: ffi::MPI_Group,
        count: c_int,
        ranks: *const c_int,
        to: ffi::MPI_Group,
        translated: *mut c_int,
    ) on None, |front| {
        let (from, to) = (front.ranks_of(from)?, front.ranks_of(to)?);
        for index in 0..usize::try_from(count).map_err(|_| Failure::class(ffi::MPI_ERR_ARG))? {
            let rank = *ranks.add(index);
            *translated.add(index) = if rank == ffi::RSMPI_PROC_NULL {
                rank
            } else {
                let of_job = usize::try_from(rank).ok().and_then(|rank| from.get(rank));
                let of_job = of_job.ok_or_else(|| Failure::class(ffi::MPI_ERR_RANK))?;
                or_undefined(to.iter().position(|member| member == of_job))
            };
        }
        Ok(())
    }

    MPI_Group_compare(a: ffi::MPI_Group, b: ffi::MPI_Group, result: *mut c_int) on None, |front| {
        let (a, b) = (front.ranks_of(a)?, front.ranks_of(b)?);
        *result = if a == b { ffi::RSMPI_IDENT } else { relation(&a, &b) };
        Ok(())
    }

    MPI_Group_union(a: ffi::MPI_Group, b: ffi::MPI_Group, new: *mut ffi::MPI_Group) on None, |front| {
        let (mut ranks, others) = (front.ranks_of(a)?, front.ranks_of(b)?);
        let added: Vec<u32> = others.into_iter().filter(|rank| !ranks.contains(rank)).collect();
        ranks.extend(added);
        *new = front.group_of(ranks);
        Ok(())
    }

    MPI_Group_intersection(a: ffi::MPI_Group, b: ffi::MPI_Group, new: *mut ffi::MPI_Group) on None, |front| {
        *new = front.filter(a, b, true)?;
        Ok(())
    }

    MPI_Group_difference(a: ffi::MPI_Group, b: ffi::MPI_Group, new: *mut ffi::MPI_Group) on None, |front| {
        *new = front.filter(a, b, false)?;
        Ok(())
    }

    MPI_Group_incl(
        group: ffi::MPI_Group,
        count: c_int,
        at: *const c_int,
        new: *mut ffi::MPI_Group,
    ) on None, |front| {
        let ranks = front.ranks_of(group)?;
        *new = front.group_of(included(&ranks, &places(count, at, ranks.len())?));
        Ok(())
    }

    MPI_Group_excl(
        group: ffi::MPI_Group,
        count: c_int,
        at: *const c_int,
        new: *mut ffi::MPI_Group,
    ) on None, |front| {
        let ranks = front.ranks_of(group)?;
        *new = front.group_of(excluded(&ranks, &places(count, at, ranks.len())?));
        Ok(())
    }

    MPI_Group_range_incl(
        group: ffi::MPI_Group,
        count: c_int,
        ranges: *mut [c_int; 3],
        new: *mut ffi::MPI_Group,
    ) on None, |front| {
        let ranks = front.ranks_of(group)?;
        *new = front.group_of(included(&ranks, &places_of_ranges(count, ranges, ranks.len())?));
        Ok(())
    }

    MPI_Group_range_excl(
        group: ffi::MPI_Group,
        count: c_int,
        ranges: *mut [c_int; 3],
        new: *mut ffi::MPI_Group,
    ) on None, |front| {
        let ranks = front.ranks_of(group)?;
        *new = front.group_of(excluded(&ranks, &places_of_ranges(count, ranges, ranks.len())?));
        Ok(())
    }

    MPI_Group_free(group: *mut ffi::MPI_Group) on None, |front| {
        front.ranks_of(*group)?;
        if let Some(number) = number_of(*group) {
            front.groups.borrow_mut().remove(number);
        }
        *group = ffi::RSMPI_GROUP_NULL;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_named_once_and_in_the_group() {
        let named = |names: &[c_int]| distinct(names.iter().copied(), 4).ok();
        assert_eq!(named(&[3, 0]), Some(vec![3, 0]));
        for wrong in [&[4][..], &[-1], &[1, 2, 1]] {
            assert_eq!(named(wrong), None, "{wrong:?}");
        }
        let ranks = [10, 11, 12, 13];
        assert_eq!((included(&ranks, &[3, 0]), excluded(&ranks, &[3, 0])), (vec![13, 10], vec![11, 12]));
    }

    #[test]
    fn ranges_go_both_ways() {
        let of = |ranges: &[[c_int; 3]]| {
            // SAFETY: an array of this length.
            unsafe { places_of_ranges(ranges.len() as c_int, ranges.as_ptr(), 8) }.ok()
        };
        assert_eq!(of(&[[1, 6, 2], [7, 4, -3]]), Some(vec![1, 3, 5, 7, 4]));
        assert_eq!(of(&[[5, 4, 1]]), Some(vec![]));
        for wrong in [[0, 3, 0], [0, 8, 1], [0, c_int::MAX, 1], [3, -1, -1]] {
            assert_eq!(of(&[wrong]), None, "{wrong:?}");
        }
    }
}
