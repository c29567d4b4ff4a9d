//! End-to-end tests for the subcommands reproducing the papers' tables and figures.

use std::process::{Command, Output};

use serde_json::Value;

fn counterfoil(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_counterfoil")).args(arguments).output().unwrap()
}

/// Returns the JSON rows printed by a successful command.
fn rows(arguments: &[&str]) -> Vec<Value> {
    let Output { status, stdout, stderr } = counterfoil(&[arguments, &["--json"]].concat());
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    serde_json::from_slice::<Vec<Value>>(&stdout).unwrap()
}

#[test]
fn table_1_has_both_percentages_next_to_the_papers() {
    let rows = rows(&["reproduce", "table-1", "--kernels", "cg", "--ranks", "64", "--iterations", "2"]);
    assert_eq!(rows.len(), 2);
    for (row, clusters) in rows.iter().zip([4, 8]) {
        assert_eq!(
            (&row["kernel"], row["ranks"].as_u64(), row["clusters"].as_u64()),
            (&"CG".into(), Some(64), Some(clusters))
        );
        for percentage in ["logged_pct", "rolled_back_pct"] {
            let [here, paper] =
                [percentage.to_owned(), format!("paper_{percentage}")].map(|field| row[field].as_f64().unwrap());
            assert!((here - paper).abs() < 0.1, "{row}");
        }
    }
}

#[test]
fn figures_1_and_2_roll_back_the_ranks_that_the_paper_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new");
    let rolled_back = |figure: &str| -> Vec<Value> {
        let rows = rows(&["reproduce", figure, "--dir", path.to_str().unwrap()]);
        assert!(rows.iter().all(|row| row["agrees"] == true && row["violation"].is_null()), "{rows:?}");
        rows.iter().map(|row| row["rolled_back"].clone()).collect()
    };
    assert_eq!(rolled_back("figure-1"), [serde_json::json!([0, 1, 2]), serde_json::json!([0, 1, 2, 3])]);
    assert_eq!(rolled_back("figure-2"), [serde_json::json!([1])]);
    for file in ["figure-1-rank-1.svg", "figure-1-rank-3.svg", "figure-2-rank-1.svg"] {
        assert!(std::fs::read_to_string(path.join(file)).unwrap().starts_with("<svg"), "{file}");
    }
}

#[test]
fn figure_8_writes_a_file_per_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new");
    let rows = rows(&["reproduce", "figure-8", "--dir", path.to_str().unwrap()]);
    assert_eq!(rows.len(), 5);
    for row in rows {
        let svg = std::fs::read_to_string(row["file"].as_str().unwrap()).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{row}");
        assert!(row["pairs"].as_u64().unwrap() > 0, "{row}");
    }
}

#[test]
fn factorizations_have_a_row_for_each_protection_and_size() {
    let dir = tempfile::tempdir().unwrap();
    let picture = dir.path().join("cof.svg");
    let rows = rows(&["reproduce", "cof", "--size", "256,384", "--rounds", "1", "--svg", picture.to_str().unwrap()]);
    assert_eq!(rows.len(), 2 * 8);
    let killed: Vec<&Value> = rows.iter().filter(|row| !row["details"].is_null()).collect();
    assert!(killed.len() == 6 && killed.iter().all(|row| row["details"]["restarts"] == 1), "{killed:?}");
    assert!(std::fs::read_to_string(picture).unwrap().contains("time by that without checksums"));
}

#[test]
fn each_survivor_hears_of_a_lost_rank() {
    let dir = tempfile::tempdir().unwrap();
    let picture = dir.path().join("detection.svg");
    let arguments = ["--ranks", "4", "--rounds", "2", "--svg", picture.to_str().unwrap()];
    let rows = rows(&[&["reproduce", "cof-detection"][..], &arguments].concat());
    let killed: Vec<u64> = rows.iter().map(|row| row["killed"].as_u64().unwrap()).collect();
    assert_eq!(killed, [0, 2, 3]);
    for row in &rows {
        let ranks = row["ranks"].as_array().unwrap().iter().map(|rank| rank["rank"].as_u64().unwrap());
        assert!(ranks.eq((0..4).filter(|rank| row["killed"] != *rank)), "{row}");
        assert!(row["ms"]["high"].as_f64().unwrap() >= row["ms"]["median"].as_f64().unwrap(), "{row}");
    }
    assert!(std::fs::read_to_string(picture).unwrap().contains("rank that hears of it"));
}

#[test]
fn scale_has_a_row_per_torus_and_arrangement_and_draws_a_plot() {
    let dir = tempfile::tempdir().unwrap();
    let plot = dir.path().join("line.svg");
    let rows = rows(&["simulate", "scale", "--ranks", "100,400", "--clusters", "4", "--svg", plot.to_str().unwrap()]);
    assert_eq!(rows.len(), 2 * (2 + 3 + 3));
    for row in rows {
        let rolled_back = row["rolled_back_pct"].as_f64().unwrap();
        assert!((25.0..=75.0).contains(&rolled_back) && row["line_s_median"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert!(std::fs::read_to_string(plot).unwrap().contains("4 neighbours (2-D)"));
}

#[test]
fn invalid_arguments_are_usage_errors() {
    for arguments in [
        &["reproduce", "table-1", "--kernels", "ep"][..],
        &["reproduce", "table-1", "--ranks", "100"],
        &["reproduce", "figure-8"],
        &["reproduce", "figure-7", "--workload", "master-worker"],
        &["reproduce", "figure-7", "--workload", "cg", "--ranks", "3"],
        &["reproduce", "figure-7", "--class", "Z"],
        &["reproduce", "figure-8", "--dir", "/dev/null/x", "--ranks", "16", "--clusters", "17"],
        &["reproduce", "figure-8", "--dir", "/dev/null/x", "--ranks", "100", "--clusters", "65"],
        &["reproduce", "cof", "--grid", "2x1"],
        &["reproduce", "cof", "--size", "1"],
        &["reproduce", "cof-detection", "--ranks", "2"],
        &["simulate", "scale", "--ranks", "7", "--axes", "2", "--clusters", "4"],
        &["simulate", "scale", "--ranks", "1000001", "--state-machines"],
        &["simulate", "scale", "--axes", "1", "--arrangements", "boxes"],
    ] {
        assert_eq!(counterfoil(arguments).status.code(), Some(2), "{arguments:?}");
    }
    let unwritable = counterfoil(&["reproduce", "figure-8", "--dir", "/dev/null/x"]);
    assert_eq!(unwritable.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unwritable.stderr).contains("/dev/null/x"));
}
