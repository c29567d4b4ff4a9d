//! Programs taking checkpoints: a replacement continues from the last one.

use counterfoil_settings::recover::{KillAtCall, RecoverSettings};

use crate::program::{Program, Ran};
use crate::recovers::reach;
use crate::ulfm::outlives_failures;

/// Runs a program that may take checkpoints; ranks are killed at calls.
fn run(program: &Program, kills: &[KillAtCall]) -> Ran {
    program.killed_with(kills, |settings| RecoverSettings { checkpoints: true, ..settings })
}

/// Runs a program with a rank's kills spread over its calls.
///
/// Each run ends as one without kills.
///
/// Returns the number of times a process continued from a checkpoint.
fn kill_at_calls(program: &Program, kills: u64) -> usize {
    let calls = {
        let ran = run(program, &[]);
        program.check_same(&ran, None);
        ran.calls
    };
    let mut gone_on = 0;
    for part in 1..=kills {
        let rank = (part % u64::from(program.ranks)) as u32;
        let kill = KillAtCall { rank, call: (calls[&rank] * part / (kills + 1)).max(1) };
        reach(&mut [kill], |kills| {
            let ran = run(program, kills);
            program.check_same(&ran, Some(kills[0]));
            gone_on += ran.errors.matches("restarted 1").count();
            ran
        });
    }
    gone_on
}

#[test]
fn a_replacement_goes_on_from_the_last_checkpoint() {
    let program = Program::own("heat", 3).with(&["30", "100", "10"]);
    let gone_on = kill_at_calls(&program, 6);
    // In a job started again, each rank continues from one.
    assert_eq!(gone_on, if outlives_failures() { 6 } else { 18 });
}

#[test]
fn set_up_and_messages_that_wait_are_repeated() {
    let program = Program::own("checkpoints", 4);
    let ran = run(&program, &[]);
    // Each rank says once why.
    for why in
        ["a request is pending, or was made after", "a communicator exists that was made after", "a message is matched"]
    {
        assert_eq!(ran.errors.matches(why).count(), 4, "{}", ran.said());
    }
    assert_eq!(ran.errors.matches("refused 29").count(), 4, "{}", ran.said());
    let gone_on = kill_at_calls(&program, 9);
    // Polls before the set-up may be most of a run's calls.
    assert!(!outlives_failures() || gone_on >= 2, "{gone_on}");
}

#[test]
fn a_rank_is_killed_again_and_others_too() {
    if !outlives_failures() {
        return;
    }
    let program = Program::own("heat", 3).with(&["30", "100", "10"]);
    let kill = |rank, call| KillAtCall { rank, call };
    let kills = [kill(1, 200), kill(1, 230), kill(1, 400), kill(0, 330), kill(2, 1)];
    let ran = run(&program, &kills);
    program.check_same(&ran, Some(kills[0]));
    assert_eq!(ran.replaced(), 5, "{}", ran.said());
    assert!(ran.errors.contains("rank 1 made 30 of 100 steps, restarted 1"), "{}", ran.said());
}

#[test]
fn the_log_of_a_program_that_takes_checkpoints_is_bounded() {
    let mut program = Program::own("heat", 3).with(&["30", "20000", "200"]);
    program.log_bytes = 1 << 20;
    let ran = run(&program, &[]);
    program.check_same(&ran, None);
    // The same without checkpoints.
    let mut program = Program::own("heat", 3).with(&["30", "20000", "0"]);
    program.log_bytes = 1 << 20;
    let ran = program.recovered(0, None);
    assert!(!ran.output.status.success() && ran.errors.contains("the log is full"), "{}", ran.said());
}

#[test]
fn without_the_library_the_calls_do_nothing() {
    let output = Program::own("heat", 2).with(&["30", "100", "10"]).run_plain();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.matches("made 100 of 100 steps, restarted 0").count() == 2, "{text}");
}
