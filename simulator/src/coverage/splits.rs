//! Counters of the splits of collective calls of four ranks.

use counterfoil_log_core::Rank;
use counterfoil_protocols::api::CollectiveClass;
use serde::{Deserialize, Serialize};

/// Number of ranks in counted jobs.
const RANKS: usize = 4;
/// Ways to split the ranks into two nonempty parts: beyond a call, and not.
const SPLITS: usize = (1 << RANKS) - 2;
/// From each root, to each root, from all to all, and barriers.
const CLASSES: usize = 2 * RANKS + 2;

/// Collective calls in jobs with four ranks, by class, root, and the ranks beyond the call when the others were not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Splits([[u64; SPLITS]; CLASSES]);

impl Splits {
    /// Counts a call.
    ///
    /// `are_beyond` has the ranks in order; jobs of another size and unsplit calls don't count.
    pub(crate) fn count(&mut self, class: CollectiveClass, are_beyond: &[bool]) {
        let beyond =
            (0..).zip(are_beyond).filter(|(_, is_beyond)| **is_beyond).map(|(rank, _)| 1 << rank).sum::<usize>();
        if are_beyond.len() == RANKS && (1..=SPLITS).contains(&beyond) {
            self.0[place(class)][beyond - 1] += 1;
        }
    }

    /// Adds another run's counters.
    pub fn add(&mut self, other: &Splits) {
        let all = self.0.iter_mut().flatten().zip(other.0.iter().flatten());
        all.for_each(|(sum, count)| *sum += count);
    }

    /// Returns all counters, each with class, root and ranks beyond the call in words.
    pub fn each(&self) -> impl Iterator<Item = (String, u64)> + Clone {
        (0..).zip(&self.0).flat_map(|(class, counts)| {
            (1usize..).zip(counts).map(move |(beyond, count)| {
                let ranks: String =
                    (0..RANKS).filter(|rank| beyond >> rank & 1 == 1).map(|rank| rank.to_string()).collect();
                (format!("{} beyond {ranks}", name(class)), *count)
            })
        })
    }
}

fn place(class: CollectiveClass) -> usize {
    match class {
        CollectiveClass::FromRoot(Rank(root)) => root as usize,
        CollectiveClass::ToRoot(Rank(root)) => RANKS + root as usize,
        CollectiveClass::AllToAll => 2 * RANKS,
        CollectiveClass::Barrier => 2 * RANKS + 1,
    }
}

fn name(class: usize) -> String {
    match class {
        root if root < RANKS => format!("from root {root}"),
        root if root < 2 * RANKS => format!("to root {}", root - RANKS),
        class if class == 2 * RANKS => "all to all".to_owned(),
        _ => "barrier".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_and_split_has_a_counter_of_its_own() {
        let mut splits = Splits::default();
        let roots = (0..4).map(Rank);
        let mut classes: Vec<_> = roots.clone().map(CollectiveClass::FromRoot).collect();
        classes.extend(roots.map(CollectiveClass::ToRoot));
        classes.extend([CollectiveClass::AllToAll, CollectiveClass::Barrier]);
        for (times, class) in (1..).zip(&classes) {
            for ranks in 0..16 {
                let are_beyond: Vec<bool> = (0..4).map(|rank| ranks >> rank & 1 == 1).collect();
                (0..times * 100 + ranks).for_each(|_| splits.count(*class, &are_beyond));
            }
        }
        let counts: Vec<u64> = splits.each().map(|(_, count)| count).collect();
        let expected: Vec<u64> = (1..=10).flat_map(|times| (1..15).map(move |ranks| times * 100 + ranks)).collect();
        assert_eq!(counts, expected);
        let mut twice = splits;
        twice.add(&splits);
        assert!(twice.each().zip(&counts).all(|((_, sum), count)| sum == 2 * count));
        let names: Vec<String> = splits.each().map(|(name, _)| name).collect();
        assert_eq!(names[..3], ["from root 0 beyond 0", "from root 0 beyond 1", "from root 0 beyond 01"]);
        assert_eq!(
            (&*names[4 * 14], &*names[8 * 14 + 13], &*names[139]),
            ("to root 0 beyond 0", "all to all beyond 123", "barrier beyond 123")
        );
    }

    #[test]
    fn other_numbers_of_ranks_do_not_count() {
        let mut splits = Splits::default();
        for are_beyond in [&[true, false, false][..], &[true, false, false, false, false]] {
            splits.count(CollectiveClass::Barrier, are_beyond);
        }
        assert_eq!(splits, Splits::default());
    }
}
