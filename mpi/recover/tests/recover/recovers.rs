//! The same output and exit code as without the library, also when a rank is killed.

use counterfoil_settings::recover::{Ended, KillAtCall, RecoverSettings, read_report};

use crate::compilers::PROGRAMS;
use crate::program::{Program, Ran};
use crate::ulfm::outlives_failures;

#[test]
fn programs_do_the_same_when_a_rank_is_killed() {
    for (name, ranks) in [("point_to_point", 4), ("collectives", 4), ("communicators", 4), ("streams", 3)] {
        kill_at_calls(&Program::of_logging(name, ranks));
    }
}

#[test]
fn programs_do_the_same_in_fortran_when_a_rank_is_killed() {
    for name in ["point_to_point", "collectives", "communicators"] {
        kill_at_calls(&Program::of_logging_in_fortran(name, 4));
    }
}

#[test]
fn a_module_opened_for_its_caller_alone_does_the_same_in_fortran_when_a_rank_is_killed() {
    kill_at_calls(&Program::compile_in_fortran_module("preload/tests/c/collectives.c", 4));
}

#[test]
fn programs_of_a_fortran_compiler_do_the_same() {
    for (source, _) in PROGRAMS {
        let Some(program) = Program::compiled_by_fortran(source, 4) else { return };
        kill_at_calls(&program);
    }
}

/// Runs a program without a kill, and with a kill at some calls.
fn kill_at_calls(program: &Program) {
    let calls = program.expect_same().calls;
    for part in 1..=4 {
        let rank = part % program.ranks;
        let kill = KillAtCall { rank, call: (calls[&rank] * u64::from(part) / 6).max(1) };
        reach(&mut [kill], |kills| program.expect_same_killed(kills[0]));
    }
}

#[test]
fn clocks_are_repeated() {
    let program = Program::own("clocks", 3);
    let calls = program.expect_same().calls;
    for part in 1..=3 {
        let kill = KillAtCall { rank: part - 1, call: calls[&0] * u64::from(part) / 4 };
        reach(&mut [kill], |kills| program.expect_same_killed(kills[0]));
    }
}

#[test]
fn clocks_are_read_by_children_and_while_another_thread_is_in_a_call() {
    Program::own("bystanders", 2).expect_same();
}

#[test]
fn two_threads_in_calls_at_once_end_the_job_with_a_line() {
    let ran = Program::own("bystanders", 2).with(&["both"]).recovered(0, None);
    assert!(!ran.output.status.success(), "{}", ran.said());
    assert!(ran.errors.contains("two threads are in calls of MPI at once"), "{}", ran.said());
}

#[test]
fn memory_that_was_not_written_is_repeated() {
    let program = Program::own("unwritten", 3);
    for call in [20, 40] {
        let ran = program.expect_same_killed(KillAtCall { rank: 1, call });
        assert_eq!(ran.replaced(), 1, "{}", ran.said());
    }
}

#[test]
fn a_replacement_that_sends_other_bytes_ends_the_job_or_goes_on_with_a_warning() {
    if !outlives_failures() {
        return;
    }
    let program = Program::own("unwritten", 3).with(&["pid"]);
    let kill = Some(KillAtCall { rank: 1, call: 20 });
    let ran = program.recovered(1, kill);
    assert!(!ran.output.status.success(), "{}", ran.said());
    let why =
        ["rank 1: the re-execution of this rank diverged: SSN 1 to rank 2", "with --divergence warn, the job goes on"];
    assert!(why.iter().all(|why| ran.errors.contains(why)), "{}", ran.said());
    let reports = tempfile::tempdir().unwrap();
    let settings = RecoverSettings { tolerates_divergence: true, ..program.settings(reports.path(), kill) };
    let ran = program.run(1, &settings);
    program.check_same(&ran, kill);
    assert_eq!(ran.errors.matches("the bytes on record are sent").count(), 1, "{}", ran.said());
    let ended: Ended = read_report(&reports.path().join(Ended::file(1))).unwrap();
    // Two calls, and then one in each step, whose message had left when the call before it returned.
    assert!([17, 18].contains(&ended.sends_diverged), "{ended:?}");
}

#[test]
fn wildcards_and_polls_are_repeated() {
    // The program prints its messages in the order received: two runs differ, a run and its repetition must not.
    let program = Program::own("racy", 4);
    let calls = program.killed(&[]).calls;
    for part in 1..=6 {
        let rank = part % 4;
        let kill = KillAtCall { rank, call: (calls[&rank] * u64::from(part) / 7).max(1) };
        reach(&mut [kill], |kills| {
            let ran = program.killed(kills);
            assert!(
                ran.printed.iter().any(|text| text.contains("racy: consistent on 4 ranks")),
                "{kill:?}: {}",
                ran.said()
            );
            ran
        });
    }
}

/// Runs a program whose ranks are killed before calls, and returns the number of replaced processes.
///
/// A polling rank makes more calls in one run than in another: if all have ended before these, earlier ones are tried.
#[track_caller]
pub(crate) fn reach(kills: &mut [KillAtCall], mut run: impl FnMut(&[KillAtCall]) -> Ran) -> usize {
    loop {
        let ran = run(kills);
        let replaced = ran.replaced();
        if replaced > 0 || kills.iter().all(|kill| kill.call == 1) {
            assert!((1..=kills.len()).contains(&replaced), "{kills:?}: {}", ran.said());
            return replaced;
        }
        kills.iter_mut().for_each(|kill| kill.call = (kill.call / 2).max(1));
    }
}

#[test]
fn exit_codes_are_the_programs_own() {
    let program = Program::own("ends", 2);
    for (argument, code) in [("return", 7), ("abort", 9)] {
        let ran = Program::own("ends", 2).with(&[argument]).recovered(0, None);
        assert_eq!(ran.output.status.code(), Some(code), "{argument}: {}", ran.said());
    }
    let ran = program.with(&["exit"]).recovered(0, None);
    assert!(!ran.output.status.success(), "{}", ran.said());
}

#[test]
fn what_recovery_does_not_have_is_refused_by_name() {
    let ran = Program::own("ends", 2).with(&["window"]).recovered(0, None);
    assert!(!ran.output.status.success(), "{}", ran.said());
    assert!(ran.errors.contains("MPI_Win_create is not available to a program that recovers"), "{}", ran.errors);
    // Before MPI_Init, where the MPI has sessions.
    let ran = Program::own("ends", 2).with(&["session"]).recovered(0, None);
    let said = ran.said();
    let is_refused = said.contains("MPI_Session_init is not available to a program that recovers");
    assert!(is_refused || said.contains("no sessions"), "{said}");
}

#[test]
fn a_rank_that_dies_twice_by_its_own_fault_is_not_replaced_again() {
    if outlives_failures() {
        let ran = Program::own("ends", 2).with(&["crash"]).recovered(3, None);
        assert!(ran.errors.contains("rank 1 has died twice by its own fault"), "{}: {}", ran.said(), ran.errors);
        assert_eq!(ran.replaced(), 1, "{}", ran.errors);
    }
}
