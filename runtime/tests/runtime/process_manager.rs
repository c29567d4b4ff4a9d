//! Process managers that start no process for the job.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use counterfoil_runtime::local::{JobOptions, JobReport, LaunchError, Processes, launch};

/// Launches a job whose process manager is a script with the argument `file`.
fn launch_script(script: &str, root: &Path, file: &Path, start_wait_max: Duration) -> Result<JobReport, LaunchError> {
    let command = vec!["sh".into(), "-c".into(), script.into(), file.into()];
    let options = JobOptions {
        processes: Processes::Managed { spares: 1, outlive_failures: true },
        shm_root: root.to_owned(),
        checkpoint_root: root.to_owned(),
        start_wait_max,
        ..JobOptions::new(command, 2)
    };
    launch(&options, None, &mut ())
}

#[test]
fn a_process_manager_that_ends_before_any_rank_joins_is_started_once_more() {
    let root = tempfile::Builder::new().prefix("cft").tempdir_in("/tmp").unwrap();
    let starts = root.path().join("starts");
    let script = r#"echo start >> "$0"; echo "$(wc -l < "$0") starts" >&2; exit 213"#;
    let error = launch_script(script, root.path(), &starts, Duration::from_secs(30)).unwrap_err();
    let LaunchError::ManagerFailed { status, stderr_tail, .. } = &error else { panic!("{error:?}") };
    assert_eq!((status.as_str(), stderr_tail.as_str()), ("exit status: 213", "2 starts"));
    assert_eq!(fs::read_to_string(&starts).unwrap(), "start\nstart\n");
}

#[test]
fn a_process_manager_whose_processes_do_not_join_is_started_once_more_and_ended_with_them() {
    let root = tempfile::Builder::new().prefix("cft").tempdir_in("/tmp").unwrap();
    let processes = root.path().join("processes");
    let script = r#"echo $$ >> "$0"; setsid sleep 1000 & echo $! >> "$0"; echo hung >&2; wait"#;
    let error = launch_script(script, root.path(), &processes, Duration::from_secs(1)).unwrap_err();
    let LaunchError::Silent { rank, state, stderr_tail, .. } = &error else { panic!("{error:?}") };
    assert_eq!((*rank, stderr_tail.as_str()), (0, "hung\nhung"));
    let first = "2 of 2 ranks were not done: rank 0 (incarnation 0, no process) reported nothing";
    assert!(state.starts_with(first), "{state}");
    let processes = fs::read_to_string(&processes).unwrap();
    assert_eq!(processes.lines().count(), 4, "{processes}");
    for process in processes.lines() {
        // The process manager's are reaped by init, which may take a moment.
        let is_alive = || {
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while is_alive() {
            assert!(Instant::now() < deadline, "{process} is alive");
            thread::sleep(Duration::from_millis(10));
        }
    }
}
