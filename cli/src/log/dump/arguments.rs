//! Arguments for `counterfoil log dump`.

use clap::Args;
use counterfoil::{Epoch, Ssn};

use super::super::StoreArguments;

/// Print a store's records, lane by lane, and the local log's entries.
///
/// Prints the records in a checkpoint's blocks, each with its role in a recovery from the checkpoint: `unacknowledged`
/// records are sent again; `retained` ones may be, and are shown with the receiver's epoch of arrival and the sender's
/// phase; `released` and `covered` ones are not needed.
///
/// For a record beginning with a message header, prints the header's fields and the checksum's state. A 16-byte prefix
/// is taken for an MPI program's: communicator, tag and message number, or, in a rank's lane to itself, the collective
/// operation that the payload contributed to.
///
/// The exit code is 1 if a requested record can't be read, or a requested checkpoint or lane doesn't exist. Without a
/// valid manifest slot no checkpoint is known to be valid; --all still prints the intact blocks.
#[derive(Debug, Args)]
pub(crate) struct DumpArguments {
    #[command(flatten)]
    pub(super) store: StoreArguments,
    /// Only the lane to this rank
    #[arg(long, value_name = "RANK", conflicts_with = "local")]
    pub(super) peer: Option<u32>,
    /// Only the local log
    #[arg(long)]
    pub(super) local: bool,
    /// Only these SSNs: `7`, `7..12` (inclusive), `7..` or `..12`
    #[arg(long, value_name = "A..B", value_parser = parse_ssns)]
    ssn: Option<(Ssn, Ssn)>,
    /// Show the checkpoint at the start of this epoch [default: the newest]
    #[arg(long)]
    epoch: Option<u32>,
    /// Also show records not referenced by the checkpoint, and superseded ones
    #[arg(long)]
    pub(super) all: bool,
    /// Show prefix and payload in hexadecimal
    #[arg(long)]
    pub(super) hex: bool,
    /// Show the payload as text
    #[arg(long)]
    pub(super) payload: bool,
    /// With --hex and --payload: maximum number of bytes for each
    #[arg(long, value_name = "BYTES", default_value_t = 256)]
    pub(super) bytes: usize,
    /// Maximum number of records
    #[arg(long, value_name = "RECORDS")]
    pub(super) limit: Option<u64>,
}

impl DumpArguments {
    /// Returns the first and the last requested SSN.
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
        text => text.parse::<u64>().map(Ssn).map_err(|_| format!("{text:?} is not an SSN")),
    };
    let (from, to) = match text.split_once("..") {
        Some((from, to)) => (number(from, Ssn::ZERO)?, number(to, Ssn(u64::MAX))?),
        None if text.is_empty() => return Err("expected A..B".to_owned()),
        None => (number(text, Ssn::ZERO)?, number(text, Ssn::ZERO)?),
    };
    if from > to {
        return Err(format!("{} is greater than {}", from.0, to.0));
    }
    Ok((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_ssns_is_inclusive() {
        assert_eq!(parse_ssns("7"), Ok((Ssn(7), Ssn(7))));
        assert_eq!(parse_ssns("7..12"), Ok((Ssn(7), Ssn(12))));
        assert_eq!(parse_ssns("7.."), Ok((Ssn(7), Ssn(u64::MAX))));
        assert_eq!(parse_ssns("..12"), Ok((Ssn(0), Ssn(12))));
        for wrong in ["", "x", "1..x", "3..2", "-1", "1...2"] {
            assert!(parse_ssns(wrong).is_err(), "{wrong}");
        }
    }
}
