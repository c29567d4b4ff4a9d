//! A job with ranks on another host, which is a namespace of this machine: it has shared memory and a log directory of
//! its own.

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
    /// Makes a host. Returns `None`, with a message, where namespaces can't be made: that takes the rights of root.
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
