//! What `counterfoil bench` says to people.

use serde_json::Value;

use super::What;

/// What people read: what was measured, the table, and how many of its rows are where they should be.
pub(super) fn report(what: What, rows: &[Value]) -> String {
    let counted = rows.iter().any(|row| row["instructions"].is_number());
    let mut columns: Vec<(&str, &str)> = match what {
        What::Append => vec![
            ("size", "size"),
            ("writers", "writers"),
            ("tier", "tier"),
            ("keep", "keep"),
            ("ns", "ns"),
            ("floor ns", "floor_ns"),
        ],
        What::Replay => vec![
            ("size", "size"),
            ("log bytes", "log_bytes"),
            ("tier", "tier"),
            ("MB/s", "mb_per_s"),
            ("floor MB/s", "floor_mb_per_s"),
        ],
        What::Release => vec![("what", "op"), ("records", "records_per_op"), ("ns", "ns"), ("floor ns", "floor_ns")],
        What::Spill | What::Recover | What::DiskReplay => vec![
            ("backend", "backend"),
            ("block", "block"),
            ("size", "size"),
            ("MB/s", "mb_per_s"),
            ("floor MB/s", "floor_mb_per_s"),
            ("core", "cpu_share"),
            ("unchecked", "cpu_share_without_checksums"),
            ("floor", "floor_cpu_share"),
        ],
        What::Spilling => vec![
            ("size", "size"),
            ("MB/s", "mb_per_s"),
            ("p50 ns", "p50_ns"),
            ("p99", "p99_ns"),
            ("p99.9", "p999_ns"),
            ("control p50", "control_p50_ns"),
            ("p99", "control_p99_ns"),
            ("p99.9", "control_p999_ns"),
        ],
    };
    columns.extend([("ratio", "ratio"), ("quartiles", QUARTILES), ("aim", AIM)]);
    if what == What::Append {
        columns.push(("scaling", "scaling"));
    }
    if counted {
        columns.extend([("instructions", "instructions"), ("floor", "floor_instructions")]);
    }
    let aims: Vec<(f64, Aim)> =
        rows.iter().filter_map(|row| Some((row["ratio"].as_f64()?, Aim::of(what, row)?))).collect();
    let met = aims.iter().filter(|(ratio, aim)| aim.is_met(*ratio)).count();
    let rounds = rows.first().map_or(0, |row| row["rounds"].as_u64().unwrap_or(0));
    format!(
        "{}\n\n{}\n\n{met} of the {} rows with an aim reach it. Medians of {rounds} rounds; the quartiles are the ratio's.",
        explanation(what),
        table(what, rows, &columns),
        aims.len(),
    )
}

fn explanation(what: What) -> &'static str {
    match what {
        What::Append => {
            "append: a message is claimed, written, committed and at last released; time of one message.\n\
             floor:  a header of 16 bytes and a copy of the payload into a ring of 1 MiB, overwritten for ever:\n\
             \x20       no budget, no reader, no acknowledgement. Two writers: two threads with a ring each.\n\
             aim:    1.5 times the floor; two writers 0.9 of the speed of two floors.\n\
             scaling: what each of two writers keeps of one writer's speed, both against as many floors."
        }
        What::Replay => {
            "replay: a cursor goes over the whole lane and copies every payload to a buffer.\n\
             floor:  a copy of the same bytes, message by message, to such a buffer.\n\
             aim:    0.7 of the floor's speed, from 1 KiB on."
        }
        What::Release => {
            "acknowledge: time of one record, where one acknowledgement covers so many; its floor is one store a record.\n\
             advance:     time of freeing one chunk with so many records; its floor is the same with one record.\n\
             aim:         what is freed with 1,000 records in each chunk costs 1.3 times that with one."
        }
        What::Spill => {
            "spill: records of a lane in memory are written as blocks and synced; bytes on the disk.\n\
             floor: io_uring writes blocks of the same size, as many in flight as the store has (8 MiB of them, 8 to 32),\n\
             \x20      past the page cache, to one preallocated file, and syncs it.\n\
             core:  processor time by wall time: of the store, of the store without checksums, of the floor.\n\
             aim:   0.85 of the floor's speed with blocks of 256 KiB and more."
        }
        What::Recover => {
            "recover: a store is opened to write: every block is read and verified.\n\
             floor:   io_uring reads the same files in blocks of the same size, 8 in flight, past the page cache.\n\
             core:    processor time by wall time: of the store, of the store without checksums, of the floor.\n\
             aim:     0.8 of the floor's speed."
        }
        What::DiskReplay => {
            "disk-replay: a log's cursor goes over a lane on disk and copies every payload to a buffer.\n\
             floor:       io_uring reads the same files in blocks of the same size, 8 in flight, past the page cache.\n\
             core:        processor time by wall time: of the store, of the store without checksums, of the floor.\n\
             aim:         0.8 of the floor's speed."
        }
        What::Spilling => {
            "spilling: 64 messages are appended at a time, at a steady rate, while the other core writes the store.\n\
             control:  the same without a store, while the other core copies as many bytes.\n\
             aim:      the slowest batch of a thousand takes 3 times as long as in the control."
        }
    }
}

/// Where a ratio should be.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Aim {
    AtMost(f64),
    AtLeast(f64),
}

impl Aim {
    fn of(what: What, row: &Value) -> Option<Aim> {
        match what {
            What::Append if row["writers"] == 1 => Some(Aim::AtMost(1.5)),
            // 0.9 of the speed, said as a time.
            What::Append => Some(Aim::AtMost(1.0 / 0.9)),
            What::Replay => row["size"].as_u64().filter(|&size| size >= 1024).map(|_| Aim::AtLeast(0.7)),
            // With one record in a chunk it is the floor itself.
            What::Release if row["op"] == "advance" && row["records_per_op"] != 1 => Some(Aim::AtMost(1.3)),
            What::Release => None,
            What::Spill => row["block"].as_u64().filter(|&block| block >= 256 << 10).map(|_| Aim::AtLeast(0.85)),
            What::Recover | What::DiskReplay => Some(Aim::AtLeast(0.8)),
            What::Spilling => Some(Aim::AtMost(3.0)),
        }
    }

    fn is_met(self, ratio: f64) -> bool {
        match self {
            Aim::AtMost(limit) => ratio <= limit,
            Aim::AtLeast(limit) => ratio >= limit,
        }
    }
}

impl std::fmt::Display for Aim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Aim::AtMost(limit) => write!(f, "<= {limit:.2}"),
            Aim::AtLeast(limit) => write!(f, ">= {limit:.2}"),
        }
    }
}

/// Columns that are made of several fields.
const QUARTILES: &str = "(quartiles)";
const AIM: &str = "(aim)";

/// A table with these columns (heading, field), one line a row: words to the left, numbers to the right.
fn table(what: What, rows: &[Value], columns: &[(&str, &str)]) -> String {
    let head: Vec<String> = columns.iter().map(|&(heading, _)| heading.to_owned()).collect();
    let body = rows.iter().map(|row| columns.iter().map(|&(_, field)| cell(what, row, field)).collect());
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

fn cell(what: What, row: &Value, field: &str) -> String {
    match (field, &row[field]) {
        (QUARTILES, _) => format!("{}-{}", cell(what, row, "ratio_p25"), cell(what, row, "ratio_p75")),
        (AIM, _) => Aim::of(what, row).map_or_else(String::new, |aim| aim.to_string()),
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
    fn words_stand_left_and_numbers_right() {
        let rows = [row(64, "volatile", 1, 1.234), row(4096, "x", 1, 2000.0)];
        let columns = [("size", "size"), ("tier", "tier"), ("ratio", "ratio"), ("quartiles", QUARTILES)];
        assert_eq!(
            table(What::Append, &rows, &columns),
            "size  tier      ratio  quartiles\n\
             \x20 64  volatile   1.23  1.23-2.23\n\
             4096  x          2000  2000-2001"
        );
    }

    #[test]
    fn a_report_says_what_the_floor_is_and_how_many_rows_reach_their_aim() {
        let rows = [row(64, "volatile", 1, 1.5), row(64, "volatile", 1, 1.51), row(64, "volatile", 2, 1.2)];
        let report = report(What::Append, &rows);
        assert!(report.contains("floor:") && report.contains("<= 1.50") && report.contains("<= 1.11"), "{report}");
        assert!(report.contains("1 of the 3 rows with an aim reach it. Medians of 15 rounds"), "{report}");
    }

    #[test]
    fn only_some_rows_have_an_aim() {
        let aim = |what, row: Value| Aim::of(what, &row);
        assert_eq!(aim(What::Replay, json!({ "size": 256 })), None);
        assert_eq!(aim(What::Replay, json!({ "size": 1024 })), Some(Aim::AtLeast(0.7)));
        assert_eq!(aim(What::Release, json!({ "op": "acknowledge", "records_per_op": 32 })), None);
        assert_eq!(aim(What::Release, json!({ "op": "advance", "records_per_op": 1 })), None);
        assert_eq!(aim(What::Release, json!({ "op": "advance", "records_per_op": 1000 })), Some(Aim::AtMost(1.3)));
        assert_eq!(aim(What::Spill, json!({ "block": 65536 })), None);
        assert_eq!(aim(What::Spill, json!({ "block": 262_144 })), Some(Aim::AtLeast(0.85)));
        assert!(Aim::AtLeast(0.7).is_met(0.7) && !Aim::AtLeast(0.7).is_met(0.69));
    }
}
