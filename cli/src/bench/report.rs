//! Text output for `counterfoil bench`.

use serde_json::Value;

use super::Benchmark;

/// Formats the explanation, the table, and the number of rows on target.
pub(super) fn report(benchmark: Benchmark, rows: &[Value]) -> String {
    let counted = rows.iter().any(|row| row["instructions"].is_number());
    let mut columns: Vec<(&str, &str)> = match benchmark {
        Benchmark::Append => vec![
            ("size", "size"),
            ("writers", "writers"),
            ("tier", "tier"),
            ("keep", "keep"),
            ("ns", "ns"),
            ("floor ns", "floor_ns"),
        ],
        Benchmark::Replay => vec![
            ("size", "size"),
            ("log bytes", "log_bytes"),
            ("tier", "tier"),
            ("MB/s", "mb_per_s"),
            ("floor MB/s", "floor_mb_per_s"),
        ],
        Benchmark::Release => {
            vec![("what", "op"), ("records", "records_per_op"), ("ns", "ns"), ("floor ns", "floor_ns")]
        }
        Benchmark::Spill | Benchmark::Recover | Benchmark::DiskReplay => vec![
            ("backend", "backend"),
            ("block", "block"),
            ("size", "size"),
            ("MB/s", "mb_per_s"),
            ("floor MB/s", "floor_mb_per_s"),
            ("core", "cpu_share"),
            ("unchecked", "cpu_share_without_checksums"),
            ("floor", "floor_cpu_share"),
        ],
        Benchmark::Spilling => vec![
            ("size", "size"),
            ("MB/s", "mb_per_s"),
            ("p50 ns", "p50_ns"),
            ("p99", "p99_ns"),
            ("p99.9", "p999_ns"),
            ("control p50", "control_p50_ns"),
            ("p99", "control_p99_ns"),
            ("p99.9", "control_p999_ns"),
        ],
        Benchmark::Rules => vec![("program", "program"), ("class", "class"), ("rule", "rule"), ("ms", "ms")],
    };
    columns.extend([("ratio", "ratio"), ("quartiles", QUARTILES)]);
    if rows.iter().any(|row| row["control"].is_number()) {
        columns.extend([("control", "control"), ("quartiles", CONTROL_QUARTILES), ("steady", STEADY)]);
    }
    if benchmark != Benchmark::Rules {
        columns.push(("target", TARGET));
    }
    if benchmark == Benchmark::Append {
        columns.push(("scaling", "scaling"));
    }
    if counted {
        columns.extend([("instructions", "instructions"), ("floor", "floor_instructions")]);
    }
    let targets: Vec<(f64, Target)> = rows
        .iter()
        .filter(|row| is_steady(row))
        .filter_map(|row| Some((row["ratio"].as_f64()?, Target::of(benchmark, row)?)))
        .collect();
    let met = targets.iter().filter(|(ratio, target)| target.is_met(*ratio)).count();
    let rounds = || rows.iter().filter_map(|row| row["rounds"].as_u64());
    let rounds = match (rounds().min(), rounds().max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (least, _) => least.unwrap_or(0).to_string(),
    };
    let met = match targets.len() {
        0 => String::new(),
        all => format!("{met} of {all} rows with a target reach it.\n"),
    };
    let unsteady = match rows.iter().filter(|row| !is_steady(row)).count() {
        0 => String::new(),
        rows => format!("{rows} rows allow no statement: the disk's rate varied too much.\n"),
    };
    format!(
        "{}\n\n{}\n\n{met}{unsteady}Medians of {rounds} rounds; the quartiles are those of the ratio before them.",
        explanation(benchmark),
        table(benchmark, rows, &columns),
    )
}

/// Returns `false` if the row's control differs from its floor.
fn is_steady(row: &Value) -> bool {
    row["is_steady"] != false
}

fn explanation(benchmark: Benchmark) -> &'static str {
    match benchmark {
        Benchmark::Append => {
            "append:  time to claim, write, commit and finally release one message.\n\
             floor:   a 16-byte header and a copy of the payload into a 1 MiB ring that is overwritten forever:\n\
             \x20        no budget, no reader, no acknowledgement. Two writers: two threads with a ring each.\n\
             target:  1.5 times the floor; two writers at 0.9 of the speed of two floors.\n\
             scaling: fraction of one writer's speed that each of two writers keeps, relative to as many floors."
        }
        Benchmark::Replay => {
            "replay: a cursor reads the whole lane and copies every payload to a buffer.\n\
             floor:  a copy of the same bytes, message by message, to such a buffer.\n\
             target: 0.7 of the floor's speed, from 1 KiB on."
        }
        Benchmark::Release => {
            "acknowledge: time per record, with one acknowledgement for so many records; floor: one store per record.\n\
             advance:     time to free one chunk with so many records; floor: a chunk with one record.\n\
             target:      freeing chunks of 1,000 records takes 1.3 times as long as chunks of one."
        }
        Benchmark::Spill => {
            "spill:  records of a lane in memory are written as blocks and synced; size is in bytes on disk.\n\
             floor:  io_uring writes blocks of the same size, bypassing the page cache, to one preallocated file, and\n\
             \x20       syncs it; as many in flight as in the store (8 MiB of them, 8 to 32).\n\
             control: the floor once more, after the store, by the floor before it.\n\
             core:   processor time by wall time: of the store, of the store without checksums, of the floor.\n\
             target: 0.85 of the floor's speed with blocks of 256 KiB and more."
        }
        Benchmark::Recover => {
            "recover: a store is opened for writing; every block is read and verified.\n\
             floor:   io_uring reads the same files in blocks of the same size, 8 in flight, bypassing the page cache.\n\
             core:    processor time by wall time: of the store, of the store without checksums, of the floor.\n\
             target:  0.8 of the floor's speed."
        }
        Benchmark::DiskReplay => {
            "disk-replay: a log's cursor reads a lane on disk and copies every payload to a buffer.\n\
             floor:       io_uring reads the same files in blocks of the same size, 8 in flight, bypassing the page cache.\n\
             core:        processor time by wall time: of the store, of the store without checksums, of the floor.\n\
             target:      0.8 of the floor's speed."
        }
        Benchmark::Spilling => {
            "spilling: batches of 64 messages are appended at a steady rate while the other core writes the store.\n\
             control:  the same without a store, while the other core copies as many bytes.\n\
             target:   the slowest batch in a thousand takes 3 times as long as in the control."
        }
        Benchmark::Rules => {
            "ms:    wall time of a job of two local processes, their start and end included, without failures and checkpoints.\n\
             ratio: this by that of a job under the rule that numbers messages and keeps nothing, in the same round."
        }
    }
}

/// Target ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Target {
    AtMost(f64),
    AtLeast(f64),
}

impl Target {
    fn of(benchmark: Benchmark, row: &Value) -> Option<Target> {
        match benchmark {
            Benchmark::Append if row["writers"] == 1 => Some(Target::AtMost(1.5)),
            // 0.9 times the speed, as a ratio of times.
            Benchmark::Append => Some(Target::AtMost(1.0 / 0.9)),
            Benchmark::Replay => row["size"].as_u64().filter(|&size| size >= 1024).map(|_| Target::AtLeast(0.7)),
            // A chunk with one record is the floor itself.
            Benchmark::Release if row["op"] == "advance" && row["records_per_op"] != 1 => Some(Target::AtMost(1.3)),
            Benchmark::Release => None,
            Benchmark::Spill => {
                row["block"].as_u64().filter(|&block| block >= 256 << 10).map(|_| Target::AtLeast(0.85))
            }
            Benchmark::Recover | Benchmark::DiskReplay => Some(Target::AtLeast(0.8)),
            Benchmark::Spilling => Some(Target::AtMost(3.0)),
            Benchmark::Rules => None,
        }
    }

    fn is_met(self, ratio: f64) -> bool {
        match self {
            Target::AtMost(limit) => ratio <= limit,
            Target::AtLeast(limit) => ratio >= limit,
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::AtMost(limit) => write!(f, "<= {limit:.2}"),
            Target::AtLeast(limit) => write!(f, ">= {limit:.2}"),
        }
    }
}

/// Columns computed from several fields.
const QUARTILES: &str = "(quartiles)";
const TARGET: &str = "(target)";
const CONTROL_QUARTILES: &str = "(control quartiles)";
const STEADY: &str = "(steady)";

/// Formats a table with the given columns (heading, field), one line per row.
///
/// Words are left-aligned, numbers right-aligned.
fn table(benchmark: Benchmark, rows: &[Value], columns: &[(&str, &str)]) -> String {
    let head: Vec<String> = columns.iter().map(|&(heading, _)| heading.to_owned()).collect();
    let body = rows.iter().map(|row| columns.iter().map(|&(_, field)| cell(benchmark, row, field)).collect());
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(body).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let is_word = |field: &str| rows.iter().any(|row| row[field].is_string());
    let written = lines.iter().map(|line| {
        let cells = line.iter().zip(columns).zip(&widths).map(|((cell, (_, field)), &width)| {
            if is_word(field) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    written.collect::<Vec<_>>().join("\n")
}

fn cell(benchmark: Benchmark, row: &Value, field: &str) -> String {
    match (field, &row[field]) {
        (QUARTILES, _) => format!("{}-{}", cell(benchmark, row, "ratio_p25"), cell(benchmark, row, "ratio_p75")),
        (CONTROL_QUARTILES, _) => {
            format!("{}-{}", cell(benchmark, row, "control_p25"), cell(benchmark, row, "control_p75"))
        }
        (STEADY, _) => if is_steady(row) { "yes" } else { "no" }.to_owned(),
        (TARGET, _) => Target::of(benchmark, row).map_or_else(String::new, |target| target.to_string()),
        (_, Value::Null) => "-".to_owned(),
        (_, Value::String(text)) => text.clone(),
        (_, Value::Number(number)) if number.is_f64() => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            if number < 1000.0 { format!("{number:.2}") } else { format!("{number:.0}") }
        }
        (_, other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(size: u64, tier: &str, writers: u64, ratio: f64) -> Value {
        json!({ "size": size, "tier": tier, "writers": writers, "keep": "acked", "ns": 10.0, "floor_ns": 5.25,
            "ratio": ratio, "ratio_p25": ratio, "ratio_p75": ratio + 1.0, "rounds": 15 })
    }

    #[test]
    fn words_are_left_aligned_and_numbers_right_aligned() {
        let rows = [row(64, "volatile", 1, 1.234), row(4096, "x", 1, 2000.0)];
        let columns = [("size", "size"), ("tier", "tier"), ("ratio", "ratio"), ("quartiles", QUARTILES)];
        assert_eq!(
            table(Benchmark::Append, &rows, &columns),
            "size  tier      ratio  quartiles\n\
             \x20 64  volatile   1.23  1.23-2.23\n\
             4096  x          2000  2000-2001"
        );
    }

    #[test]
    fn a_report_explains_the_floor_and_counts_the_rows_that_reach_their_target() {
        let rows = [row(64, "volatile", 1, 1.5), row(64, "volatile", 1, 1.51), row(64, "volatile", 2, 1.2)];
        let report = report(Benchmark::Append, &rows);
        assert!(report.contains("floor:") && report.contains("<= 1.50") && report.contains("<= 1.11"), "{report}");
        assert!(report.contains("1 of 3 rows with a target reach it.\nMedians of 15 rounds"), "{report}");
    }

    #[test]
    fn a_row_of_an_unsteady_disk_is_no_statement() {
        let row = |rounds: u64, is_steady: bool| {
            json!({ "backend": "pwrite", "block": 1 << 20, "size": 1024, "ratio": 0.9, "ratio_p25": 0.8, "ratio_p75": 1.0,
                "control": 1.1, "control_p25": 0.9, "control_p75": 1.3, "is_steady": is_steady, "rounds": rounds })
        };
        let report = report(Benchmark::Spill, &[row(15, true), row(60, false)]);
        assert!(report.contains("1.10  0.90-1.30      no  >= 0.85"), "{report}");
        assert!(report.contains("1 of 1 rows with a target reach it.\n1 rows allow no statement"), "{report}");
        assert!(report.contains("Medians of 15 to 60 rounds"), "{report}");
    }

    #[test]
    fn only_some_rows_have_a_target() {
        let target = |benchmark, row: Value| Target::of(benchmark, &row);
        assert_eq!(target(Benchmark::Replay, json!({ "size": 256 })), None);
        assert_eq!(target(Benchmark::Replay, json!({ "size": 1024 })), Some(Target::AtLeast(0.7)));
        assert_eq!(target(Benchmark::Release, json!({ "op": "acknowledge", "records_per_op": 32 })), None);
        assert_eq!(target(Benchmark::Release, json!({ "op": "advance", "records_per_op": 1 })), None);
        assert_eq!(
            target(Benchmark::Release, json!({ "op": "advance", "records_per_op": 1000 })),
            Some(Target::AtMost(1.3))
        );
        assert_eq!(target(Benchmark::Spill, json!({ "block": 65536 })), None);
        assert_eq!(target(Benchmark::Spill, json!({ "block": 262_144 })), Some(Target::AtLeast(0.85)));
        assert!(Target::AtLeast(0.7).is_met(0.7) && !Target::AtLeast(0.7).is_met(0.69));
    }
}
