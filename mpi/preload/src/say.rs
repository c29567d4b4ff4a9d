//! Messages to the user: lines on standard error, beginning with the rank.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::atomic::{AtomicI64, Ordering};

static RANK: AtomicI64 = AtomicI64::new(-1);

/// Sets the rank at the beginning of lines.
pub(crate) fn as_rank(rank: u32) {
    RANK.store(rank.into(), Ordering::Relaxed);
}

/// Prints a line; ignores a closed standard error.
pub(crate) fn say(what: Arguments<'_>) {
    let rank = RANK.load(Ordering::Relaxed);
    let who = if rank < 0 { String::new() } else { format!(" rank {rank}") };
    // One write, so that lines from several ranks stay whole.
    let line = format!("counterfoil{who}: {what}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
