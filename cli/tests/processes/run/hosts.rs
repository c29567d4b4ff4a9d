//! A job with ranks on another host, which is a namespace on this machine with its own shared memory and log directory.

use std::fs;
use std::process::Command;

use counterfoil_test_support::note_untested;
use serde_json::{Value, json};

use super::holder::Holder;
use super::ring::sandbox;
use super::sandbox::Sandbox;
use crate::script;

/// Prepares the host; `$0` is the directory for its logs.
const PREPARE: &str =
    "hostname other-host && mount --make-rprivate / && mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs \"$0\"";

/// Another host, until it is dropped.
struct Host(Holder);

impl Host {
    /// Makes a host; returns `None`, with a message, where namespaces can't be made without root's rights.
    fn make(sandbox: &Sandbox) -> Option<Host> {
        let own = sandbox.path().join("own");
        let holder = Holder::start(&["--mount", "--uts"], PREPARE, own.to_str().unwrap());
        holder
            .inspect_err(|reason| {
                note_untested(&format!("jobs of several hosts: no other host can be made here: {reason}"))
            })
            .ok()
            .map(Host)
    }

    /// Runs a command on the host; returns its output.
    fn run(&self, words: &[&str]) -> String {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.0.id().to_string(), "--mount", "--uts", "--"]).args(words);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Sends a token around, and prints what each rank has added.
const TOKEN: &str = r#"
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int rank, ranks, token = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int round = 0; round < 100; round++) {
        int sent = token + rank;
        MPI_Sendrecv(&sent, 1, MPI_INT, (rank + 1) % ranks, 0, &token, 1, MPI_INT, (rank + ranks - 1) % ranks, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    printf("rank %d: %d\n", rank, token);
    MPI_Finalize();
    return 0;
}
"#;

#[test]
fn ranks_of_two_hosts_are_replaced_where_they_were() {
    let Some(sandbox) = sandbox() else { return };
    sandbox.compile("token", TOKEN);
    let alone = ["run", "-n", "1", "--recover", "--spares", "1", "--", "./token"];
    if sandbox.counterfoil(&alone).code != Some(0) {
        return note_untested(
            "ranks that are replaced on their hosts: this MPI ends a job with its first dead process",
        );
    }
    fs::create_dir(sandbox.path().join("own")).unwrap();
    let Some(host) = Host::make(&sandbox) else { return };
    let enter = sandbox.path().join("enter");
    // Every second one of four ranks and two spares is there.
    let on_host = format!("exec nsenter --target {} --mount --uts -- \"$@\"", host.0.id());
    script::write(&enter, &format!("[ $((OMPI_COMM_WORLD_RANK % 2)) = 0 ] && exec \"$@\"\n{on_host}"));
    let program = [enter.to_str().unwrap(), sandbox.path().join("token").to_str().unwrap()].map(str::to_owned);
    let program = program.each_ref().map(String::as_str);
    let job = ["run", "-n", "4", "--recover", "--spares", "2", "--json", "--mca", "btl", "tcp,self"];
    let run = |options: &[&str]| sandbox.counterfoil(&[&job[..], options, &["--"], &program].concat());
    let plain = sandbox.counterfoil(&["run", "-n", "4", "--recover", "--", "./token"]);
    let lines = |output: &str| {
        let mut lines: Vec<String> = output.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };

    let shared = sandbox.path().join("shared");
    fs::create_dir(&shared).unwrap();
    let options = ["--shared-dir", "shared", "--kill", "0@40", "--kill", "3@70"];
    let output = run(&options);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(lines(&output.stdout), lines(&plain.stdout), "{}", output.stderr);
    let summary = output.summary();
    assert_eq!(summary["restarts"], 0, "{summary}");
    for (number, rank) in summary["ranks"].as_array().unwrap().iter().enumerate() {
        let processes = rank["processes"].as_array().unwrap();
        assert_eq!(processes.len(), if [0, 3].contains(&number) { 2 } else { 1 }, "{summary}");
        for process in processes {
            assert_eq!(process["host"] == "other-host", number % 2 == 1, "{summary}");
        }
    }
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 0, "nothing is left");
    assert_eq!(host.run(&["ls", "/dev/shm"]), "");

    let refused = run(&[]);
    assert_ne!(refused.code, Some(0), "{}", refused.stderr);
    assert!(refused.stderr.contains("host other-host has no directory"), "{}", refused.stderr);
    let absent = run(&["--shared-dir", "absent"]);
    absent.assert_exit(2, "--shared-dir: absent");
}

#[test]
fn ranks_on_another_host_have_their_logs_there_and_their_figures_here() {
    let Some(sandbox) = sandbox() else { return };
    fs::create_dir(sandbox.path().join("own")).unwrap();
    let Some(host) = Host::make(&sandbox) else { return };
    let enter = sandbox.path().join("enter");
    let on_host = format!("exec nsenter --target {} --mount --uts -- \"$@\"", host.0.id());
    script::write(&enter, &format!("[ $OMPI_COMM_WORLD_RANK -lt 2 ] && exec \"$@\"\n{on_host}"));
    let program = sandbox.path().join("ring");
    let program = [enter.to_str().unwrap(), program.to_str().unwrap(), "gather"];
    for tier in ["volatile", "process-crash-safe", "node-local"] {
        let logs = sandbox.path().join("own").join(tier);
        let logs = logs.to_str().unwrap();
        let options = ["run", "-n", "4", "--json", "--tier", tier, "--log-dir", logs, "--mca", "btl", "tcp,self", "--"];
        let output = sandbox.counterfoil(&[&options[..], &program].concat());
        output.assert_exit(0, &format!("ranks 2, 3: log in {logs} on host other-host"));
        let summary = output.summary();
        for (number, rank) in summary["ranks"].as_array().unwrap().iter().enumerate() {
            let name = if number < 2 { Value::Null } else { json!("other-host") };
            assert_eq!((&rank["rank"], &rank["host"], &rank["kept"]), (&json!(number), &name, &json!(true)), "{rank}");
            assert_eq!((&rank["messages_received"], &rank["complete"]), (&json!(10), &json!(true)), "{rank}");
        }
        assert_eq!(
            host.run(&["ls", logs]).split_whitespace().collect::<Vec<_>>(),
            ["rank-2", "rank-2.profile", "rank-3", "rank-3.profile"]
        );
        assert!(host.run(&[env!("CARGO_BIN_EXE_counterfoil"), "log", "verify", logs]).contains("sound"));
        assert!(sandbox.path().join("own").join(tier).join("rank-1").exists());
        // Nothing else remains on the host.
        assert_eq!(host.run(&["ls", "/dev/shm"]), "");
    }
}
