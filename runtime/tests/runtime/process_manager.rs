//! Process managers that start no process of the job.

use std::fs;

use counterfoil_runtime::local::{JobOptions, LaunchError, Processes, launch};

#[test]
fn a_process_manager_that_ends_before_any_rank_joins_is_started_once_more() {
    let root = tempfile::Builder::new().prefix("cft").tempdir_in("/tmp").unwrap();
    let starts = root.path().join("starts");
    let script = r#"echo start >> "$0"; echo "$(wc -l < "$0") starts" >&2; exit 213"#;
    let command = vec!["sh".into(), "-c".into(), script.into(), starts.clone().into_os_string()];
    let options = JobOptions {
        processes: Processes::Managed { spares: 1, outlive_failures: true },
        shm_root: root.path().to_owned(),
        checkpoint_root: root.path().to_owned(),
        ..JobOptions::new(command, 2)
    };
    let error = launch(&options, None, &mut ()).unwrap_err();
    let LaunchError::ManagerFailed { status, stderr_tail, .. } = &error else { panic!("{error:?}") };
    assert_eq!((status.as_str(), stderr_tail.as_str()), ("exit status: 213", "2 starts"));
    assert_eq!(fs::read_to_string(&starts).unwrap(), "start\nstart\n");
}
