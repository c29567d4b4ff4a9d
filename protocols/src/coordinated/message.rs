//! Control messages, and data written in the same form: one version byte, then postcard.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::encoding;

/// Version written, and the only one read.
pub(super) const VERSION: u8 = 1;

/// Control header tag for [`Counts`].
pub(super) const COUNTS: i32 = 16;

pub(super) fn encode(value: &impl Serialize) -> Vec<u8> {
    encoding::encode_versioned(VERSION, value)
}

/// Decodes a value; `None` for other bytes, another version, or trailing data.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    encoding::decode_versioned(VERSION, bytes)
}

/// Place of a rank in line creation (section 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Progress {
    /// Before the recovery line.
    #[default]
    Behind,
    /// Beyond it, and logging.
    Logging,
    /// *readyToStopLogging*.
    Ready,
    /// Beyond the stop-log line.
    Stopping,
    /// *stoppedLogging*: its log is on stable storage.
    Stopped,
}

/// *mySendCount*: what a rank has done for a peer before its checkpoint (section 3.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) attempt: u32,
    /// Epoch begun by the checkpoint.
    pub(super) epoch: u32,
    /// Number of messages to the peer in the previous epoch.
    pub(super) messages: u64,
    /// By communicator: number of collective calls made. Figure 3 doesn't have it.
    pub(super) calls: BTreeMap<u32, u64>,
}

/// Protocol part of a Hello.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Greeting {
    /// The rank has done nothing since it was restored.
    pub(super) restored: bool,
    /// Calls to this rank, by communicator and number, to be suppressed by the peer (section 5.2).
    pub(super) suppressed: Vec<(u32, u64)>,
}
