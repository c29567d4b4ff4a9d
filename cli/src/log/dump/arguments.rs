//! What is to be shown.

use clap::Args;
use counterfoil::{Epoch, Ssn};

use super::super::Place;

/// Show the records of a store, lane by lane, and the entries of the local log.
///
/// Shown are the records in the blocks that a checkpoint refers to, with what a recovery from it would do with each:
/// `unacknowledged` ones are sent again, `retained` ones may be (with the receiver's epoch in which they arrived, and the
/// sender's phase), `released` and `covered` ones are not needed. Where a record begins with the header of a message, its
/// fields are shown, and whether its checksum is right. Sixteen bytes are read as those that records of an MPI program begin with:
/// communicator and tag, and which message of these it is; or, in a rank's lane to itself, which operation of the communicator it is
/// what the rank gave to. Exit code 1 where something that was asked for can't be read, or isn't
/// there: a checkpoint that isn't kept, a lane to a rank that the job doesn't have. Where the manifest has no whole slot, nothing
/// says which checkpoint counts, and --all shows the blocks that are whole.
#[derive(Debug, Args)]
pub(crate) struct DumpArguments {
    #[command(flatten)]
    pub(super) place: Place,
    /// Only the lane to this rank
    #[arg(long, value_name = "RANK", conflicts_with = "local")]
    pub(super) peer: Option<u32>,
    /// Only the local log
    #[arg(long)]
    pub(super) local: bool,
    /// Only these SSNs: `7`, `7..12` with both ends, `7..` or `..12`
    #[arg(long, value_name = "A..B", value_parser = parse_ssns)]
    ssn: Option<(Ssn, Ssn)>,
    /// As the checkpoint has it that begins this epoch [default: the newest]
    #[arg(long)]
    epoch: Option<u32>,
    /// Show also the records that this checkpoint doesn't refer to, or that others supersede
    #[arg(long)]
    pub(super) all: bool,
    /// Show prefix and payload in hexadecimal
    #[arg(long)]
    pub(super) hex: bool,
    /// Show the payload as text
    #[arg(long)]
    pub(super) payload: bool,
    /// With --hex and --payload: show at most so many bytes of each
    #[arg(long, value_name = "BYTES", default_value_t = 256)]
    pub(super) bytes: usize,
    /// Show at most so many records
    #[arg(long, value_name = "RECORDS")]
    pub(super) limit: Option<u64>,
}

impl DumpArguments {
    /// The first and the last SSN that are wanted.
    pub(super) fn ssns(&self) -> (Ssn, Ssn) {
        self.ssn.unwrap_or((Ssn::ZERO, Ssn(u64::MAX)))
    }

    pub(super) fn epoch(&self) -> Option<Epoch> {
        self.epoch.map(Epoch)
    }
}

fn parse_ssns(text: &str) -> Result<(Ssn, Ssn), String> {
    let number = |text: &str, missing| match text {
        "" => Ok(missing),
        text => text.parse::<u64>().map(Ssn).map_err(|_| format!("{text:?} is no SSN")),
    };
    let (from, to) = match text.split_once("..") {
        Some((from, to)) => (number(from, Ssn::ZERO)?, number(to, Ssn(u64::MAX))?),
        None if text.is_empty() => return Err("expected A..B".to_owned()),
        None => (number(text, Ssn::ZERO)?, number(text, Ssn::ZERO)?),
    };
    if from > to {
        return Err(format!("{} comes after {}", from.0, to.0));
    }
    Ok((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_ssns_has_both_its_ends() {
        assert_eq!(parse_ssns("7"), Ok((Ssn(7), Ssn(7))));
        assert_eq!(parse_ssns("7..12"), Ok((Ssn(7), Ssn(12))));
        assert_eq!(parse_ssns("7.."), Ok((Ssn(7), Ssn(u64::MAX))));
        assert_eq!(parse_ssns("..12"), Ok((Ssn(0), Ssn(12))));
        for wrong in ["", "x", "1..x", "3..2", "-1", "1...2"] {
            assert!(parse_ssns(wrong).is_err(), "{wrong}");
        }
    }
}
