//! A process keeping namespaces of this machine alive: they are another host for processes entering them.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Namespaces until it is dropped.
pub(crate) struct Holder(Child);

impl Holder {
    /// Makes namespaces, given as unshare(1) options, and prepares them by a shell command with `argument` as its `$0`.
    ///
    /// # Errors
    /// The reason that they can't be made: this takes root's rights and util-linux.
    pub(crate) fn start(namespaces: &[&str], prepare: &str, argument: &str) -> Result<Holder, String> {
        let mut holder = Command::new("unshare");
        holder.args(namespaces).args(["sh", "-c", &format!("{prepare} && exec sleep 600"), argument]);
        let holder = holder.stdin(Stdio::null()).spawn().map_err(|error| format!("unshare: {error}"))?;
        let mut holder = Holder(holder);
        // Once it sleeps, its namespaces no longer change.
        for _ in 0..500 {
            if let Some(status) = holder.0.try_wait().map_err(|error| error.to_string())? {
                return Err(format!("no namespaces: {status}"));
            }
            if fs::read(format!("/proc/{}/comm", holder.id())).is_ok_and(|name| name.starts_with(b"sleep")) {
                return Ok(holder);
            }
            sleep(Duration::from_millis(10));
        }
        Err("the namespaces don't get ready".to_owned())
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
