//! Counters of the schedules' settings, each alone and each two together.

use serde::{Deserialize, Serialize};

use crate::schedule::{Schedule, Tier};

/// Smallest number of ranks that counts as many.
const MANY_RANKS: u32 = 9;
/// Smallest number of faults that counts as many.
const MANY_FAULTS: usize = 5;
/// Settings present or absent in a schedule.
const NAMES: [&str; 16] = [
    "2 ranks",
    "9 ranks or more",
    "no faults",
    "5 faults or more",
    "faults within events",
    "the coordinator dies",
    "logs survive",
    "checkpoints",
    "checkpoints in the background",
    "collections",
    "clusters",
    "late frames",
    "revocations",
    "overtaking",
    "clocks",
    "dependence on the order",
];

/// Pairs impossible in a schedule.
const EXCLUSIVE: [(&str, &str); 4] = [
    ("2 ranks", "9 ranks or more"),
    ("no faults", "5 faults or more"),
    ("no faults", "faults within events"),
    ("no faults", "the coordinator dies"),
];

/// Number of schedules with each setting, and with each pair of settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings([[u64; NAMES.len()]; NAMES.len()]);

impl Settings {
    /// Counts a schedule.
    ///
    /// `coordinator`: the protocol has one.
    pub(crate) fn count(&mut self, schedule: &Schedule, coordinator: bool) {
        let has = settings(schedule, coordinator);
        for (counts, _) in self.0.iter_mut().zip(has).filter(|(_, has)| *has) {
            counts.iter_mut().zip(has).for_each(|(count, has)| *count += u64::from(has));
        }
    }

    /// Adds another campaign's counters.
    pub fn add(&mut self, other: &Settings) {
        let all = self.0.iter_mut().flatten().zip(other.0.iter().flatten());
        all.for_each(|(sum, count)| *sum += count);
    }

    /// Returns the number of schedules with each setting, and with each possible pair, named `A and B`.
    pub fn each(&self) -> impl Iterator<Item = (String, u64)> {
        let pairs = (0..NAMES.len()).flat_map(|a| (a..NAMES.len()).map(move |b| (a, b)));
        pairs.filter(|&(a, b)| !EXCLUSIVE.contains(&(NAMES[a], NAMES[b]))).map(|(a, b)| {
            let name = if a == b { NAMES[a].to_owned() } else { format!("{} and {}", NAMES[a], NAMES[b]) };
            (name, self.0[a][b])
        })
    }
}

/// Returns a schedule's settings, in the order of [`NAMES`].
fn settings(schedule: &Schedule, coordinator: bool) -> [bool; NAMES.len()] {
    let Schedule { shape, tier, faults, collections, clusters, late, revoked, background, overtaking, clocks, .. } =
        schedule;
    let nodes = shape.ranks + u32::from(coordinator);
    [
        shape.ranks == 2,
        shape.ranks >= MANY_RANKS,
        faults.is_empty(),
        faults.len() >= MANY_FAULTS,
        faults.iter().any(|fault| fault.effects.is_some()),
        faults.iter().any(|fault| fault.node % nodes == shape.ranks),
        *tier == Tier::ProcessCrashSafe,
        shape.checkpoint_one_in > 0,
        shape.checkpoint_one_in > 0 && *background,
        *collections > 0,
        *clusters > 0,
        *late,
        *revoked,
        *overtaking,
        *clocks,
        shape.ordered,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Schedule {
        line.parse().expect("a schedule")
    }

    #[test]
    fn each_setting_and_each_pair_is_counted() {
        let everything = of(
            "sim1 pattern=ring ranks=2 rounds=2 program=17 checkpoints=2 ordered=1 tier=crash-safe mode=uniform seed=5 \
            faults=31:2:9,1:0:0,2:0:0,3:0:0,4:0:0:1 collections=1 clusters=2 late=1 revoked=1 background=1 overtaking=1 clocks=1",
        );
        let nothing = of(
            "sim1 pattern=ring ranks=9 rounds=2 program=17 checkpoints=0 ordered=0 tier=volatile mode=uniform seed=5 faults= \
            background=1",
        );
        assert_eq!(settings(&everything, true).map(u8::from), [1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(settings(&nothing, true).map(u8::from), [0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!(!settings(&everything, false)[5], "without a coordinator, node 2 is rank 0");
        let mut settings = Settings::default();
        settings.count(&everything, true);
        settings.count(&nothing, true);
        settings.add(&settings.clone());
        let counts: Vec<u64> = settings.each().map(|(_, count)| count).collect();
        assert_eq!(counts.len(), 16 * 17 / 2 - EXCLUSIVE.len());
        assert_eq!(counts.iter().sum::<u64>(), 2 * (14 * 15 / 2) + 2 * 3);
        let met: Vec<(String, u64)> = settings.each().filter(|(_, count)| *count > 0).take(2).collect();
        assert_eq!(met, [("2 ranks".to_owned(), 2), ("2 ranks and 5 faults or more".to_owned(), 2)]);
        assert!(!settings.each().any(|(name, _)| name == "2 ranks and 9 ranks or more"));
    }
}
