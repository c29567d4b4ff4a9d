//! Speaking to the user: on standard error, a line at a time, with the rank in front.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::atomic::{AtomicI64, Ordering};

static RANK: AtomicI64 = AtomicI64::new(-1);

/// From now on lines say which rank speaks.
pub(crate) fn as_rank(rank: u32) {
    RANK.store(rank.into(), Ordering::Relaxed);
}

/// Says something. A standard error that is closed is no reason to stop.
pub(crate) fn say(what: Arguments<'_>) {
    let rank = RANK.load(Ordering::Relaxed);
    let who = if rank < 0 { String::new() } else { format!(" rank {rank}") };
    // One write, so that lines of several ranks stay whole.
    let line = format!("counterfoil{who}: {what}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
