//! Instructions for one append, counted by valgrind: a figure independent of the machine's load.
//!
//! A program is run twice under valgrind, with few messages and with many. All its other work is the same, so the
//! difference comes from the messages alone.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::str::FromStr;

use counterfoil::{Error, Keep, Tier};

use crate::append::{append, floor, open};
use crate::floor::Ring;
use crate::scratch::Scratch;

/// Message counts of the two runs.
///
/// Multiples of the distance between collections, so that both end in the same state.
const OPS: [u64; 2] = [8 << 10, 40 << 10];
/// Size of the floor's ring in bytes, as in the time measurement.
const RING_BYTES: usize = 1 << 20;

/// The counted loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The naked copy.
    Floor,
    /// A log with this tier and retention.
    Log(Tier, Keep),
}

/// An exact number of messages through one of the loops.
///
/// Its text form is for a command line: `log,volatile,acked,64,8192`, or `floor,64,8192`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The loop.
    pub subject: Subject,
    /// Payload in bytes.
    pub size: usize,
    /// Messages.
    pub ops: u64,
}

/// The error from parsing a [`Stretch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StretchError;

impl fmt::Display for StretchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected floor,SIZE,MESSAGES or log,TIER,KEEP,SIZE,MESSAGES")
    }
}

impl std::error::Error for StretchError {}

impl Subject {
    /// Returns the log for a row in the table of appends.
    pub fn of_row(tier: &str, keep: &str) -> Option<Subject> {
        let tier: Tier = tier.parse().ok()?;
        // Its store's thread would be counted, too.
        (tier != Tier::NodeLocal).then_some(Subject::Log(tier, keep.parse().ok()?))
    }
}

impl fmt::Display for Stretch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.subject {
            Subject::Floor => write!(f, "floor")?,
            Subject::Log(tier, keep) => write!(f, "log,{tier},{keep}")?,
        }
        write!(f, ",{},{}", self.size, self.ops)
    }
}

impl FromStr for Stretch {
    type Err = StretchError;

    fn from_str(text: &str) -> Result<Self, StretchError> {
        let words: Vec<&str> = text.split(',').collect();
        let (subject, size, ops) = match words[..] {
            ["floor", size, ops] => (Subject::Floor, size, ops),
            ["log", tier, keep, size, ops] => (Subject::of_row(tier, keep).ok_or(StretchError)?, size, ops),
            _ => return Err(StretchError),
        };
        Ok(Stretch {
            subject,
            size: size.parse().map_err(|_| StretchError)?,
            ops: ops.parse().map_err(|_| StretchError)?,
        })
    }
}

impl Stretch {
    /// Sends the messages; run by a program under valgrind.
    ///
    /// # Errors
    /// If the log can't be created.
    pub fn run(&self) -> Result<(), Error> {
        let payload = vec![7; self.size];
        match self.subject {
            Subject::Floor => floor(&mut Ring::new(RING_BYTES), &mut 0, self.ops, &payload),
            Subject::Log(tier, keep) => append(&mut open(&Scratch::new()?, tier, keep)?, self.ops, &payload),
        }
        Ok(())
    }
}

/// Counts the instructions for one message of `size` bytes.
///
/// `program` with `arguments`, followed by a [`Stretch`] as text, must [run](Stretch::run) it. `None` if valgrind is
/// missing or can't run the program.
pub fn count(program: &Path, arguments: &[&str], subject: Subject, size: usize) -> Option<f64> {
    let [few, many] = OPS.map(|ops| instructions(program, arguments, Stretch { subject, size, ops }));
    Some((many?.checked_sub(few?)?) as f64 / (OPS[1] - OPS[0]) as f64)
}

fn instructions(program: &Path, arguments: &[&str], stretch: Stretch) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(program)
        .args(arguments)
        .arg(stretch.to_string())
        .stdin(Stdio::null())
        .output()
        .ok()?;
    if output.status.success() { refs_in(&String::from_utf8_lossy(&output.stderr)) } else { None }
}

/// Parses the line `==4711== I refs:        1,234,567` in a report, with one or more blanks after the `I`.
fn refs_in(report: &str) -> Option<u64> {
    let line = report.lines().find(|line| line.split_whitespace().nth(1) == Some("I") && line.contains("refs:"))?;
    line.rsplit(':').next()?.trim().replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_parsed_from_its_text() {
        for text in ["floor,64,8192", "log,process-crash-safe,checkpoint,1024,7", "log,volatile,acked,0,0"] {
            assert_eq!(text.parse::<Stretch>().map(|stretch| stretch.to_string()), Ok(text.to_owned()));
        }
        for wrong in ["", "floor", "floor,64", "floor,64,-1", "log,disk,acked,64,1", "log,volatile,64,1", "log,,,,"] {
            assert_eq!(wrong.parse::<Stretch>(), Err(StretchError), "{wrong}");
        }
    }

    #[test]
    fn the_count_is_found_in_either_form_of_the_report() {
        assert_eq!(refs_in("==1== Cachegrind\n==1== \n==1== I refs:        1,234,567\n"), Some(1_234_567));
        assert_eq!(refs_in("==1== I   refs:      30\n==1== I1  misses:    2\n"), Some(30));
        assert_eq!(refs_in("valgrind: failed to start"), None);
    }

    #[test]
    fn a_missing_program_has_no_count() {
        assert_eq!(count(Path::new("/no/such/program"), &[], Subject::Floor, 64), None);
    }

    #[test]
    fn every_loop_runs() {
        for text in ["floor,64,2000", "log,volatile,acked,64,2000", "log,process-crash-safe,checkpoint,64,2000"] {
            text.parse::<Stretch>().unwrap().run().unwrap();
        }
    }
}
