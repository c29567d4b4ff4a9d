//! How a rank is doing, for whoever watches: a small file that is rewritten now and then.
//!
//! It also tells `counterfoil run` that this process is a rank, and what it had done where it ends without a word.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use counterfoil::Log;
use serde_json::json;

use super::ledger::{Ledger, Traffic};
use super::observe::unacknowledged;

/// The least time between two writes.
const EVERY: Duration = Duration::from_millis(100);
/// Bytes of the file, always: what is written over is never longer than what is written.
const BYTES: usize = 512;

/// The file.
#[derive(Debug)]
pub(super) struct Live {
    file: Option<File>,
    written: Instant,
}

impl Live {
    /// Begins `rank-N.live` in a directory, if there is one. That it can't be written is said with the account.
    pub(super) fn begin(dir: Option<&Path>, rank: u32) -> Live {
        let file = dir.and_then(|dir| File::create(dir.join(format!("rank-{rank}.live"))).ok());
        Live { file, written: Instant::now() }
    }

    /// Writes the file, where it was not written within the last tenth of a second.
    pub(super) fn tell(&mut self, now: Instant, ledger: &Ledger, log: Option<&Log>) {
        if self.is_on() && now.saturating_duration_since(self.written) >= EVERY {
            self.write(ledger, log);
        }
    }

    /// Whether there is a file.
    pub(super) fn is_on(&self) -> bool {
        self.file.is_some()
    }

    /// Writes the file.
    pub(super) fn write(&mut self, ledger: &Ledger, log: Option<&Log>) {
        let Some(file) = &self.file else { return };
        self.written = Instant::now();
        let [logged, received] = [&ledger.logged, &ledger.received].map(|of| Traffic::sum(of));
        let mut line = json!({
            "pid": std::process::id(),
            "messages_logged": logged.messages,
            "bytes_logged": logged.bytes,
            "messages_received": received.messages,
            "bytes_received": received.bytes,
            "collectives": ledger.all_collectives(),
            "contributions": ledger.contributions,
            "unacknowledged": log.map_or(0, unacknowledged),
            "memory_bytes": log.map_or(0, |log| log.usage().resident_bytes),
            "memory_peak_bytes": ledger.memory_peak,
            "spilled_bytes": ledger.spilled,
        })
        .to_string();
        // One write of the same length each time: a reader finds one object or the other, with spaces behind it.
        line.extend(std::iter::repeat_n(' ', BYTES.saturating_sub(line.len())));
        let _ = file.write_all_at(line.as_bytes(), 0);
    }
}
