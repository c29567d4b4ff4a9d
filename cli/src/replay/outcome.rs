//! Replay outcome.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use counterfoil_settings::recover::{ReplayEnd, Replayed};
use indicatif::BinaryBytes;
use serde_json::{Value, json};

/// Exit code of a replay in which the rank did something else.
const DIFFERS: u8 = 1;
/// Exit code for a rank that can't be replayed.
const FAILED: u8 = 2;

/// Replay outcome.
pub(super) struct Outcome {
    pub(super) rank: u32,
    /// Number of the call in which the rank had died, if it had.
    pub(super) died_in: Option<u64>,
    /// `None` if the process has ended without a report.
    pub(super) replayed: Option<Replayed>,
    /// Number of calls begun by the process.
    pub(super) calls: u64,
    pub(super) status: ExitStatus,
    /// The rank's exit code, if it had called `MPI_Finalize`.
    pub(super) exited: Option<i32>,
    /// Call before which the replay was to stop.
    pub(super) until: Option<u64>,
}

impl Outcome {
    /// Returns how the program has ended after `MPI_Finalize`, if not as it had.
    fn other_exit(&self) -> Option<String> {
        let is_same = self.replayed.as_ref().is_some_and(|replayed| replayed.end == ReplayEnd::Same);
        let exited = self.exited.filter(|code| is_same && self.status.code() != Some(code & 0xff))?;
        Some(format!("its exit code was {}, and it has ended with {}", exited & 0xff, self.status))
    }

    pub(super) fn exit_code(&self) -> u8 {
        match self.replayed.as_ref().map(|replayed| replayed.end) {
            Some(ReplayEnd::Differs) => DIFFERS,
            Some(ReplayEnd::Failed) => FAILED,
            Some(_) if self.other_exit().is_some() => DIFFERS,
            Some(_) => 0,
            None => self.status.signal().and_then(|signal| u8::try_from(128 + signal).ok()).unwrap_or(FAILED),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "rank": self.rank,
            "died_in": self.died_in,
            "replayed": self.replayed,
            "calls": self.calls,
            "signal": self.status.signal(),
            "exit_code": self.exit_code(),
        })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { rank, died_in, calls, status, .. } = self;
        let Some(replayed) = &self.replayed else {
            return match status.signal() {
                Some(signal) => write!(f, "rank {rank} was ended by signal {signal}, after {calls} calls"),
                None => {
                    write!(f, "rank {rank} was not replayed: the program has left no report ({status})")
                }
            };
        };
        let Replayed { end, calls, call, why, stack, messages_sent, bytes_sent, messages_received } = replayed;
        let place = format!("call {calls}, {call}");
        match end {
            ReplayEnd::Same => match self.other_exit() {
                None => write!(f, "rank {rank} did the same again, to its end after {calls} calls")?,
                Some(exit) => write!(f, "rank {rank} did the same again up to MPI_Finalize, and not after it: {exit}")?,
            },
            ReplayEnd::Aborted => write!(f, "rank {rank} ends the job: {why}")?,
            ReplayEnd::Died => write!(f, "rank {rank} had died in {place}, or after it, and did the same until then")?,
            ReplayEnd::RecordEnds => {
                write!(f, "the record of rank {rank} ends in {place}: {why}")?;
                if let Some(died_in) = died_in {
                    write!(f, " (it had died in call {died_in})")?;
                }
            }
            ReplayEnd::Until => write!(f, "rank {rank} stands before {place}")?,
            ReplayEnd::Differs => write!(f, "rank {rank} does something else in {place}: {why}")?,
            ReplayEnd::Failed if *calls == 0 => return write!(f, "rank {rank} can't be replayed: {why}"),
            ReplayEnd::Failed => write!(f, "rank {rank} can't go on in {place}: {why}")?,
        }
        write!(
            f,
            "; {messages_sent} messages with {} sent as before, {messages_received} received",
            BinaryBytes(*bytes_sent)
        )?;
        if let Some(until) = self.until.filter(|_| *end != ReplayEnd::Until) {
            write!(f, "; call {until} was not reached")?;
        }
        if stack.is_empty() { Ok(()) } else { write!(f, "\n{stack}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(end: ReplayEnd, why: &str, died_in: Option<u64>) -> Outcome {
        let replayed = Replayed {
            end,
            calls: 7,
            call: "MPI_Recv".to_owned(),
            why: why.to_owned(),
            stack: "0: main".to_owned(),
            messages_sent: 3,
            bytes_sent: 2048,
            messages_received: 2,
        };
        let status = ExitStatus::from_raw(0);
        Outcome { rank: 1, died_in, replayed: Some(replayed), calls: 7, status, exited: None, until: None }
    }

    #[test]
    fn an_outcome_says_the_call_and_why() {
        let counts = "; 3 messages with 2.00 KiB sent as before, 2 received\n0: main";
        for (end, why, died_in, said, code) in [
            (ReplayEnd::Same, "", None, "rank 1 did the same again, to its end after 7 calls", 0),
            (
                ReplayEnd::Died,
                "",
                Some(7),
                "rank 1 had died in call 7, MPI_Recv, or after it, and did the same until then",
                0,
            ),
            (
                ReplayEnd::RecordEnds,
                "it waits",
                Some(9),
                "the record of rank 1 ends in call 7, MPI_Recv: it waits (it had died in call 9)",
                0,
            ),
            (ReplayEnd::Until, "", None, "rank 1 stands before call 7, MPI_Recv", 0),
            (ReplayEnd::Differs, "a tag", None, "rank 1 does something else in call 7, MPI_Recv: a tag", DIFFERS),
            (ReplayEnd::Failed, "a file", None, "rank 1 can't go on in call 7, MPI_Recv: a file", FAILED),
            (ReplayEnd::Aborted, "code 3", None, "rank 1 ends the job: code 3", 0),
        ] {
            let outcome = outcome(end, why, died_in);
            assert_eq!((outcome.to_string(), outcome.exit_code()), (format!("{said}{counts}"), code));
            assert_eq!(outcome.to_json()["exit_code"], code);
        }
    }

    #[test]
    fn another_exit_code_is_a_difference() {
        let same = |exited| Outcome { exited, ..outcome(ReplayEnd::Same, "", None) };
        assert_eq!([None, Some(0), Some(256)].map(|code| same(code).exit_code()), [0, 0, 0]);
        assert_eq!(same(Some(3)).exit_code(), DIFFERS);
        assert!(same(Some(3)).to_string().contains("its exit code was 3"), "{}", same(Some(3)));
        let early = Outcome { until: Some(9), ..same(Some(0)) };
        assert!(early.to_string().contains("; call 9 was not reached"), "{early}");
        let crashed = Outcome { status: ExitStatus::from_raw(11), ..same(Some(0)) };
        assert_eq!(crashed.exit_code(), DIFFERS);
    }

    #[test]
    fn a_process_that_dies_has_no_report() {
        let killed = Outcome { replayed: None, status: ExitStatus::from_raw(11), ..outcome(ReplayEnd::Same, "", None) };
        assert_eq!(
            (killed.to_string().as_str(), killed.exit_code()),
            ("rank 1 was ended by signal 11, after 7 calls", 139)
        );
        let exited = Outcome { replayed: None, status: ExitStatus::from_raw(0), ..killed };
        assert!(exited.to_string().contains("has left no report"));
        assert_eq!(exited.exit_code(), FAILED);
    }
}
