//! How a rank is doing, for whoever watches: a small file that is rewritten now and then.
//!
//! It also tells `counterfoil run` that this process is a rank, and what it had done where it ends without a word.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use counterfoil::Log;
use serde_json::json;

use super::ledger::Ledger;

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
    pub(super) fn tell(&mut self, ledger: &Ledger, log: Option<&Log>) {
        if self.file.is_some() && self.written.elapsed() >= EVERY {
            self.write(ledger, log);
        }
    }

    /// Writes the file.
    pub(super) fn write(&mut self, ledger: &Ledger, log: Option<&Log>) {
        let Some(file) = &self.file else { return };
        self.written = Instant::now();
        let (mut unacknowledged, mut memory) = (0, 0);
        if let Some(log) = log {
            memory = log.stats().resident_bytes;
            for peer in (0..log.options().ranks).map(counterfoil::Rank) {
                unacknowledged += log.next_ssn(peer).0.saturating_sub(1).saturating_sub(log.acked(peer).0);
            }
        }
        let sum = |of: &[super::ledger::Traffic]| {
            of.iter().fold((0, 0), |sum: (u64, u64), one| (sum.0 + one.messages, sum.1 + one.bytes))
        };
        let ((logged, logged_bytes), (received, received_bytes)) = (sum(&ledger.logged), sum(&ledger.received));
        let mut line = json!({
            "pid": std::process::id(),
            "messages_logged": logged,
            "bytes_logged": logged_bytes,
            "messages_received": received,
            "bytes_received": received_bytes,
            "collectives": ledger.collectives.iter().sum::<u64>(),
            "unacknowledged": unacknowledged,
            "memory_bytes": memory,
            "memory_peak_bytes": ledger.memory_peak,
            "spilled_bytes": ledger.spilled,
        })
        .to_string();
        // One write of the same length each time: a reader finds one object or the other, with spaces behind it.
        line.extend(std::iter::repeat_n(' ', BYTES.saturating_sub(line.len())));
        let _ = file.write_all_at(line.as_bytes(), 0);
    }
}
