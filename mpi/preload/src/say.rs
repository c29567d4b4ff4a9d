//! Messages to the user: lines on standard error that begin with the rank.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::atomic::{AtomicI64, Ordering};

static RANK: AtomicI64 = AtomicI64::new(-1);

/// Sets the rank that lines begin with.
pub(crate) fn as_rank(rank: u32) {
    RANK.store(rank.into(), Ordering::Relaxed);
}

/// Prints a line. A closed standard error is ignored.
pub(crate) fn say(what: Arguments<'_>) {
    let rank = RANK.load(Ordering::Relaxed);
    let who = if rank < 0 { String::new() } else { format!(" rank {rank}") };
    // One write, so that lines of several ranks stay whole.
    let line = format!("counterfoil{who}: {what}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
