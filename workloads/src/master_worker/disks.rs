//! Hard disks in a periodic box, by Metropolis' method: a task is a chain of random moves, and its result counts moves
//! and touching pairs.
//!
//! Disks don't overlap; an overlapping move is refused. The number of nearly touching pairs gives the pressure. Chains
//! have different lengths, so workers become idle at different times. Only additions, multiplications and comparisons
//! of numbers decide, so a chain is the same everywhere.

use crate::random::Random;

/// Disks along a side of a chain's initial lattice.
const SIDE: usize = 6;
const DISKS: usize = SIDE * SIDE;
/// Disk diameter, in box widths: they cover 30 % of it.
const DIAMETER: f64 = 0.103;
/// Largest move along an axis.
const MOVE: f64 = 0.04;
/// Distance below which two disks nearly touch, in diameters.
const NEAR: f64 = 1.1;
/// Sweeps before anything is counted.
const SWEEPS_BEFORE: u64 = 20;

/// Counts over a chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Accepted moves.
    pub(super) accepted: u32,
    /// Nearly touching pairs, after each counted sweep.
    pub(super) near: u32,
}

impl Counts {
    /// Returns both in one word.
    ///
    /// Words add up componentwise while the sums are below 2^32.
    pub(super) fn to_word(self) -> u64 {
        u64::from(self.accepted) << 32 | u64::from(self.near)
    }
}

/// Returns a chain's number of counted sweeps: 20 to 79.
pub(super) fn sweeps(task: u64) -> u64 {
    20 + task.wrapping_mul(37) % 60
}

fn square_of_distance(a: [f64; 2], b: [f64; 2]) -> f64 {
    let along = |axis: usize| {
        let distance = (a[axis] - b[axis]).abs();
        if distance > 0.5 { 1.0 - distance } else { distance }
    };
    along(0) * along(0) + along(1) * along(1)
}

/// Runs a task's chain.
pub(super) fn run(task: u64) -> Counts {
    let mut random = Random::from_seed(task + 1);
    let place = |at: usize| (at as f64 + 0.5) / SIDE as f64;
    let mut disks: Vec<[f64; 2]> = (0..DISKS).map(|disk| [place(disk % SIDE), place(disk / SIDE)]).collect();
    let mut counts = Counts::default();
    for sweep in 0..SWEEPS_BEFORE + sweeps(task) {
        for disk in 0..DISKS {
            let moved = disks[disk].map(|at| {
                let to = at + MOVE * (2.0 * random.next_fraction() - 1.0);
                if to < 0.0 {
                    to + 1.0
                } else if to >= 1.0 {
                    to - 1.0
                } else {
                    to
                }
            });
            let others = disks.iter().enumerate().filter(|(other, _)| *other != disk);
            if others.clone().all(|(_, other)| square_of_distance(moved, *other) >= DIAMETER * DIAMETER) {
                disks[disk] = moved;
                counts.accepted += u32::from(sweep >= SWEEPS_BEFORE);
            }
        }
        if sweep >= SWEEPS_BEFORE {
            let near = |(disk, of): (usize, &[f64; 2])| {
                let others = disks[disk + 1..].iter();
                others.filter(|other| square_of_distance(*of, **other) < (NEAR * DIAMETER) * (NEAR * DIAMETER)).count()
            };
            counts.near += disks.iter().enumerate().map(near).sum::<usize>() as u32;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By Henderson's equation of state (1975): pressure over an ideal gas's is (1 + c^2 / 8) / (1 - c)^2 for a covered
    /// part c, and 1 + 2 c g with the density g of touching pairs, relative to an ideal gas.
    #[test]
    fn pairs_that_nearly_touch_give_the_known_pressure() {
        let tasks = 0..60;
        let sweeps: u64 = tasks.clone().map(sweeps).sum();
        let near: u64 = tasks.map(|task| u64::from(run(task).near)).sum();
        let covered = DISKS as f64 * std::f64::consts::PI * DIAMETER * DIAMETER / 4.0;
        let ring = std::f64::consts::PI * DIAMETER * DIAMETER * (NEAR * NEAR - 1.0);
        let of_ideal_gas = (DISKS * (DISKS - 1) / 2) as f64 * ring;
        let pressure = 1.0 + 2.0 * covered * (near as f64 / sweeps as f64) / of_ideal_gas;
        let known = (1.0 + covered * covered / 8.0) / ((1.0 - covered) * (1.0 - covered));
        assert!((pressure / known - 1.0).abs() < 0.12, "{pressure} for {known}");
    }

    #[test]
    fn a_chain_depends_on_its_task() {
        assert_eq!(run(3), run(3));
        assert_ne!(run(3).to_word(), run(4).to_word());
    }
}
