//! Hosts made of namespaces on this machine: each has a network, a host name and shared memory of its own.
//!
//! A bridge joins their networks.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Command;

use super::holder::Holder;
use super::job::kill;

/// Prepares a host named `$0`.
const PREPARE: &str =
    "hostname \"$0\" && mount --make-rprivate / && mount -t tmpfs tmpfs /dev/shm && ip link set lo up";

/// Several hosts.
pub(crate) struct Hosts {
    bridge: String,
    holders: Vec<Holder>,
    temporary: tempfile::TempDir,
}

impl Hosts {
    /// Makes hosts, or returns the reason for failure: this takes root's rights, iproute2 and util-linux.
    pub(crate) fn make(count: usize) -> Result<Hosts, String> {
        let id = std::process::id();
        let bridge = format!("cf{id}");
        // Three tests at a time have three processes.
        let net = format!("10.{}.{}", 64 + id / 256 % 128, id % 256);
        run(&["ip", "link", "add", &bridge, "type", "bridge"])?;
        let temporary = tempfile::Builder::new().prefix("cfh").tempdir_in("/tmp").map_err(|error| error.to_string())?;
        // From here on, a drop removes everything.
        let mut hosts = Hosts { bridge: bridge.clone(), holders: Vec::new(), temporary };
        run(&["ip", "addr", "add", &format!("{net}.1/24"), "dev", &bridge])?;
        run(&["ip", "link", "set", &bridge, "up"])?;
        for host in 0..count {
            let name = format!("host-{host}");
            let holder = Holder::start(&["--net", "--uts", "--mount"], PREPARE, &name)?;
            let process = holder.id().to_string();
            hosts.holders.push(holder);
            let (outer, inner) = (format!("v{id}h{host}"), format!("{net}.{}/24", 10 + host));
            run(&["ip", "link", "add", &outer, "type", "veth", "peer", "name", "eth0", "netns", &process])?;
            run(&["ip", "link", "set", &outer, "master", &bridge, "up"])?;
            run(&["nsenter", "--target", &process, "--net", "ip", "addr", "add", &inner, "dev", "eth0"])?;
            run(&["nsenter", "--target", &process, "--net", "ip", "link", "set", "eth0", "up"])?;
        }
        Ok(hosts)
    }

    /// Returns the `mpirun` options for a job on these hosts.
    pub(crate) fn options(&self) -> [&str; 9] {
        let btl = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "eth0"];
        let [a, b, c, d, e, f] = btl;
        ["--pmixmca", "ptl_base_if_include", &self.bridge, a, b, c, d, e, f]
    }

    /// Writes a program to start another one, as a job's process number N, on host `places[N]`.
    pub(crate) fn wrapper(&self, places: &[usize]) -> PathBuf {
        let path = self.temporary.path().join("enter");
        let holders: Vec<String> = places.iter().map(|host| self.holders[*host].id().to_string()).collect();
        let script = format!(
            "#!/bin/sh\nset -- $(echo {} | cut -d' ' -f$((OMPI_COMM_WORLD_RANK + 1))) \"$@\"\n\
             holder=$1\nshift\nexec nsenter --target $holder --net --uts --mount -- \"$@\"\n",
            holders.join(" ")
        );
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o700).open(&path).unwrap();
        file.write_all(script.as_bytes()).unwrap();
        path
    }

    /// Returns `true` if a process runs on a host.
    pub(crate) fn runs_on(&self, process: u32, host: usize) -> bool {
        let of = |process: u32| fs::read_link(format!("/proc/{process}/ns/net")).ok();
        of(process).is_some() && of(process) == of(self.holders[host].id())
    }

    /// Kills all processes on a host; returns them.
    pub(crate) fn kill_host(&self, host: usize) -> Vec<u32> {
        let all = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        let of_host = all.filter(|process| self.runs_on(*process, host) && *process != self.holders[host].id());
        let killed: Vec<u32> = of_host.collect();
        killed.iter().for_each(|process| kill(*process));
        killed
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.holders.clear();
        let _ = run(&["ip", "link", "del", &self.bridge]);
    }
}

/// Runs a command.
fn run(words: &[&str]) -> Result<(), String> {
    let output = Command::new(words[0]).args(&words[1..]).output();
    let output = output.map_err(|error| format!("{}: {error}", words[0]))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim_end()))
}
