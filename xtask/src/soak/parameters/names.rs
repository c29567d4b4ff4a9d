//! Names of parameter values in command lines and tables.

use std::fmt;

use super::{Call, Kill, Pattern, Tier};

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneRank => "one rank",
            Self::SameRankAgain => "same rank again",
            Self::TwoAtOnce => "two at once",
            Self::DuringRepair => "during repair",
            Self::DuringRecovery => "during recovery",
            Self::InCall(call) => return write!(f, "in {call}"),
            Self::PowerCut => "power cut",
        })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Collective => "collective",
            Self::Checkpoint => "checkpoint",
        })
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Volatile => "volatile",
            Self::ProcessCrashSafe => "process-crash-safe",
            Self::NodeLocal => "node-local",
        })
    }
}

impl fmt::Display for Kill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At { rank, iteration } => write!(f, "{rank}@{iteration}"),
            Self::InCall { rank, iteration, call } => write!(f, "{rank}@{iteration}:{call}"),
            Self::DuringRepair { rank, dead } => write!(f, "{rank}@repair:{dead}"),
            Self::DuringRecovery { rank, recovering } => write!(f, "{rank}@recovery:{recovering}"),
            Self::PowerCut { iteration } => write!(f, "all@{iteration}"),
        }
    }
}
