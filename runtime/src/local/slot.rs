//! A rank's state in the launcher.

use std::fmt;
use std::time::Instant;

use super::control::Control;
use super::kills::Kill;
use super::process::Process;
use crate::tally::Tally;
use crate::transport::CallKind;

/// Maximum number of ranks named in an error.
const NAMED_MAX: usize = 16;

/// A rank's state in the launcher.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) incarnation: u32,
    /// `None` once the rank has ended for good.
    pub(super) process: Option<Process>,
    /// Start of the launcher's wait for a process to join as this rank, or for all to exit before they are started
    /// again.
    pub(super) started: Option<Instant>,
    pub(super) control: Option<Control>,
    pub(super) welcomed: bool,
    pub(super) iteration: u64,
    pub(super) iteration_began: Option<Instant>,
    pub(super) repeated_iteration: bool,
    pub(super) tally: Tally,
    pub(super) outcome: Option<Vec<u8>>,
    /// Outcome from an incarnation that died after it was done.
    pub(super) outcome_before: Option<Vec<u8>>,
    /// Error reported by the program or the runtime.
    pub(super) failure: Option<String>,
    /// Time of the planned kill sent to the process, and the kill, until its exit is noticed.
    pub(super) killed: Option<(Instant, Kill)>,
    /// Index of its last death in the launcher's deaths.
    pub(super) recovering_from: Option<usize>,
    pub(super) deaths_unplanned: u32,
    /// The process exits because the job is started again.
    pub(super) exits: bool,
    /// The process ends because the rank rolls back to an earlier checkpoint.
    pub(super) rolling_back: bool,
    /// Number of rollbacks without a kill of this rank.
    pub(super) rolled_back: u32,
    /// Epochs of its rollback checkpoints.
    pub(super) rolled_back_to: Vec<u32>,
    /// Start of the process's wait for the others in a repair.
    pub(super) repairing: Option<Instant>,
    /// Coordinator messages to a process that hasn't sent its hello.
    pub(super) queued_orders: Vec<Vec<u8>>,
    /// This incarnation's last report, and its time.
    pub(super) last_report: Option<(Instant, LastReport)>,
}

impl Slot {
    /// Prepares for the rank's next execution.
    pub(super) fn begin_incarnation(&mut self) {
        self.incarnation += 1;
        self.iteration = 0;
        self.iteration_began = None;
        self.outcome_before = self.outcome.take().or(self.outcome_before.take());
    }
}

/// A rank's last report, for error messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastReport {
    Hello,
    Iteration(u64),
    InCall(CallKind),
    Restored(u32),
    ReplayComplete,
    CaughtUp,
    RollsBack,
}

impl fmt::Display for LastReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LastReport::Hello => f.write_str("sent its hello"),
            LastReport::Iteration(n) => write!(f, "began iteration {n}"),
            LastReport::InCall(call) => write!(f, "waited in a {call} for its planned kill"),
            LastReport::Restored(epoch) => write!(f, "restored the checkpoint of epoch {epoch}"),
            LastReport::ReplayComplete => f.write_str("had received its replay"),
            LastReport::RollsBack => f.write_str("rolled back to an earlier checkpoint"),
            LastReport::CaughtUp => f.write_str("had caught up"),
        }
    }
}

/// Describes the unfinished ranks for an error: each one's last report, its age, and the process's standard error.
///
/// Sorted by iteration, lowest first.
pub(super) fn describe_unfinished(slots: &[Slot], now: Instant) -> String {
    let mut unfinished: Vec<(u32, &Slot)> = (0u32..).zip(slots).filter(|(_, slot)| slot.outcome.is_none()).collect();
    if unfinished.is_empty() {
        return "all ranks were done, and not all processes had ended".to_owned();
    }
    unfinished.sort_by_key(|(rank, slot)| (slot.iteration, slot.last_report.map(|(when, _)| when), *rank));
    let named = unfinished.iter().take(NAMED_MAX).map(|(rank, slot)| {
        let process = slot.process.as_ref().map_or("no process".to_owned(), |of| format!("process {}", of.pid()));
        let since = |when: Instant| (now - when).as_secs_f64();
        let said = match (slot.last_report, slot.started) {
            (Some((when, report)), _) => format!("{report} {:.1} s ago", since(when)),
            (None, Some(when)) => format!("reported nothing since its start {:.1} s ago", since(when)),
            (None, None) => "was not started yet".to_owned(),
        };
        let stderr = slot.process.as_ref().map(Process::stderr_tail).unwrap_or_default();
        let stderr = if stderr.is_empty() { stderr } else { format!(", and wrote: {stderr}") };
        format!("rank {rank} (incarnation {}, {process}) {said}{stderr}", slot.incarnation)
    });
    let named: Vec<String> = named.collect();
    let more = match unfinished.len() - named.len() {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    format!("{} of {} ranks were not done: {}{more}", unfinished.len(), slots.len(), named.join("; "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn unfinished_ranks_are_named_with_their_last_report_and_the_lowest_iteration_first() {
        let now = Instant::now();
        let ago = |seconds| now.checked_sub(Duration::from_secs(seconds)).unwrap_or(now);
        let done = Slot { outcome: Some(Vec::new()), ..Slot::default() };
        let ahead = Slot { iteration: 9, last_report: Some((ago(2), LastReport::Iteration(9))), ..Slot::default() };
        let behind =
            Slot { incarnation: 1, iteration: 3, last_report: Some((ago(5), LastReport::CaughtUp)), ..Slot::default() };
        let silent = Slot { started: Some(ago(7)), ..Slot::default() };
        assert_eq!(
            describe_unfinished(&[done, ahead, behind, silent], now),
            "3 of 4 ranks were not done: rank 3 (incarnation 0, no process) reported nothing since its start 7.0 s ago; \
             rank 2 (incarnation 1, no process) had caught up 5.0 s ago; \
             rank 1 (incarnation 0, no process) began iteration 9 2.0 s ago"
        );
        let many: Vec<Slot> = (0..NAMED_MAX + 5).map(|_| Slot::default()).collect();
        let text = describe_unfinished(&many, now);
        assert!(text.ends_with("; and 5 more") && text.contains("rank 15 ") && !text.contains("rank 16 "), "{text}");
    }
}
