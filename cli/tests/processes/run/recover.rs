//! `counterfoil run --recover`: an unmodified C program with killed ranks, from inside and from outside.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use counterfoil_test_support::{child, note_untested};
use rustix::process::Signal;
use serde_json::Value;

use super::sandbox::{Sandbox, mpi_available};
use crate::program::{is_alive, send, wait_until};

/// Each rank exchanges numbers around a ring, adds them up over all ranks, and prints what it has from time to time.
const STEPS: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int rank, ranks, steps = atoi(argv[1]);
    long sum, in;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    sum = rank;
    if (argc > 2) printf("rank %d begins\n", rank);
    for (int i = 0; i < steps; i++) {
        MPI_Sendrecv(&sum, 1, MPI_LONG, (rank + 1) % ranks, 1, &in, 1, MPI_LONG, (rank + ranks - 1) % ranks, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        sum = (sum * 31 + in + i) % 1000003;
        if (i % (steps / 10) == 0) {
            long all;
            MPI_Allreduce(&sum, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
            printf("rank %d step %d sum %ld of %ld\n", rank, i, sum, all);
        }
    }
    MPI_Finalize();
    return argc > 2 ? atoi(argv[2]) : 0;
}
"#;

/// Each rank reads the clock in each step, which must not go back.
const CLOCK: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, back = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double last = MPI_Wtime();
    for (int i = 0; i < 300; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double now = MPI_Wtime();
        back += now < last;
        last = now;
        usleep(1000);
    }
    printf("rank %d: %d times back\n", rank, back);
    MPI_Finalize();
    return 0;
}
"#;

/// Returns a directory with the program, if there is an MPI, and `true` if the MPI outlives failures (Open MPI 5).
fn sandbox() -> Option<(Sandbox, bool)> {
    let sandbox = mpi_available().then(Sandbox::new)?;
    sandbox.compile("steps", STEPS);
    let run = |spares| {
        let probed = sandbox.counterfoil(&["run", "-n", "1", "--recover", "--spares", spares, "--", "./steps", "10"]);
        probed.code == Some(0)
    };
    assert!(run("0"), "a program without failures");
    let outlives = run("1");
    Some((sandbox, outlives))
}

/// Runs the program without failures, where possible without recovery; returns its output.
fn plain(sandbox: &Sandbox, ranks: &str, arguments: &[&str]) -> String {
    let run = |options: &[&str]| {
        sandbox.counterfoil(&[&["run", "-n", ranks, "--json"], options, &["--", "./steps"], arguments].concat())
    };
    let mut output = run(&[]);
    if output.stderr.contains("a program can be run with --recover") {
        output = run(&["--recover"]);
    }
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    output.stdout
}

/// Returns the number of processes of all ranks listed in a summary, and the number of new starts.
fn processes(summary: &Value) -> (usize, u64) {
    let of_rank = |rank: &Value| rank["processes"].as_array().unwrap().len();
    (summary["ranks"].as_array().unwrap().iter().map(of_rank).sum(), summary["restarts"].as_u64().unwrap())
}

/// Returns an output's lines, sorted: there is no order between ranks.
fn lines(output: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn a_killed_rank_is_replaced_and_each_line_is_printed_once() {
    let Some((sandbox, outlives)) = sandbox() else { return };
    let plain = plain(&sandbox, "4", &["2000"]);
    for kill in ["0@1", "1@900", "3@1900"] {
        let arguments = ["run", "-n", "4", "--recover", "--kill", kill, "--json", "--", "./steps", "2000"];
        let output = sandbox.counterfoil(&arguments);
        assert_eq!(output.code, Some(0), "{kill}: {}", output.stderr);
        assert_eq!(lines(&output.stdout), lines(&plain), "{kill}: {}", output.stderr);
        let (all, restarts) = processes(&output.summary());
        let is_replaced = if outlives { (all, restarts) == (5, 0) } else { restarts == 1 };
        assert!(is_replaced, "{kill}: {}", output.stderr);
        let rank: usize = kill[..1].parse().unwrap();
        let recovery = &output.summary()["ranks"][rank]["processes"][1]["recovery_ms"];
        let steps = ["repair", "start", "replay", "catch_up"].map(|step| recovery[step].as_f64());
        // A process that dies before its first message has nothing to catch up with before the next.
        assert_eq!(steps.map(|step| step.is_some()), [outlives, true, true, true], "{kill}: {}", output.stderr);
    }
    assert!(sandbox.remaining_jobs().is_empty());
}

#[test]
fn a_program_goes_on_from_the_checkpoints_that_it_takes() {
    let Some((sandbox, outlives)) = sandbox() else { return };
    sandbox.compile_recovering("heat");
    let run = |options: &[&str]| {
        let arguments = [&["run", "-n", "3", "--recover", "--json"], options, &["--", "./heat", "50", "200", "20"]];
        let output = sandbox.counterfoil(&arguments.concat());
        assert_eq!(output.code, Some(0), "{options:?}: {}", output.stderr);
        output
    };
    let plain = run(&[]);
    for kill in ["1@30", "0@700", "2@1000"] {
        let output = run(&["--kill", kill]);
        assert_eq!(output.stdout, plain.stdout, "{kill}: {}", output.stderr);
        let (all, restarts) = processes(&output.summary());
        assert!(if outlives { (all, restarts) == (4, 0) } else { restarts == 1 }, "{kill}: {}", output.stderr);
        // Processes begun anew: all of them if the job is restarted.
        let gone_on = output.stderr.matches("restarted 1").count();
        assert_eq!(gone_on, if outlives { 1 } else { 3 }, "{kill}: {}", output.stderr);
        let repeats_all = output.stderr.contains("made 200 of 200 steps, restarted 1");
        assert_eq!(repeats_all, kill == "1@30", "{kill}: {}", output.stderr);
    }
    // With other rules its checkpoints aren't taken.
    let output = run(&["--protocol", "user-level"]);
    assert!(
        output.stderr.contains("under the user-level rule the program's checkpoints are not taken"),
        "{}",
        output.stderr
    );
    assert!(sandbox.remaining_jobs().is_empty());
}

#[test]
fn ranks_may_be_killed_from_outside_one_after_the_other() {
    let Some((sandbox, outlives)) = sandbox() else { return };
    let plain = plain(&sandbox, "3", &["60000", "0"]);
    let spares = if outlives { "2" } else { "0" };
    let arguments = ["run", "-n", "3", "--recover", "--spares", spares, "--json", "--", "./steps", "60000", "0"];
    let mut command = sandbox.command(&arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut printed = String::new();
    let mut killed = Vec::new();
    while output.read_line(&mut printed).unwrap() > 0 {
        // Kills a working rank, twice.
        if killed.len() < 2 && printed.lines().count() == 4 + 4 * killed.len() {
            let ranks = ranks_of(&sandbox);
            let victim = ranks.into_iter().find(|pid| !killed.contains(pid));
            killed.extend(victim.inspect(|pid| send(*pid, Signal::KILL)));
        }
    }
    let ended = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert_eq!((ended.status.code(), killed.len()), (Some(0), 2), "{stderr}");
    assert_eq!(lines(&printed), lines(&plain), "{stderr}");
    let summary: Value = serde_json::from_str(stderr.lines().last().unwrap()).unwrap();
    let ranks = summary["ranks"].as_array().unwrap().iter();
    let processes = ranks.flat_map(|rank| rank["processes"].as_array().unwrap());
    let noticed = processes.filter_map(|process| process["recovery_ms"]["detect"].as_f64());
    assert_eq!(noticed.filter(|ms| (0.0..10_000.0).contains(ms)).count(), if outlives { 2 } else { 0 }, "{stderr}");
}

/// Prints lines, and waits for the other ranks, and a moment, from time to time: the command copies the output,
/// and on a busy machine it may be late.
const TALK: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, lines = atoi(argv[1]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int line = 0; line < lines; line++) {
        printf("rank %d: line %d of a program that says much, and says it again and again\n", rank, line);
        if (line % 1000 == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            usleep(10000);
        }
    }
    MPI_Finalize();
    return 0;
}
"#;

#[test]
fn ranks_may_print_more_than_there_is_room_for() {
    if mpi_available() {
        child::run_on_a_small_disk("run::recover::on_a_disk_of_20_mb", Path::new(env!("CARGO_TARGET_TMPDIR")));
    }
}

#[test]
#[ignore = "run by ranks_may_print_more_than_there_is_room_for"]
fn on_a_disk_of_20_mb() {
    let (sandbox, disk) = (Sandbox::new(), child::argument());
    sandbox.compile("talk", TALK);
    let run =
        |lines| sandbox.counterfoil(&["run", "-n", "2", "--recover", "--shared-dir", &disk, "--", "./talk", lines]);
    // 45 MB.
    let output = run("300000");
    assert_eq!((output.code, output.stdout.lines().count()), (Some(0), 600_000), "{}", output.stderr);
    std::fs::write(Path::new(&disk).join("full"), vec![1; 20_000_000]).unwrap();
    let output = run("10");
    assert!(output.code != Some(0), "{}", output.stderr);
    let why = "its file system has no room for what the ranks print, so the job was ended";
    assert!(output.stderr.contains(why), "{}", output.stderr);
}

/// Returns the program's processes in a sandbox, ascending: mpirun starts the ranks first.
fn ranks_of(sandbox: &Sandbox) -> Vec<u32> {
    let path = sandbox.path().join("steps");
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
    let is_here = |pid: &u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == path);
    let mut found: Vec<u32> = pids.filter(is_here).collect();
    found.sort_unstable();
    found
}

/// Rank 0 takes messages from any rank: two that race, and then one whose sender had waited for the first.
const RACES: &str = r#"
#include <mpi.h>

int main(int argc, char **argv) {
    int rank, value = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        MPI_Status status;
        for (int i = 0; i < 2; i++) MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &status);
        MPI_Send(&value, 1, MPI_INT, 2, 2, MPI_COMM_WORLD);
        MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    } else {
        MPI_Send(&rank, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
        if (rank == 2) {
            MPI_Recv(&value, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&rank, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
        }
    }
    MPI_Finalize();
    return 0;
}
"#;

#[test]
fn receives_that_could_have_taken_another_message_are_found() {
    let Some((sandbox, _)) = sandbox() else { return };
    sandbox.compile("races", RACES);
    sandbox.compile("differs", DIFFERS);
    let ran = sandbox.counterfoil(&["run", "-n", "3", "--recover", "--log-dir", "logs", "--", "./races"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let checked = sandbox.counterfoil(&["check", "logs", "--json"]);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    let found: Value = serde_json::from_str(&checked.stdout).unwrap();
    let counts = &found["ranks"][0]["counts"];
    assert_eq!((counts["wildcards"].as_u64(), counts["with_choice"].as_u64()), (Some(3), Some(1)), "{found}");
    let choice = &found["choices"][0];
    // After MPI_Comm_rank.
    assert_eq!((choice["place"]["call"].as_u64(), choice["place"]["name"].as_str()), (Some(2), Some("MPI_Recv")));
    let both = [choice["taken"].as_u64().unwrap(), choice["others"][0].as_u64().unwrap()];
    assert!(both == [1, 2] || both == [2, 1], "{found}");
    let text = sandbox.counterfoil(&["check", "logs", "--", "./races"]);
    assert!(text.stdout.contains("rank 0, call 2, MPI_Recv: took the message of rank"), "{}", text.stdout);
    for (arguments, said) in [
        (&["check", "none"][..], "none: No such file"),
        (&["check", "."], "counterfoil run --recover --log-dir"),
        (&["check", "logs", "--", "./absent"], "cannot run ./absent"),
        (&["check", "logs", "--", "./differs"], "rank 0 does something else in call 2, MPI_Sendrecv"),
    ] {
        sandbox.counterfoil(arguments).assert_exit(if said.starts_with("cannot") { 1 } else { 2 }, said);
    }
}

#[test]
fn a_full_log_ends_the_job_at_once_and_says_what_helps() {
    let Some((sandbox, _)) = sandbox() else { return };
    let run = sandbox.counterfoil(&["run", "-n", "2", "--recover", "--budget", "4MiB", "--", "./steps", "300000", "0"]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("the log is full"), "{}", run.stderr);
    assert!(run.stderr.contains("--budget gives the log of each rank more memory"), "{}", run.stderr);
    assert!(!run.stderr.contains("full_wait_max"), "it has waited: {}", run.stderr);
}

#[test]
fn a_log_larger_than_its_memory_goes_on_on_disk() {
    let Some((sandbox, outlives)) = sandbox() else { return };
    sandbox.compile_recovering("exchange");
    let run = |options: &[&str]| {
        let program = ["--", "./exchange", "200", "262144", "1"];
        let output = sandbox.counterfoil(&[&["run", "-n", "2", "--recover", "--json"], options, &program].concat());
        assert_eq!(output.code, Some(0), "{options:?}: {}", output.stderr);
        output
    };
    let plain = run(&[]);
    for kill in ["1@600", "0@1300"] {
        // Each rank sends 50 MiB.
        let spilling = ["--tier", "node-local", "--budget", "20MiB", "--disk-budget", "256MiB", "--kill", kill];
        let output = run(&spilling);
        assert_eq!(output.stdout, plain.stdout, "{kill}: {}", output.stderr);
        let (all, restarts) = processes(&output.summary());
        assert!(if outlives { (all, restarts) == (3, 0) } else { restarts == 1 }, "{kill}: {}", output.stderr);
    }
    assert!(sandbox.remaining_jobs().is_empty());
}

/// Sends its process id to the other rank, each step.
const DIFFERS: &str = r#"
#include <mpi.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, received;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int step = 0; step < 20; step++) {
        int sent = getpid();
        MPI_Sendrecv(&sent, 1, MPI_INT, !rank, 0, &received, 1, MPI_INT, !rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
"#;

#[test]
fn a_replacement_that_sends_other_bytes_ends_the_job_or_goes_on() {
    let Some((sandbox, _)) = sandbox() else { return };
    sandbox.compile("differs", DIFFERS);
    let run = |options: &[&str]| {
        let common = ["run", "-n", "2", "--recover", "--kill", "1@12"];
        sandbox.counterfoil(&[&common, options, &["--", "./differs"]].concat())
    };
    let stopped = run(&[]);
    assert_eq!(stopped.code, Some(1), "{}", stopped.stderr);
    assert!(stopped.stderr.contains("with --divergence warn, the job goes on"), "{}", stopped.stderr);
    let warned = run(&["--divergence", "warn"]);
    assert_eq!(warned.code, Some(0), "{}", warned.stderr);
    assert!(warned.stderr.contains("messages with other bytes than are on record"), "{}", warned.stderr);
    let counted = run(&["--divergence=warn", "--json"]);
    let of_rank = counted.summary()["ranks"][1]["sends_diverged"].as_u64();
    assert!(of_rank.is_some_and(|sends| (1..=12).contains(&sends)), "{}", counted.stderr);
    let wrong = run(&["--divergence", "never"]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("stop|warn"), "{}", wrong.stderr);
}

#[test]
fn a_job_whose_ranks_are_all_killed_is_started_again() {
    let Some((sandbox, _)) = sandbox() else { return };
    let plain = plain(&sandbox, "2", &["2000"]);
    // Each rank has what it needs to get there.
    let kills = ["--kill", "0@900", "--kill", "1@900"];
    let job = [&["run", "-n", "2", "--recover", "--spares", "0", "--json"], &kills[..], &["--", "./steps", "2000"]];
    let output = sandbox.counterfoil(&job.concat());
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(lines(&output.stdout), lines(&plain), "{}", output.stderr);
    assert_eq!(output.summary()["restarts"], 1, "{}", output.stderr);
}

#[test]
fn the_exit_code_is_the_programs_also_after_a_kill() {
    let Some((sandbox, _)) = sandbox() else { return };
    for kill in [&[][..], &["--kill", "1@50"]] {
        let arguments = [&["run", "-n", "2", "--recover"], kill, &["--", "./steps", "100", "6"]].concat();
        let output = sandbox.counterfoil(&arguments);
        assert_eq!(output.code, Some(6), "{kill:?}: {}", output.stderr);
    }
}

#[test]
fn a_rank_that_dies_by_its_own_fault_ends_the_job_with_its_signal() {
    let Some((sandbox, outlives)) = sandbox() else { return };
    sandbox.compile(
        "crash",
        "#include <mpi.h>\n#include <signal.h>\nint main(int argc, char **argv) { int rank; MPI_Init(&argc, &argv); \
         MPI_Comm_rank(MPI_COMM_WORLD, &rank); if (rank == 1) raise(SIGSEGV); MPI_Barrier(MPI_COMM_WORLD); \
         MPI_Finalize(); return 0; }",
    );
    let spares = if outlives { "3" } else { "0" };
    let output = sandbox.counterfoil(&["run", "-n", "2", "--recover", "--spares", spares, "--", "./crash"]);
    // Exit code of a shell, or of MPICH's launcher.
    assert!([Some(128 + 11), Some(11)].contains(&output.code), "{}", output.stderr);
    let is_named = output.stderr.contains("rank 1 has died twice by its own fault, signal 11");
    assert_eq!(is_named, outlives, "{}", output.stderr);
}

#[test]
fn without_a_spare_the_job_is_started_again_and_goes_on() {
    let Some((sandbox, _)) = sandbox() else { return };
    let plain = plain(&sandbox, "3", &["2000"]);
    let arguments =
        ["run", "-n", "3", "--recover", "--spares", "0", "--kill", "1@1500", "--json", "--", "./steps", "2000"];
    let output = sandbox.counterfoil(&arguments);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(lines(&output.stdout), lines(&plain), "{}", output.stderr);
    assert_eq!(output.summary()["restarts"], 1, "{}", output.stderr);
}

#[test]
fn a_job_that_a_rank_has_ended_leaves_no_files() {
    let Some((sandbox, _)) = sandbox() else { return };
    sandbox.compile(
        "abort",
        "#include <mpi.h>\nint main(int argc, char **argv) { int rank; MPI_Init(&argc, &argv); \
         MPI_Comm_rank(MPI_COMM_WORLD, &rank); if (rank == 1) MPI_Abort(MPI_COMM_WORLD, 3); \
         MPI_Barrier(MPI_COMM_WORLD); MPI_Finalize(); return 0; }",
    );
    for _ in 0..5 {
        let output = sandbox.counterfoil(&["run", "-n", "4", "--recover", "--", "./abort"]);
        assert_eq!(output.code, Some(3), "{}", output.stderr);
        assert!(sandbox.remaining_jobs().is_empty(), "{:?}: {}", sandbox.remaining_jobs(), output.stderr);
    }
}

#[test]
fn the_clock_never_goes_back() {
    let Some((sandbox, outlives)) = sandbox() else { return };
    sandbox.compile("clock", CLOCK);
    for spares in if outlives { &["1", "0"][..] } else { &["0"] } {
        let kill = ["--spares", spares, "--kill", "0@250"];
        let arguments = [&["run", "-n", "2", "--recover"], &kill[..], &["--json", "--", "./clock"]].concat();
        let output = sandbox.counterfoil(&arguments);
        assert_eq!(output.code, Some(0), "{spares} spares: {}", output.stderr);
        assert_eq!(lines(&output.stdout), ["rank 0: 0 times back", "rank 1: 0 times back"], "{spares} spares");
        let restarts = &output.summary()["restarts"];
        assert_eq!(*restarts, u64::from(*spares == "0"), "{spares} spares: {}", output.stderr);
    }
}

#[test]
fn processes_may_be_killed_at_any_time_and_in_mpi_init() {
    let Some((sandbox, _)) = sandbox() else { return };
    let plain = plain(&sandbox, "2", &["20000"]);
    // At 0 ms, no process has started.
    let times = [["0@0ms", "1@0ms"], ["0@100ms", "1@100ms"], ["1@300", "1@900ms"]];
    for kills in times.map(|[first, second]| ["--kill", first, "--kill", second]) {
        let arguments = [&["run", "-n", "2", "--recover"], &kills[..], &["--json", "--", "./steps", "20000"]].concat();
        let output = sandbox.counterfoil(&arguments);
        assert_eq!(output.code, Some(0), "{kills:?}: {}", output.stderr);
        assert_eq!(lines(&output.stdout), lines(&plain), "{kills:?}: {}", output.stderr);
        let (all, restarts) = processes(&output.summary());
        // Without spares for both, or killed before they were ranks, the job is started again.
        assert!(all > 2 || restarts > 0, "{kills:?}: {}", output.stderr);
    }
}

#[test]
fn a_program_that_ends_before_mpi_init_is_not_started_again() {
    let Some((sandbox, _)) = sandbox() else { return };
    // For a killed process, each launcher returns another code.
    for (script, codes) in [("exit 3", [3; 3]), ("kill -9 $$", [1, 9, 137])] {
        let count = sandbox.path().join("starts");
        let script = format!("echo x >> {}; {script}", count.display());
        let output = sandbox.counterfoil(&["run", "-n", "1", "--recover", "--spares", "0", "--", "sh", "-c", &script]);
        assert!(output.code.is_some_and(|code| codes.contains(&code)), "{script}: {}", output.stderr);
        assert!(output.stderr.contains("no process of the job has become a rank"), "{script}: {}", output.stderr);
        assert_eq!(std::fs::read_to_string(&count).unwrap().lines().count(), 1, "{script}: {}", output.stderr);
        std::fs::remove_file(&count).unwrap();
    }
}

#[test]
fn what_recovery_can_not_do_is_refused_before_anything_starts() {
    let Some((sandbox, _)) = sandbox() else { return };
    for (arguments, code, what) in [
        (&["run", "--recover", "--", "./steps", "10"][..], 2, "--recover needs -n"),
        (&["run", "-n", "2", "--recover", "--kill", "2@1", "--", "./steps", "10"], 2, "the ranks are 0 to 1"),
        (&["run", "-n", "2", "--recover", "--kill", "1", "--", "./steps", "10"], 2, "R@CALL"),
        (&["run", "-n", "2", "--recover", "--kill", "1@2m", "--", "./steps", "10"], 2, "R@TIME"),
        (&["run", "-n", "2", "--spares", "1", "--", "./steps", "10"], 2, "--recover"),
        (&["run", "-n", "2", "--recover", "--keep", "acked", "--", "./steps", "10"], 2, "--keep: a job that recovers"),
        (&["run", "-n", "2", "--recover", "--protocol", "coordinated", "--", "./steps", "10"], 2, "sender-based"),
        (
            &["run", "-n", "2", "--recover", "--log-dir", "logs", "--tier", "volatile", "--", "./steps", "10"],
            2,
            "--tier process-crash-safe",
        ),
        (&["replay", "--rank", "0", "none", "--", "./steps", "10"], 2, "none: No such file"),
        (&["replay", "--rank", "0", ".", "--", "./steps", "10"], 2, "counterfoil run --recover --log-dir"),
    ] {
        sandbox.counterfoil(arguments).assert_exit(code, what);
    }
}

/// Returns the lines printed by a rank.
fn lines_of(rank: u32, output: &str) -> Vec<&str> {
    let begin = format!("rank {rank} ");
    output.lines().filter(|line| line.starts_with(&begin)).collect()
}

#[test]
fn a_rank_is_replayed_alone_from_the_logs_of_a_job() {
    let Some((sandbox, _)) = sandbox() else { return };
    let job = ["run", "-n", "3", "--recover", "--kill", "1@900", "--log-dir", "logs", "--", "./steps", "2000"];
    let ran = sandbox.counterfoil(&job);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("counterfoil replay --rank R"), "{}", ran.stderr);
    for rank in 0..3 {
        let number = rank.to_string();
        let replayed = sandbox.counterfoil(&["replay", "--rank", &number, "logs", "--json", "--", "./steps", "2000"]);
        assert_eq!(replayed.code, Some(0), "{}", replayed.stderr);
        assert_eq!(lines_of(rank, &replayed.stdout), lines_of(rank, &ran.stdout), "{}", replayed.stderr);
        assert_eq!(replayed.summary()["replayed"]["end"], "same", "{}", replayed.stderr);
    }
    // Another number of steps: the job was run with 2000.
    let other = sandbox.counterfoil(&["replay", "--rank", "1", "logs", "--", "./steps", "1000"]);
    assert_eq!(other.code, Some(1), "{}", other.stderr);
    assert!(other.stderr.contains("the job was run with `./steps 2000`"), "{}", other.stderr);
    assert!(other.stderr.contains("rank 1 does something else in call"), "{}", other.stderr);
    let none = sandbox.counterfoil(&["replay", "--rank", "3", "logs", "--", "./steps", "2000"]);
    none.assert_exit(2, "the ranks are 0 to 2");
    let taken = sandbox.counterfoil(&job);
    taken.assert_exit(2, "logs of another job");
    // In another place, as a copy would be.
    std::fs::rename(sandbox.path().join("logs"), sandbox.path().join("moved")).unwrap();
    let moved = sandbox.counterfoil(&["replay", "--rank", "2", "moved", "--json", "--", "./steps", "2000"]);
    assert_eq!(moved.summary()["replayed"]["end"], "same", "{}", moved.stderr);
}

#[test]
fn a_rank_of_a_job_that_was_killed_is_replayed_up_to_where_it_died() {
    let Some((sandbox, _)) = sandbox() else { return };
    let job = ["run", "-n", "3", "--recover", "--log-dir", "logs", "--", "./steps", "60000", "0"];
    let mut child = sandbox.command(&job).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut printed = String::new();
    while printed.lines().count() < 6 {
        assert!(output.read_line(&mut printed).unwrap() > 0, "the job has ended: {printed}");
    }
    let ranks = ranks_of(&sandbox);
    // The command first, which would restart the job. It is the child of `timeout`.
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    send(children.trim().parse().unwrap(), Signal::KILL);
    child.wait().unwrap();
    ranks.iter().for_each(|pid| send(*pid, Signal::KILL));
    // Until it has exited, a process has its log open.
    wait_until("the ranks have exited", || !ranks.iter().any(|pid| is_alive(*pid)));
    for rank in ["0", "1", "2"] {
        let replayed =
            sandbox.counterfoil(&["replay", "--rank", rank, "logs", "--json", "--", "./steps", "60000", "0"]);
        assert_eq!(replayed.code, Some(0), "{}", replayed.stderr);
        let summary = replayed.summary();
        assert!(["died", "record-ends"].contains(&summary["replayed"]["end"].as_str().unwrap()), "{summary}");
        assert!(summary["replayed"]["stack"].as_str().unwrap().contains("main"), "{summary}");
        let printed = lines_of(rank.parse().unwrap(), &printed);
        assert!(replayed.stdout.lines().take(printed.len()).eq(printed.iter().copied()), "{}", replayed.stdout);
    }
}

#[test]
fn a_debugger_gets_control_where_the_replay_stops() {
    let Some((sandbox, _)) = sandbox() else { return };
    if std::process::Command::new("gdb").arg("--version").output().is_err() {
        note_untested("a replay under gdb: it is not installed");
        return;
    }
    let job = ["run", "-n", "2", "--recover", "--log-dir", "logs", "--", "./steps", "200"];
    assert_eq!(sandbox.counterfoil(&job).code, Some(0));
    let mut command =
        sandbox.command(&["replay", "--rank", "1", "--gdb", "--until", "20", "logs", "--", "./steps", "200"]);
    let script = sandbox.path().join("script");
    for (commands, end) in
        [("backtrace\ncontinue\n", "did the same again, to its end"), ("backtrace\n", "stands before call 20")]
    {
        std::fs::write(&script, format!("{commands}quit\n")).unwrap();
        let ended = command.stdin(std::fs::File::open(&script).unwrap()).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains("SIGTRAP") && said.contains("main ("), "{said}");
        assert!(said.contains(end), "{said}");
        assert_eq!(ended.status.code(), Some(0), "{said}");
    }
}
