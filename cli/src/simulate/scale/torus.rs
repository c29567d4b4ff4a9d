//! Tori and their division into clusters.

use clap::ValueEnum;
use counterfoil_protocols::cluster::{ClusterError, Clusters};
use counterfoil_workloads::patterns::{Pattern, PatternError};
use serde::Serialize;

/// Message size, in bytes.
const MESSAGE_BYTES: u64 = 1024;

/// Cluster shape and epoch order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Arrangement {
    /// Consecutive ranks with ascending epochs, as in the paper
    Stripes,
    /// Compact boxes with epochs ascending along x, then y, then z
    Boxes,
    /// The same boxes in a checkerboard: the epochs of all boxes in one colour are below those in the other
    Alternating,
}

impl Arrangement {
    /// Returns the distinct arrangements for a number of axes: along one axis, boxes equal stripes.
    pub(super) fn of(axes: u32) -> Vec<Arrangement> {
        let all = [Arrangement::Stripes, Arrangement::Boxes, Arrangement::Alternating];
        all.into_iter().filter(|&one| axes > 1 || one != Arrangement::Boxes).collect()
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Arrangement::Stripes => "stripes",
            Arrangement::Boxes => "boxes",
            Arrangement::Alternating => "alternating",
        }
    }
}

/// A torus, and the number of boxes along each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Torus {
    pub(super) axes: u32,
    /// Number of ranks along each axis; x varies fastest.
    pub(super) extents: [u32; 3],
    boxes: [u32; 3],
}

impl Torus {
    /// Returns a torus as square as the divisors of `ranks` and `clusters` allow; `None` if there are more boxes than
    /// ranks along an axis.
    pub(super) fn new(ranks: u32, axes: u32, clusters: u32) -> Option<Torus> {
        let (extents, boxes) = (factors(ranks, axes), factors(clusters, axes));
        extents.iter().zip(boxes).all(|(&extent, boxes)| boxes <= extent).then_some(Torus { axes, extents, boxes })
    }

    pub(super) fn ranks(&self) -> u32 {
        self.extents.iter().product()
    }

    pub(super) fn pattern(&self) -> Result<Pattern, PatternError> {
        Pattern::neighbour(self.extents, MESSAGE_BYTES)
    }

    pub(super) fn clusters(&self, arrangement: Arrangement) -> Result<Clusters, ClusterError> {
        let boxes = self.boxes.iter().product::<u32>();
        let place = self.places(arrangement);
        Clusters::from_assignment(
            (0..self.ranks())
                .map(|rank| match arrangement {
                    // The product may exceed 32 bits.
                    Arrangement::Stripes => (u64::from(rank) * u64::from(boxes) / u64::from(self.ranks())) as u32,
                    Arrangement::Boxes | Arrangement::Alternating => place[self.box_of(rank) as usize],
                })
                .collect(),
        )
    }

    /// Returns each box's place in the epoch order.
    fn places(&self, arrangement: Arrangement) -> Vec<u32> {
        let boxes = self.boxes.iter().product::<u32>();
        let is_dark = |at: u32| {
            let [x, y, _] = self.boxes;
            (at % x + at / x % y + at / x / y) % 2 == 1
        };
        let mut order: Vec<u32> = (0..boxes).collect();
        if arrangement == Arrangement::Alternating {
            order.sort_by_key(|&at| is_dark(at));
        }
        let mut places = vec![0; order.len()];
        for (place, at) in (0..).zip(order) {
            places[at as usize] = place;
        }
        places
    }

    fn box_of(&self, rank: u32) -> u32 {
        let (mut rank, mut stride, mut number) = (rank, 1, 0);
        for (extent, boxes) in self.extents.into_iter().zip(self.boxes) {
            let at = u64::from(rank % extent) * u64::from(boxes) / u64::from(extent);
            number += at as u32 * stride;
            rank /= extent;
            stride *= boxes;
        }
        number
    }
}

/// Factors `number` into `axes` factors, smallest first, each as near to the root as the divisors allow.
fn factors(number: u32, axes: u32) -> [u32; 3] {
    let mut factors = [1; 3];
    let mut rest = number;
    for (factor, left) in factors.iter_mut().zip((1..=axes).rev()) {
        let fits =
            |candidate: &u32| rest.is_multiple_of(*candidate) && u64::from(*candidate).pow(left) <= u64::from(rest);
        *factor = if left == 1 { rest } else { (1..=rest.isqrt()).rev().find(fits).unwrap_or(1) };
        rest /= *factor;
    }
    factors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_as_equal_as_possible() {
        assert_eq!(factors(100_000, 3), [40, 50, 50]);
        assert_eq!(factors(100_000, 2), [250, 400, 1]);
        assert_eq!(factors(64, 3), [4, 4, 4]);
        assert_eq!(factors(7, 2), [1, 7, 1]);
        assert_eq!(factors(7, 1), [7, 1, 1]);
        assert_eq!(Torus::new(7, 2, 4), None);
    }

    #[test]
    fn every_arrangement_makes_clusters_of_equal_size() {
        let torus = Torus::new(4_096, 3, 64).unwrap();
        for arrangement in Arrangement::of(3) {
            assert_eq!(torus.clusters(arrangement).unwrap().sizes(), vec![64; 64], "{arrangement:?}");
        }
    }

    #[test]
    fn neighbouring_boxes_have_different_colours() {
        let torus = Torus::new(4_096, 2, 64).unwrap();
        let places = torus.clusters(Arrangement::Alternating).unwrap().places();
        let is_dark = |rank: u32| places[rank as usize] >= 32;
        assert!((0..4_096).all(|rank| {
            let (x, y) = (rank % 64, rank / 64);
            is_dark(rank) == ((x / 8 + y / 8) % 2 == 1)
        }));
    }
}
