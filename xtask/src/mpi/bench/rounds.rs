//! Rounds of jobs: native, measured in one or more ways, and native again.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::interval::Interval;
use crate::workspace::TaskError;

/// Times measured by one job.
pub(super) type Times<K> = BTreeMap<K, f64>;

/// A job of each round, by its place in [`Rounds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    Native,
    /// The second native job.
    Control,
    Measured,
    Floor,
}

/// Field of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field {
    /// A job's median time.
    Time(&'static str, Job),
    /// A job's time as a multiple of another one's in the same round: median, and interval under `_low` and `_high`.
    Ratio(&'static str, Job, Job),
}

/// Times for all rounds, in the order of [`Job`].
pub(super) struct Rounds<K>(Vec<Vec<Times<K>>>);

impl<K: Ord + Clone> Rounds<K> {
    /// Runs the jobs; `label` names them in the progress.
    ///
    /// `measured` are the jobs from [`Job::Measured`] on.
    pub(super) fn run(
        rounds: u32,
        label: &str,
        native: impl Fn() -> Result<Times<K>, TaskError>,
        measured: &[&dyn Fn(u32) -> Result<Times<K>, TaskError>],
    ) -> Result<Rounds<K>, TaskError> {
        let mut times = Vec::new();
        for round in 0..rounds {
            eprintln!("{label}, round {} of {rounds}", round + 1);
            let first = native()?;
            let measured: Vec<Times<K>> = measured.iter().map(|job| job(round)).collect::<Result<_, _>>()?;
            let last = native()?;
            // Job order may matter: the base alternates between the first and the last.
            let natives = if round % 2 == 0 { [first, last] } else { [last, first] };
            times.push(natives.into_iter().chain(measured).collect());
        }
        Ok(Rounds(times))
    }

    /// Returns a row for each key measured by all jobs: the fields of `head`, the number of rounds, and `fields`.
    pub(super) fn rows(&self, head: impl Fn(&K) -> Value, fields: &[Field]) -> Vec<Value> {
        let keys = self.0.first().into_iter().flat_map(|jobs| jobs[Job::Native as usize].keys());
        keys.filter_map(|key| self.row(key, head(key), fields)).collect()
    }

    fn row(&self, key: &K, mut row: Value, fields: &[Field]) -> Option<Value> {
        let of_round = |jobs: &Vec<Times<K>>| jobs.iter().map(|times| times.get(key).copied()).collect();
        let times: Vec<Vec<f64>> = self.0.iter().map(of_round).collect::<Option<_>>()?;
        let interval = |value: &dyn Fn(&Vec<f64>) -> f64| Interval::of(&times.iter().map(value).collect::<Vec<f64>>());
        row["rounds"] = json!(times.len());
        for field in fields {
            match *field {
                Field::Time(name, job) => row[name] = json!(interval(&|times| times[job as usize])?.median),
                Field::Ratio(name, job, base) => {
                    let Interval { low, median, high } = interval(&|times| times[job as usize] / times[base as usize])?;
                    row[name] = json!(median);
                    row[format!("{name}_low")] = json!(low);
                    row[format!("{name}_high")] = json!(high);
                }
            }
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
        let [measured, floor] = [4.0, 3.0].map(|time| move |_| Ok(Times::from([(8, time)])));
        let rounds = Rounds::run(6, "test", native, &[&measured, &floor]).unwrap();
        let fields = [
            Field::Time("time", Job::Measured),
            Field::Ratio("ratio", Job::Measured, Job::Native),
            Field::Ratio("above", Job::Measured, Job::Floor),
            Field::Ratio("control", Job::Control, Job::Native),
        ];
        let rows = rounds.rows(|size| json!({ "size": size }), &fields);
        assert_eq!(rows.len(), 1);
        let row = &rows[0];
        assert_eq!((&row["size"], &row["rounds"], &row["time"]), (&json!(8), &json!(6), &json!(4.0)));
        assert_eq!((&row["ratio_low"], &row["ratio"], &row["ratio_high"]), (&json!(2.0), &json!(3.0), &json!(4.0)));
        assert_eq!((&row["control_low"], &row["control_high"]), (&json!(0.5), &json!(2.0)));
        assert_eq!(row["above"], json!(4.0 / 3.0));
    }
}
