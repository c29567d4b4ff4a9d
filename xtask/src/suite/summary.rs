//! Passed and failed test counts, parsed from nextest and `cargo test` output.

use std::fmt;
use std::ops::AddAssign;

/// Test counts.
///
/// A check that does not run tests counts as one.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: u64,
    pub(super) failed: u64,
}

impl Counts {
    /// One passed check.
    pub(super) const PASSED: Self = Self { passed: 1, failed: 0 };
    /// One failed check.
    pub(super) const FAILED: Self = Self { passed: 0, failed: 1 };
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// Sums the summary lines of a test command.
///
/// A command that fails without a failed test (a compile error, a crashed test program) counts as one failure. A
/// command without any test does, too: a filter that matches nothing, or a changed output format, must not count as
/// success.
pub(super) fn count(success: bool, lines: &[String]) -> Counts {
    let total = count_if_any(success, lines);
    if total == Counts::default() { Counts::FAILED } else { total }
}

/// Sums the summary lines like [`count`], except that a successful command without any test counts as none.
pub(super) fn count_if_any(success: bool, lines: &[String]) -> Counts {
    let mut total = Counts::default();
    for counts in lines.iter().filter_map(|line| nextest_summary(line)) {
        total += counts;
    }
    if total == Counts::default() {
        // With nextest, such lines are the output of a failed test, whose summary is counted already.
        for counts in lines.iter().filter_map(|line| cargo_test_summary(line)) {
            total += counts;
        }
    }
    if total.failed == 0 && !success {
        total += Counts::FAILED;
    }
    total
}

/// Parses `Summary [   0.5s] 10/12 tests run: 8 passed (1 slow), 1 failed, 1 timed out, 1 skipped`.
fn nextest_summary(line: &str) -> Option<Counts> {
    let (_, after) = line.trim_start().strip_prefix("Summary [")?.split_once(']')?;
    let (tests, results) = after.split_once(" run: ")?;
    if !(tests.ends_with("tests") || tests.ends_with("test")) {
        return None;
    }
    let mut counts = Counts::default();
    for (number, word) in parse_results(&without_parentheses(results), ',') {
        match word.as_str() {
            "passed" => counts.passed += number,
            "skipped" => {}
            // "failed", "timed out", "exec failed", and results that a later version may add.
            _ => counts.failed += number,
        }
    }
    Some(counts)
}

/// Parses `test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s`.
fn cargo_test_summary(line: &str) -> Option<Counts> {
    let (_, results) = line.trim().strip_prefix("test result: ")?.split_once(". ")?;
    let mut counts = Counts::default();
    for (number, word) in parse_results(results, ';') {
        match word.as_str() {
            "passed" => counts.passed += number,
            "failed" => counts.failed += number,
            _ => {}
        }
    }
    Some(counts)
}

/// Parses a list's `NUMBER WORDS` items and skips all others.
fn parse_results(list: &str, separator: char) -> impl Iterator<Item = (u64, String)> {
    list.split(separator).filter_map(|item| {
        let (number, words) = item.trim().split_once(' ')?;
        Some((number.parse().ok()?, words.trim().to_owned()))
    })
}

fn without_parentheses(text: &str) -> String {
    let mut depth = 0_u32;
    text.chars()
        .filter(|c| {
            match c {
                '(' => depth += 1,
                ')' => {
                    depth = depth.saturating_sub(1);
                    return false;
                }
                _ => {}
            }
            depth == 0
        })
        .collect()
}

/// Number of fuzz bodies passed in a test run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FuzzTests {
    pub(crate) passed: u64,
}

impl FuzzTests {
    /// Counts a package's passed tests in nextest output (one line per test, with the package name) or `cargo test`
    /// output (a heading with the test program's name, then its summary).
    pub(crate) fn count(package: &str, lines: &[String]) -> Self {
        let program = package.replace('-', "_");
        let mut passed = 0;
        let mut in_package = false;
        for line in lines {
            let line = line.trim();
            if let Some(program_line) = line.strip_prefix("Running ") {
                in_package = program_line.contains(&format!("/{program}-"))
                    || program_line.contains(" fuzz/")
                    || program_line.starts_with("fuzz/");
            } else if let Some(counts) = cargo_test_summary(line).filter(|_| in_package) {
                passed += counts.passed;
            } else if is_nextest_pass(line, package) {
                passed += 1;
            }
        }
        Self { passed }
    }
}

impl fmt::Display for FuzzTests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.passed == 1 { "" } else { "s" };
        write!(f, "{} fuzz test{plural} passed", self.passed)
    }
}

/// Matches `PASS [   0.004s] (3/9) counterfoil-fuzz::replay a_test`.
fn is_nextest_pass(line: &str, package: &str) -> bool {
    line.starts_with("PASS [") && line.split_whitespace().any(|word| word.split("::").next() == Some(package))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    fn counts(passed: u64, failed: u64) -> Counts {
        Counts { passed, failed }
    }

    #[test]
    fn a_nextest_run_is_counted_from_its_summary() {
        let output = lines(
            "        PASS [   0.003s] (1/3) counterfoil-gc collector::tests::a\n\
             ────────────\n\
             \x20    Summary [   0.006s] 3 tests run: 3 passed, 0 skipped",
        );
        assert_eq!(count(true, &output), counts(3, 0));
    }

    #[test]
    fn the_output_of_a_failed_test_is_not_counted_again() {
        let output = lines(
            "    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 6 filtered out; finished in 2.11s\n\
             \x20    Summary [   3.2s] 558 tests run: 557 passed, 1 failed, 9 skipped",
        );
        assert_eq!(count(false, &output), counts(557, 1));
    }

    #[test]
    fn every_kind_of_failure_in_a_nextest_summary_counts() {
        let line = "     Summary [   9.1s] 10/14 tests run: 6 passed (1 slow, 2 leaky), \
                    1 failed (1 due to being leaky), 2 timed out, 1 exec failed, 3 skipped";
        assert_eq!(nextest_summary(line), Some(counts(6, 4)));
        let line = "     Summary [   0.1s] 1 test run: 1 passed, 0 skipped";
        assert_eq!(nextest_summary(line), Some(counts(1, 0)));
    }

    #[test]
    fn the_test_programs_of_cargo_test_are_summed() {
        let output = lines(
            "test a ... ok\n\
             test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.00s\n\
             test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
             error: 1 target failed:",
        );
        assert_eq!(count(false, &output), counts(4, 2));
    }

    #[test]
    fn a_command_that_fails_without_a_failed_test_is_one_failure() {
        assert_eq!(count(false, &lines("error: could not compile")), counts(0, 1));
        let crashed = lines("test result: ok. 3 passed; 0 failed; 0 ignored");
        assert_eq!(count(false, &crashed), counts(3, 1));
    }

    #[test]
    fn a_run_in_which_no_test_ran_is_one_failure() {
        assert_eq!(count(true, &lines("   Compiling counterfoil")), counts(0, 1));
        assert_eq!(count_if_any(true, &lines("   Compiling counterfoil")), counts(0, 0));
        assert_eq!(count_if_any(false, &lines("error: could not compile")), counts(0, 1));
        let none = lines("test result: ok. 0 passed; 0 failed; 0 ignored");
        assert_eq!(count(true, &none), counts(0, 1));
    }

    #[test]
    fn lines_that_only_resemble_a_summary_are_not_counted() {
        for line in [
            "Summary of the run: 3 passed",
            "     Summary [ 1s] 3 benchmarks run: 3 passed",
            "test test result: ok ... ok",
            "the test result: ok. 3 passed",
        ] {
            assert_eq!(nextest_summary(line).or(cargo_test_summary(line)), None, "{line}");
        }
    }

    #[test]
    fn fuzz_tests_are_found_in_both_formats() {
        let nextest = lines(
            "        PASS [   0.004s] (1/4) counterfoil-fuzz corpus::header\n\
             \x20       PASS [   0.004s] counterfoil-fuzz::corpora window\n\
             \x20       PASS [   0.004s] counterfoil-gc mentions_fuzz\n\
             \x20       FAIL [   0.004s] counterfoil-fuzz corpus::bad",
        );
        assert_eq!(FuzzTests::count("counterfoil-fuzz", &nextest).passed, 2);
        let cargo = lines(
            "     Running unittests src/lib.rs (target/debug/deps/counterfoil_gc-aa)\n\
             test result: ok. 9 passed; 0 failed\n\
             \x20    Running unittests fuzz/src/lib.rs (target/debug/deps/counterfoil_fuzz-bb)\n\
             test result: ok. 2 passed; 0 failed\n\
             \x20    Running fuzz/tests/corpora.rs (target/debug/deps/corpora-cc)\n\
             test result: ok. 3 passed; 0 failed\n\
             \x20    Running tests/kill.rs (target/debug/deps/kill-dd)\n\
             test result: ok. 7 passed; 0 failed",
        );
        assert_eq!(FuzzTests::count("counterfoil-fuzz", &cargo).passed, 5);
    }
}
