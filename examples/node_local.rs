//! A log larger than its memory, on disk: a checkpoint, a power cut, and the recovery.
//!
//! Rank 0 logs 64 MiB with a memory budget of 4 MiB, so that most records move to disk. It takes a checkpoint, logs
//! some more, and ends abruptly. The rank's next process finds the checkpoint's contents.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::path::Path;

use counterfoil::{
    AppendError, Contents, Epoch, Keep, Log, Options, Rank, Ssn, StoreOptions, Tier, create_private_dir,
};

const PEER: Rank = Rank(1);
const BYTES: usize = 64 << 10;
const BEFORE: u64 = 1_000;
const AFTER: u64 = 20;

// ANCHOR: options
fn options(dir: &Path) -> Options {
    let mut options = Options::new(Rank(0), 2);
    options.tier = Tier::NodeLocal;
    options.retain(Keep::Checkpoint, 4 << 20);
    options.store = Some(StoreOptions { disk_bytes_max: 1 << 30, ..StoreOptions::new(dir) });
    options
}
// ANCHOR_END: options

/// Logs a message; waits while appends outrun the disk.
fn append(log: &mut Log, number: u64) -> Result<(), Box<AppendError>> {
    let mut claim = log.claim(PEER, 0, BYTES)?;
    claim.payload_mut().fill(number as u8);
    claim.commit();
    Ok(())
}

/// Runs the rank's first process until the power cut.
fn first_process(dir: &Path) -> Result<(), Box<dyn Error>> {
    let mut log = Log::create(options(dir))?;
    (1..=BEFORE).try_for_each(|number| append(&mut log, number))?;
    let state = b"the program's state".to_vec();
    // Returns once it survives a power cut.
    log.checkpoint(Epoch::FIRST.next().ok_or("no epoch")?, Contents { application: state, tables: Vec::new() })?;
    (1..=AFTER).try_for_each(|number| append(&mut log, number))?;
    let stats = log.stats();
    println!("{} MiB in memory, {} MiB moved to disk", stats.used_bytes >> 20, stats.spilled_bytes >> 20);
    Ok(())
}

/// Recovers the log in the rank's next process, and checks its messages.
fn next_process(dir: &Path) -> Result<(u64, Vec<u8>), Box<dyn Error>> {
    let (mut log, recovered) = Log::recover(options(dir))?;
    let checkpoint = recovered.checkpoint.ok_or("there is a checkpoint")?;
    let mut cursor = log.cursor(PEER, Ssn::FIRST)?;
    let mut found = 0;
    while let Some(record) = cursor.read()? {
        found += 1;
        assert!(record.payload().iter().all(|byte| *byte == record.ssn().0 as u8));
    }
    Ok((found, checkpoint.contents.application))
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("counterfoil-node-local-{}", std::process::id()));
    create_private_dir(&dir)?;
    first_process(&dir)?;
    let (found, state) = next_process(&dir)?;
    println!("found {found} messages, and {:?}", String::from_utf8_lossy(&state));
    std::fs::remove_dir_all(&dir)?;
    // Nothing promises the messages after the checkpoint.
    assert!((BEFORE..=BEFORE + AFTER).contains(&found));
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_a_checkpoint_has_comes_back() {
        assert!(super::main().is_ok());
    }
}
