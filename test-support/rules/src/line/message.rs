//! Messages between the ranks and the coordinator.

use counterfoil_log_core::Epoch;

/// Messages between a rank and the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum What {
    /// A replacement has started.
    Join,
    /// Stop, and say which line is committed; and the answer.
    Collect,
    Committed,
    /// Roll back to the line; done.
    Line,
    Ready,
    Go,
    /// Take the checkpoint that begins this epoch; it is durable, and the program had completed this many calls.
    Please,
    Durable,
    /// Pass this many calls; done.
    Pass,
    Passed,
    /// The line of this epoch is committed.
    Commit,
    /// It is time for a checkpoint.
    Ask,
}

impl What {
    const ALL: [What; 12] = [
        What::Join,
        What::Collect,
        What::Committed,
        What::Line,
        What::Ready,
        What::Go,
        What::Please,
        What::Durable,
        What::Pass,
        What::Passed,
        What::Commit,
        What::Ask,
    ];

    pub(super) fn encode(self, attempt: u32, epoch: Epoch, calls: u64) -> Vec<u8> {
        [&[self as u8][..], &attempt.to_le_bytes(), &epoch.0.to_le_bytes(), &calls.to_le_bytes()].concat()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<(What, u32, Epoch, u64)> {
        let (&what, rest) = bytes.split_first()?;
        let (attempt, rest) = rest.split_first_chunk()?;
        let (epoch, calls) = rest.split_first_chunk()?;
        let what = *What::ALL.get(usize::from(what))?;
        let calls = u64::from_le_bytes(calls.try_into().ok()?);
        Some((what, u32::from_le_bytes(*attempt), Epoch(u32::from_le_bytes(*epoch)), calls))
    }
}
