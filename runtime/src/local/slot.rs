//! What the launcher knows of a rank.

use std::fmt;
use std::time::Instant;

use super::control::Control;
use super::kills::Kill;
use super::process::Process;
use crate::tally::Tally;

/// Ranks that an error names at most.
const STUCK_MAX: usize = 16;

/// What the launcher knows of a rank.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) incarnation: u32,
    /// `None` once it has ended for good.
    pub(super) process: Option<Process>,
    pub(super) started: Option<Instant>,
    pub(super) control: Option<Control>,
    pub(super) welcomed: bool,
    pub(super) iteration: u64,
    pub(super) iteration_began: Option<Instant>,
    pub(super) went_back: bool,
    pub(super) tally: Tally,
    pub(super) outcome: Option<Vec<u8>>,
    /// The outcome of an incarnation that died after it was done.
    pub(super) outcome_before: Option<Vec<u8>>,
    /// What the program said when it failed.
    pub(super) failure: Option<String>,
    /// When it was killed and as which kill, until its end is noticed.
    pub(super) struck: Option<(Instant, Kill)>,
    /// Its last death, as an index into the deaths.
    pub(super) recovering_from: Option<usize>,
    pub(super) deaths_unplanned: u32,
    /// Its process ends because the rank goes back to an earlier checkpoint.
    pub(super) going_back: bool,
    /// How often it went back though nobody had killed it.
    pub(super) rolled_back: u32,
    /// What the coordinator has to say to a process that hasn't said hello.
    pub(super) orders: Vec<Vec<u8>>,
    /// What this incarnation said last, and when.
    pub(super) heard: Option<(Instant, Heard)>,
}

/// What a rank said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Hello,
    Iteration(u64),
    Restored(u32),
    ReplayComplete,
    CaughtUp,
    GoesBack,
}

impl fmt::Display for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Heard::Hello => f.write_str("said hello"),
            Heard::Iteration(n) => write!(f, "began iteration {n}"),
            Heard::Restored(epoch) => write!(f, "went on from the checkpoint of epoch {epoch}"),
            Heard::ReplayComplete => f.write_str("had received its replay"),
            Heard::GoesBack => f.write_str("went back to an earlier checkpoint"),
            Heard::CaughtUp => f.write_str("had caught up"),
        }
    }
}

/// The ranks that are not done, for an error: what each said last and how long ago, and what it wrote to standard error.
/// Those that are furthest behind come first.
pub(super) fn stuck(slots: &[Slot], now: Instant) -> String {
    let mut stuck: Vec<(u32, &Slot)> = (0u32..).zip(slots).filter(|(_, slot)| slot.outcome.is_none()).collect();
    if stuck.is_empty() {
        return "all ranks were done, and not all processes had ended".to_owned();
    }
    stuck.sort_by_key(|(rank, slot)| (slot.iteration, slot.heard.map(|(when, _)| when), *rank));
    let named = stuck.iter().take(STUCK_MAX).map(|(rank, slot)| {
        let process = slot.process.as_ref().map_or("no process".to_owned(), |of| format!("process {}", of.pid()));
        let since = |when: Instant| (now - when).as_secs_f64();
        let said = match (slot.heard, slot.started) {
            (Some((when, heard)), _) => format!("{heard} {:.1} s ago", since(when)),
            (None, Some(when)) => format!("said nothing since its start {:.1} s ago", since(when)),
            (None, None) => "was not started yet".to_owned(),
        };
        let words = slot.process.as_ref().map(Process::last_words).unwrap_or_default();
        let words = if words.is_empty() { words } else { format!(", and wrote: {words}") };
        format!("rank {rank} (incarnation {}, {process}) {said}{words}", slot.incarnation)
    });
    let named: Vec<String> = named.collect();
    let more = match stuck.len() - named.len() {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    format!("{} of {} ranks were not done: {}{more}", stuck.len(), slots.len(), named.join("; "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn those_that_are_stuck_are_named_with_what_they_said_last_and_the_furthest_behind_first() {
        let now = Instant::now();
        let ago = |seconds| now.checked_sub(Duration::from_secs(seconds)).unwrap_or(now);
        let done = Slot { outcome: Some(Vec::new()), ..Slot::default() };
        let ahead = Slot { iteration: 9, heard: Some((ago(2), Heard::Iteration(9))), ..Slot::default() };
        let behind = Slot { incarnation: 1, iteration: 3, heard: Some((ago(5), Heard::CaughtUp)), ..Slot::default() };
        let silent = Slot { started: Some(ago(7)), ..Slot::default() };
        assert_eq!(
            stuck(&[done, ahead, behind, silent], now),
            "3 of 4 ranks were not done: rank 3 (incarnation 0, no process) said nothing since its start 7.0 s ago; \
             rank 2 (incarnation 1, no process) had caught up 5.0 s ago; \
             rank 1 (incarnation 0, no process) began iteration 9 2.0 s ago"
        );
        let many: Vec<Slot> = (0..STUCK_MAX + 5).map(|_| Slot::default()).collect();
        let text = stuck(&many, now);
        assert!(text.ends_with("; and 5 more") && text.contains("rank 15 ") && !text.contains("rank 16 "), "{text}");
    }
}
