//! Verdict totals: over all runs, and for each parameter value.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::parameters::Parameters;
use super::verdict::{RECOVERY_PHASES, RecoveryMs, Verdict};
use crate::table::Table;

/// Totals for the runs so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    all: Group,
    /// Parameter, value and totals of each group, in order of first appearance.
    groups: Vec<(&'static str, String, Group)>,
    /// Runs and failed runs of each matrix cell, by protocol and workload, and kill pattern.
    cells: BTreeMap<(String, String), (u64, u64)>,
}

/// Totals for runs with the same parameter value.
#[derive(Debug, Default)]
struct Group {
    runs: u64,
    failed: u64,
    kills: u64,
    kills_in_iterations: u64,
    kills_in_traffic: u64,
    recovery_ms: Vec<RecoveryMs>,
}

impl Tally {
    /// Adds one run.
    pub(super) fn add(&mut self, parameters: &Parameters, verdict: &Verdict) {
        self.all.add(verdict);
        for (by, value) in [
            ("kills", parameters.pattern.to_string()),
            ("workload", parameters.workload.name.clone()),
            ("tier", parameters.tier.to_string()),
            ("protocol", parameters.protocol.name.clone()),
            ("checkpoints", parameters.checkpoints()),
            ("ranks", parameters.ranks.to_string()),
        ] {
            self.group(by, value).add(verdict);
        }
        let row = format!("{}, {}", parameters.protocol.name, parameters.workload.name);
        let (runs, failed) = self.cells.entry((row, parameters.pattern.to_string())).or_default();
        *runs += 1;
        *failed += u64::from(!verdict.problems.is_empty());
    }

    /// Formats the matrix: runs of each protocol and workload by kill time, with failed ones after a slash.
    pub(super) fn matrix(&self) -> Table {
        let rows: BTreeSet<&String> = self.cells.keys().map(|(row, _)| row).collect();
        let columns: BTreeSet<&String> = self.cells.keys().map(|(_, column)| column).collect();
        let mut table = Table::new([""].into_iter().chain(columns.iter().map(|column| column.as_str())));
        for row in rows {
            let cell = |column: &&String| match self.cells.get(&(row.clone(), (*column).clone())) {
                None => "-".to_owned(),
                Some((runs, 0)) => runs.to_string(),
                Some((runs, failed)) => format!("{runs} / {failed}"),
            };
            table.row([row.clone()].into_iter().chain(columns.iter().map(cell)));
        }
        table
    }

    fn group(&mut self, by: &'static str, value: String) -> &mut Group {
        let found = self.groups.iter().position(|(other, other_value, _)| *other == by && *other_value == value);
        let index = found.unwrap_or_else(|| {
            self.groups.push((by, value, Group::default()));
            self.groups.len() - 1
        });
        &mut self.groups[index].2
    }

    /// Returns the share of kills between the victim's first and last message: 0 without kills.
    pub(super) fn kills_in_traffic(&self) -> f64 {
        self.all.kills_in_traffic_share()
    }

    /// Formats a row for all runs and a row per group.
    pub(super) fn table(&self) -> Table {
        let heading = ["by", "", "runs", "failed", "kills", "in traffic"];
        let mut table = Table::new(heading.into_iter().chain(RECOVERY_PHASES));
        for (by, value, group) in self.rows() {
            let mut row = vec![
                by.to_owned(),
                value.to_owned(),
                group.runs.to_string(),
                group.failed.to_string(),
                group.kills.to_string(),
                if group.kills_in_iterations == 0 {
                    "-".to_owned()
                } else {
                    format!("{:.1} %", group.kills_in_traffic_share() * 100.0)
                },
            ];
            row.extend((0..RECOVERY_PHASES.len()).map(|phase| {
                let times = group.times(phase);
                match (percentile(&times, 50), percentile(&times, 95)) {
                    (Some(median), Some(p95)) => format!("{median:.1} / {p95:.1}"),
                    _ => "-".to_owned(),
                }
            }));
            table.row(row);
        }
        table
    }

    /// Returns the rows as an object array.
    pub(super) fn to_json(&self) -> Value {
        self.rows()
            .map(|(by, value, group)| {
                let phases = RECOVERY_PHASES.iter().enumerate().map(|(phase, name)| {
                    let times = group.times(phase);
                    let summary = json!({
                        "count": times.len(),
                        "median": percentile(&times, 50),
                        "p95": percentile(&times, 95),
                    });
                    ((*name).to_owned(), summary)
                });
                json!({
                    "by": by,
                    "value": value,
                    "runs": group.runs,
                    "wrong": group.failed,
                    "kills": group.kills,
                    "kills_in_iterations": group.kills_in_iterations,
                    "kills_in_traffic": group.kills_in_traffic,
                    "recovery_ms": phases.collect::<serde_json::Map<_, _>>(),
                })
            })
            .collect()
    }

    /// Returns the total for all runs, then the groups by parameter and value.
    fn rows(&self) -> impl Iterator<Item = (&str, &str, &Group)> {
        let mut parameters: Vec<&str> = Vec::new();
        for (by, _, _) in &self.groups {
            if !parameters.contains(by) {
                parameters.push(by);
            }
        }
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_by_key(|(by, value, _)| (parameters.iter().position(|parameter| parameter == by), value.as_str()));
        let groups = groups.into_iter().map(|(by, value, group)| (*by, value.as_str(), group));
        std::iter::once(("all", "", &self.all)).chain(groups)
    }
}

impl Group {
    fn add(&mut self, verdict: &Verdict) {
        self.runs += 1;
        self.failed += u64::from(!verdict.problems.is_empty());
        self.kills += verdict.kills;
        self.kills_in_iterations += verdict.kills_in_iterations;
        self.kills_in_traffic += verdict.kills_in_traffic;
        self.recovery_ms.extend(&verdict.recovery_ms);
    }

    fn kills_in_traffic_share(&self) -> f64 {
        let all = self.kills_in_iterations;
        if all == 0 { 0.0 } else { self.kills_in_traffic as f64 / all as f64 }
    }

    /// Returns one recovery phase's times in ascending order.
    fn times(&self, phase: usize) -> Vec<f64> {
        let mut times: Vec<f64> = self.recovery_ms.iter().filter_map(|ms| ms[phase]).collect();
        times.sort_by(f64::total_cmp);
        times
    }
}

/// Returns the nearest-rank percentile: the smallest value with at least `percent` % of all values at or below it.
fn percentile(ascending: &[f64], percent: usize) -> Option<f64> {
    let rank = (ascending.len() * percent).div_ceil(100);
    ascending.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::super::listed::Listed;
    use super::super::parameters::Cell;
    use super::super::random::SplitMix64;
    use super::*;

    fn verdict(problems: &[&str], kills: u64, in_traffic: u64, detect: f64) -> Verdict {
        Verdict {
            problems: problems.iter().map(|&problem| problem.to_owned()).collect(),
            kills,
            kills_in_iterations: kills,
            kills_in_traffic: in_traffic,
            recovery_ms: vec![[Some(detect), None, None, None, None]],
        }
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&hundred, 50), Some(50.0));
        assert_eq!(percentile(&hundred, 95), Some(95.0));
        assert_eq!(percentile(&[7.0], 95), Some(7.0));
        assert_eq!(percentile(&[1.0, 2.0, 3.0], 50), Some(2.0));
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn the_share_without_kills_is_zero() {
        assert_eq!(Tally::default().kills_in_traffic(), 0.0);
    }

    #[test]
    fn each_run_counts_once_in_total_and_once_per_parameter() {
        let mut tally = Tally::default();
        let mut random = SplitMix64::new(5);
        let listed = Listed::sample();
        let cells = Cell::of(&listed, None).unwrap();
        for run in 0..60 {
            let problems: &[&str] = if run == 9 { &["lost is 1"] } else { &[] };
            let parameters = Parameters::draw(cells[run as usize % cells.len()], &mut random);
            tally.add(&parameters, &verdict(problems, 2, 1, f64::from(run)));
        }
        assert_eq!(tally.kills_in_traffic(), 0.5);
        let report = tally.to_json();
        let rows = report.as_array().unwrap();
        assert_eq!(rows[0]["runs"], 60);
        assert_eq!(rows[0]["wrong"], 1);
        assert_eq!(rows[0]["recovery_ms"]["detect"]["median"], 29.0);
        assert_eq!(rows[0]["recovery_ms"]["replay"]["median"], Value::Null);
        for parameter in ["kills", "workload", "tier", "protocol", "checkpoints", "ranks"] {
            let rows_of_parameter = rows.iter().filter(|row| row["by"] == parameter);
            let runs: u64 = rows_of_parameter.map(|row| row["runs"].as_u64().unwrap()).sum();
            assert_eq!(runs, 60, "{parameter}");
        }
        let table = tally.table().to_string();
        assert!(table.contains("process-crash-safe"), "{table}");
        assert!(table.contains("29.0 / 56.0"), "{table}");
    }
}
