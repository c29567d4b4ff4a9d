//! Descriptions of a hung job's processes, for a failed test's report.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Describes all processes, including orphans, with this directory for temporary files.
pub(crate) fn describe_processes(temporary: &Path) -> String {
    let mut described = String::new();
    let variable = format!("TMPDIR={}", temporary.display());
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    for process in processes {
        let path = Path::new("/proc").join(process.to_string());
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|set| set == variable.as_bytes()) {
            let command = fs::read(path.join("cmdline")).unwrap_or_default();
            let _ = writeln!(described, "process {process}: {}", String::from_utf8_lossy(&command).replace('\0', " "));
            let stat = fs::read_to_string(path.join("stat")).unwrap_or_default();
            let _ = writeln!(described, "{stat}{}", describe_threads(&path, process));
        }
    }
    described
}

/// Returns a process's stacks if there is a debugger, otherwise its threads' wait channels in the kernel.
fn describe_threads(path: &Path, process: u32) -> String {
    let mut debugger = Command::new("timeout");
    debugger.args(["20", "gdb", "-p", &process.to_string(), "-batch", "-ex", "thread apply all bt 24"]);
    if let Ok(output) = debugger.output()
        && output.status.success()
    {
        return String::from_utf8_lossy(&output.stdout).into_owned();
    }
    let mut described = String::new();
    for thread in fs::read_dir(path.join("task")).into_iter().flatten().flatten() {
        for file in ["comm", "wchan", "syscall"] {
            let read = fs::read_to_string(thread.path().join(file)).unwrap_or_default();
            let _ = write!(described, "{} ", read.trim_end());
        }
        described.push('\n');
    }
    described
}
