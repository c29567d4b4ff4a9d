//! Three-job rounds: native, measured, and native again.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::interval::Interval;
use crate::workspace::TaskError;

/// Times measured by one job.
pub(super) type Times<K> = BTreeMap<K, f64>;

/// Times for all rounds: native, measured, and native.
pub(super) struct Rounds<K>(Vec<[Times<K>; 3]>);

impl<K: Ord + Clone> Rounds<K> {
    /// Runs the jobs; `label` names them in the progress.
    pub(super) fn run(
        rounds: u32,
        label: &str,
        native: impl Fn() -> Result<Times<K>, TaskError>,
        measured: impl Fn(u32) -> Result<Times<K>, TaskError>,
    ) -> Result<Rounds<K>, TaskError> {
        let mut times = Vec::new();
        for round in 0..rounds {
            eprintln!("{label}, round {} of {rounds}", round + 1);
            let (first, measured, last) = (native()?, measured(round)?, native()?);
            // Job order may matter: the base alternates between the first and the last.
            let (base, other) = if round % 2 == 0 { (first, last) } else { (last, first) };
            times.push([base, measured, other]);
        }
        Ok(Rounds(times))
    }

    /// Returns a row for each key measured by all jobs: the fields of `head`, its times under `names` (native and
    /// measured), and ratios with intervals.
    ///
    /// `control` compares a round's two native jobs.
    pub(super) fn rows(&self, head: impl Fn(&K) -> Value, names: [&str; 2]) -> Vec<Value> {
        let keys = self.0.first().into_iter().flat_map(|[native, ..]| native.keys());
        keys.filter_map(|key| self.row(key, head(key), names)).collect()
    }

    fn row(&self, key: &K, mut row: Value, [native, measured]: [&str; 2]) -> Option<Value> {
        let of_round = |times: &[Times<K>; 3]| {
            let [native, measured, other] = times.each_ref().map(|times| times.get(key).copied());
            Some([native?, measured?, other?])
        };
        let times: Vec<[f64; 3]> = self.0.iter().map(of_round).collect::<Option<_>>()?;
        let interval = |value: fn(&[f64; 3]) -> f64| Interval::of(&times.iter().map(value).collect::<Vec<_>>());
        row["rounds"] = json!(times.len());
        row[native] = json!(interval(|[native, ..]| *native)?.median);
        row[measured] = json!(interval(|[_, measured, _]| *measured)?.median);
        let ratio = interval(|[native, measured, _]| measured / native)?;
        let control = interval(|[native, _, other]| other / native)?;
        for (name, Interval { low, median, high }) in [("ratio", ratio), ("control", control)] {
            row[name] = json!(median);
            row[format!("{name}_low")] = json!(low);
            row[format!("{name}_high")] = json!(high);
        }
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_alternates_and_what_a_job_has_not_measured_has_no_row() {
        let jobs = std::cell::Cell::new(0);
        // Each second native job takes twice as long.
        let native = || {
            jobs.set(jobs.get() + 1);
            Ok(Times::from([(8, if jobs.get() % 2 == 0 { 2.0 } else { 1.0 }), (9, 1.0)]))
        };
        let rounds = Rounds::run(6, "test", native, |_| Ok(Times::from([(8, 4.0)]))).unwrap();
        let rows = rounds.rows(|size| json!({ "size": size }), ["native", "time"]);
        assert_eq!(rows.len(), 1);
        let row = &rows[0];
        assert_eq!((&row["size"], &row["rounds"], &row["time"]), (&json!(8), &json!(6), &json!(4.0)));
        assert_eq!((&row["ratio_low"], &row["ratio"], &row["ratio_high"]), (&json!(2.0), &json!(3.0), &json!(4.0)));
        assert_eq!((&row["control_low"], &row["control_high"]), (&json!(0.5), &json!(2.0)));
    }
}
