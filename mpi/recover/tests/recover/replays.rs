//! Each rank alone, from the logs of a job.

use std::path::PathBuf;
use std::process::Command;

use counterfoil_runtime::local::SharedJobDirectory;
use counterfoil_settings::recover::{
    CallMark, Ended, KillAtCall, RecoverSettings, ReplayEnd, ReplaySettings, Replayed, read_report,
};
use tempfile::TempDir;

use crate::build::built;
use crate::program::{PROGRAMS, Program, Ran};

/// Job name.
const JOB: &str = "replayed";

/// A job with kept logs.
pub(crate) struct Kept<'a> {
    program: &'a Program,
    settings: RecoverSettings,
    pub(crate) ran: Ran,
    folder: TempDir,
}

impl<'a> Kept<'a> {
    pub(crate) fn run(program: &'a Program, spares: u32, kills: impl IntoIterator<Item = KillAtCall>) -> Kept<'a> {
        Kept::run_with(program, kills, |settings| program.run(spares, settings))
    }

    /// Runs a program in which ranks are killed: replaced by spares, or, on an MPI that doesn't outlive failures, with
    /// the whole job started again.
    pub(crate) fn recover(program: &'a Program, kills: &[KillAtCall]) -> Kept<'a> {
        Kept::run_with(program, kills.iter().copied(), |settings| program.run_killed(settings))
    }

    fn run_with(
        program: &'a Program,
        kills: impl IntoIterator<Item = KillAtCall>,
        run: impl FnOnce(&mut RecoverSettings) -> Ran,
    ) -> Kept<'a> {
        let folder = tempfile::tempdir_in(program.folder.path()).unwrap();
        let reports = folder.path().join("reports");
        std::fs::create_dir(&reports).unwrap();
        let mut settings = RecoverSettings {
            job: Some(JOB.to_owned()),
            shm_root: Some(folder.path().to_owned()),
            checkpoint_root: Some(folder.path().to_owned()),
            keeps_logs: true,
            ..program.settings(&reports, kills)
        };
        let ran = run(&mut settings);
        Kept { program, settings, ran, folder }
    }

    fn report(&self, file: String) -> PathBuf {
        self.settings.report_dir.join(file)
    }

    fn died_in(&self, rank: u32) -> Option<u64> {
        CallMark::parse(&std::fs::read(self.report(CallMark::file(rank))).unwrap())
    }

    /// Replays a rank with these arguments.
    ///
    /// Returns its report and output.
    fn replay(&self, rank: u32, until: Option<u64>, arguments: &[&str]) -> (Replayed, String) {
        let ended: Option<Ended> = read_report(&self.report(Ended::file(rank)));
        let reports = tempfile::tempdir_in(self.program.folder.path()).unwrap();
        let settings = RecoverSettings {
            report_dir: reports.path().to_owned(),
            replay: Some(ReplaySettings {
                rank,
                log_directory: SharedJobDirectory::kept_logs(self.folder.path(), JOB).unwrap(),
                ended: ended.clone(),
                died_in: self.died_in(rank).filter(|_| ended.is_none()),
                until,
                is_debugged: false,
                history: None,
            }),
            ..self.settings.clone()
        };
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "60"]).arg(&self.program.path).args(arguments);
        command.envs(settings.to_replay_env()).env("LD_PRELOAD", built("libcounterfoil_recover.so"));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let report: Option<Replayed> = read_report(&reports.path().join(Replayed::FILE));
        let report = report.unwrap_or_else(|| panic!("rank {rank}: no report: {}: {said}", output.status));
        (report, String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Replays all ranks at once.
    pub(crate) fn expect_all_same(&self) {
        std::thread::scope(|scope| {
            (0..self.program.ranks).for_each(|rank| drop(scope.spawn(move || self.expect_same(rank))));
        });
    }

    /// Replays a rank, which has to do the same to its end.
    fn expect_same(&self, rank: u32) {
        let arguments: Vec<&str> = self.program.arguments.iter().map(String::as_str).collect();
        let (replayed, printed) = self.replay(rank, None, &arguments);
        let name = format!("{} {arguments:?}, rank {rank}", self.program.path.display());
        assert_eq!(replayed.end, ReplayEnd::Same, "{name}: {replayed:?}");
        assert_eq!(Some(&replayed.calls), self.ran.calls.get(&rank), "{name}");
        assert_eq!(printed, self.ran.printed[rank as usize], "{name}");
    }
}

#[test]
fn programs_do_the_same_under_the_library_and_each_of_their_ranks_alone() {
    let programs = PROGRAMS.iter().map(|(name, ranks)| {
        // Open MPI 4 takes one of its non-blocking barriers.
        let arguments: &[_] = if *name == "graphs" { &["1"] } else { &[] };
        Program::of_logging(name, *ranks).with(arguments)
    });
    for program in programs.chain([Program::own("groups", 5), Program::own("clocks", 2)]) {
        let kept = Kept::run(&program, 0, None);
        assert!(kept.ran.output.status.success(), "{}", kept.ran.said());
        program.check_same(&kept.ran, None);
        kept.expect_all_same();
    }
}

#[test]
fn each_rank_of_a_job_that_recovered_does_the_same_alone() {
    let program = Program::own("racy", 4);
    let calls = Kept::run(&program, 0, None).ran.calls;
    for part in 1..=3 {
        let kill = KillAtCall { rank: part, call: calls[&part] * u64::from(part) / 5 };
        let kept = Kept::recover(&program, &[kill]);
        kept.expect_all_same();
    }
}

#[test]
fn a_rank_that_was_killed_does_the_same_up_to_its_last_call() {
    let program = Program::own("steps", 3);
    let calls = Kept::run(&program, 0, None).ran.calls[&1];
    for part in 1..=6 {
        let kill = KillAtCall { rank: 1, call: 1 + (calls - 1) * part / 6 };
        let kept = Kept::run(&program, 0, Some(kill));
        assert_eq!(kept.died_in(1), Some(kill.call), "{}", kept.ran.said());
        let (replayed, printed) = kept.replay(1, None, &[]);
        let call = ["MPI_Recv", "MPI_Send"][kill.call as usize % 2];
        let call = if kill.call == calls { "MPI_Finalize" } else { call };
        let found = (replayed.end, replayed.calls, replayed.call.as_str());
        assert_eq!(found, (ReplayEnd::Died, kill.call, call), "{replayed:?}");
        assert!(replayed.stack.contains("main") || call == "MPI_Finalize", "{replayed:?}");
        assert!(printed.starts_with(&kept.ran.printed[1]), "{printed}");
    }
}

#[test]
fn what_a_rank_does_otherwise_is_found_in_its_call() {
    let program = Program::own("steps", 3);
    let kept = Kept::run(&program, 0, None);
    // Two calls, and then two in each step; `steps.c` changes the third.
    for (change, call, name, why) in [
        ("byte", 7, "MPI_Send", "byte 9 is"),
        ("tag", 7, "MPI_Send", "the tag 9"),
        ("length", 7, "MPI_Send", "it has 16 bytes and had 24"),
        ("swap", 7, "MPI_Send", "message 1 to rank 0 is in no log"),
        ("wait", 43, "MPI_Recv", "a message that no log has"),
        ("more", 44, "MPI_Finalize", "it ends after 44 calls, and ended after 43"),
        ("last", 43, "MPI_Finalize", "it has sent 19 messages with 456 bytes, and had sent 20 with 480"),
        ("abort", 6, "MPI_Recv", "MPI_Abort was called with code 3"),
    ] {
        let (replayed, _) = kept.replay(1, None, &[change]);
        let found = (replayed.end, replayed.calls, replayed.call.as_str());
        assert_eq!(found, (ReplayEnd::Differs, call, name), "{change}: {replayed:?}");
        assert!(replayed.why.contains(why), "{change}: {replayed:?}");
    }
}

#[test]
fn a_program_that_ends_by_itself_does_so_again() {
    for way in ["abort", "exit"] {
        let program = Program::own("ends", 2).with(&[way]);
        let kept = Kept::run(&program, 0, None);
        let (replayed, _) = kept.replay(1, None, &[way]);
        // The call before it.
        let found = (replayed.end, replayed.call.as_str());
        assert_eq!(found, (ReplayEnd::Aborted, "MPI_Barrier"), "{way}: {replayed:?}");
        // A program that continues instead.
        let (replayed, _) = kept.replay(1, None, &["return"]);
        assert_eq!((replayed.end, replayed.call.as_str()), (ReplayEnd::Died, "MPI_Barrier"), "{way}: {replayed:?}");
    }
}

#[test]
fn a_rank_that_was_killed_and_ends_earlier_now_does_something_else() {
    let program = Program::own("steps", 3);
    let kept = Kept::run(&program, 0, Some(KillAtCall { rank: 1, call: 30 }));
    let (replayed, _) = kept.replay(1, None, &["short"]);
    assert_eq!((replayed.end, replayed.call.as_str()), (ReplayEnd::Differs, "MPI_Finalize"), "{replayed:?}");
    assert!(replayed.why.contains("it ends after 9 calls, and had gone on to call 30"), "{replayed:?}");
}

#[test]
fn a_replay_stops_before_a_call() {
    let program = Program::own("steps", 3);
    let kept = Kept::run(&program, 0, None);
    for (until, call) in [(1, "MPI_Comm_rank"), (3, "MPI_Send"), (10, "MPI_Recv")] {
        let (replayed, _) = kept.replay(2, Some(until), &[]);
        assert_eq!((replayed.end, replayed.calls), (ReplayEnd::Until, until), "{replayed:?}");
        assert_eq!(replayed.call, call);
    }
}
