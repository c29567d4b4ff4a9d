//! Replay of the rank alone: its stops and its report.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::ffi::c_int;

use counterfoil::RepeatError;
use counterfoil_runtime::replay::{RecordEnd, ReplayOptions};
use counterfoil_runtime::{Error, RankSettings, Tally};
use counterfoil_settings::recover::{RecoverSettings, ReplayEnd, ReplaySettings, Replayed};

use crate::front::Front;
use crate::process::{exit_at_once, report, say};

/// Replay of this rank.
#[derive(Clone)]
pub(crate) struct Replay {
    job: RecoverSettings,
    settings: ReplaySettings,
    /// True once the replay has made its first requested stop.
    is_past_until: Cell<bool>,
}

/// Reason for a call to end a replay.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reason {
    /// The call differs from the recorded one.
    Differs,
    /// The call sends bytes other than the recorded ones, as many.
    OtherBytes,
    /// The call is on no record.
    NoRecord(RecordEnd),
}

impl Reason {
    /// Returns the reason for a call's failure, if a replay can have it.
    pub(crate) fn of(error: &Error) -> Option<Reason> {
        match RecordEnd::of(error) {
            Some(end) => Some(Reason::NoRecord(end)),
            None => match error {
                Error::Diverged(RepeatError::Diverged(other)) if other.has_same_length() => Some(Reason::OtherBytes),
                other => other.is_divergence().then_some(Reason::Differs),
            },
        }
    }
}

impl Replay {
    pub(crate) fn new(job: &RecoverSettings) -> Option<Replay> {
        let settings = job.replay.clone()?;
        Some(Replay { job: job.clone(), settings, is_past_until: Cell::new(false) })
    }

    /// Returns the runtime's options, for a job with these settings.
    pub(crate) fn options(&self, settings: &RankSettings) -> ReplayOptions {
        let ReplaySettings { rank, log_directory, history, .. } = &self.settings;
        ReplayOptions {
            rank: *rank,
            settings: settings.clone(),
            log_directory: log_directory.clone(),
            history: history.clone(),
        }
    }

    /// Returns the number of the next call in which the replay stops, if it gets there.
    ///
    /// This is the call in `--until`, or the first one not begun by the rank.
    pub(crate) fn stops_in(&self) -> Option<u64> {
        let until = self.settings.until.filter(|_| !self.is_past_until.get());
        until.into_iter().chain(self.settings.died_in.map(|died_in| died_in + 1)).min()
    }

    /// Returns `true` if the rank's actions are recorded.
    pub(crate) fn has_history(&self) -> bool {
        self.settings.history.is_some()
    }

    /// Stops in a call named by [`stops_in`](Self::stops_in); `last` is the one before it.
    ///
    /// Returns under a debugger, which can continue.
    pub(crate) fn stop(&self, front: &Front, call: &str, last: &str) {
        let calls = front.calls.get();
        let is_until = self.stops_in() == self.settings.until && !self.is_past_until.replace(true);
        if !is_until {
            self.end_after(front, ReplayEnd::Died, (calls - 1, last), String::new(), stack(call));
        }
        if !self.settings.is_debugged {
            self.end(front, ReplayEnd::Until, call, String::new());
        }
        say(&format!("call {calls} of rank {}: {call}", front.rank()));
        // The session may end here.
        self.report(ReplayEnd::Until, (calls, call), String::new(), stack(call), &front.process.counts().0);
        trap();
    }

    /// Ends the replay in a call.
    pub(crate) fn end(&self, front: &Front, end: ReplayEnd, call: &str, why: String) -> ! {
        let end = if end == ReplayEnd::Aborted && self.had_come_further(front.calls.get()) {
            ReplayEnd::Differs
        } else {
            end
        };
        self.end_after(front, end, (front.calls.get(), call), why, stack(call))
    }

    fn end_after(&self, front: &Front, end: ReplayEnd, last: (u64, &str), why: String, stack: String) -> ! {
        self.report(end, last, why, stack, &front.process.counts().0);
        if self.settings.is_debugged {
            trap();
        }
        exit_at_once(c_int::from(matches!(end, ReplayEnd::Differs | ReplayEnd::Failed)));
    }

    /// Returns `true` if the rank had continued after this call.
    fn had_come_further(&self, call: u64) -> bool {
        self.settings.ended.is_some() || self.settings.died_in.is_some_and(|died_in| call < died_in)
    }

    /// Returns a replay's end in this call.
    ///
    /// The record of a rank that had come further is complete up to there, except for the last calls that found
    /// nothing.
    pub(crate) fn end_for(&self, reason: Reason, call: u64) -> ReplayEnd {
        let Reason::NoRecord(end) = reason else { return ReplayEnd::Differs };
        let may_have_found_nothing = self.settings.ended.is_none() && end == RecordEnd::Outcome;
        if self.settings.died_in == Some(call) {
            ReplayEnd::Died
        } else if self.had_come_further(call) && !may_have_found_nothing {
            ReplayEnd::Differs
        } else {
            ReplayEnd::RecordEnds
        }
    }

    /// Ends the replay before the program has begun.
    pub(crate) fn fail(&self, why: String) -> ! {
        self.report(ReplayEnd::Failed, (0, "MPI_Init"), why, String::new(), &Tally::default());
        exit_at_once(1)
    }

    /// Reports that the program has called `MPI_Finalize`, as it had if `failed` is `None`.
    pub(crate) fn finish(&self, calls: u64, tally: &Tally, failed: Option<(ReplayEnd, String)>) {
        let differs = || {
            let (ended, died_in) = (self.settings.ended.as_ref(), self.settings.died_in);
            let sent = (tally.messages_logged, tally.bytes_logged);
            if let Some(before) = ended.filter(|before| before.calls != calls) {
                Some(format!("it ends after {calls} calls, and ended after {} before", before.calls))
            } else if let Some(before) = ended.filter(|before| (before.messages_logged, before.bytes_logged) != sent) {
                let (messages, bytes) = (before.messages_logged, before.bytes_logged);
                Some(format!(
                    "it has sent {} messages with {} bytes, and had sent {messages} with {bytes}",
                    sent.0, sent.1
                ))
            } else {
                let died_in = died_in.filter(|died_in| calls < *died_in)?;
                Some(format!("it ends after {calls} calls, and had gone on to call {died_in}"))
            }
        };
        let (end, why) = match failed.or_else(|| Some((ReplayEnd::Differs, differs()?))) {
            Some(failed) => failed,
            None if self.settings.died_in == Some(calls) => (ReplayEnd::Died, String::new()),
            None => (ReplayEnd::Same, String::new()),
        };
        self.report(end, (calls, "MPI_Finalize"), why, String::new(), tally);
    }

    fn report(&self, end: ReplayEnd, (calls, call): (u64, &str), why: String, stack: String, tally: &Tally) {
        let replayed = Replayed {
            end,
            calls,
            call: call.to_owned(),
            why,
            stack,
            messages_sent: tally.messages_logged,
            bytes_sent: tally.bytes_logged,
            messages_received: tally.messages_delivered,
        };
        report(&self.job, Replayed::FILE, &replayed);
    }
}

/// Stops in a debugger.
fn trap() {
    // SAFETY: a signal to this thread. Without a debugger it ends the process.
    unsafe { libc::raise(libc::SIGTRAP) };
}

/// Returns the stack of the program making this call.
fn stack(call: &str) -> String {
    functions_before(&Backtrace::force_capture().to_string(), call)
}

/// Returns the functions leading to a call, a line each, with their places in the source where known.
fn functions_before(backtrace: &str, call: &str) -> String {
    let mut functions: Vec<(&str, Option<&str>)> = Vec::new();
    for line in backtrace.lines().map(str::trim_start) {
        if let Some(place) = line.strip_prefix("at ") {
            if let Some(function) = functions.last_mut() {
                function.1 = Some(place);
            }
        } else if let Some((_, name)) = line.split_once(": ") {
            // The C library function calling `main`.
            if name.starts_with("__libc_start") || name == "_start" {
                break;
            }
            functions.push((name, None));
        }
    }
    // This library's come first. The exported function may have left its frame to its callee.
    let exported = functions.iter().rposition(|(name, _)| *name == call);
    let is_rust = |place: &Option<&str>| place.is_some_and(|place| place.contains(".rs:"));
    let own = exported.or_else(|| functions.iter().rposition(|(_, place)| is_rust(place)));
    let own = own.map_or(functions.len(), |own| own + 1);
    let lines = functions[own..].iter().map(|(name, place)| match place {
        Some(place) => format!("in {name} at {place}"),
        None => format!("in {name}"),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_the_programs() {
        let backtrace = "   0: counterfoil_recover::replay::stack\n             at /src/replay.rs:9:5\n   1: MPI_Send\n             \
                         at /src/lib.rs:1:2\n   2: step\n   3: main\n             at ./a.c:14:57\n   4: __libc_start_call_main\n   \
                         5: _start\n";
        assert_eq!(functions_before(backtrace, "MPI_Send"), "in step\nin main at ./a.c:14:57");
        // The exported function has no frame of its own.
        let backtrace = backtrace.replace("1: MPI_Send", "1: finalize");
        assert_eq!(functions_before(&backtrace, "MPI_Finalize"), "in step\nin main at ./a.c:14:57");
    }
}
